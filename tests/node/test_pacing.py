"""The pace: no bound while nobody appends, a share of what is appended while somebody does."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from shardlog_node.giving_way import Gate
from shardlog_node.pacing import (
    BURST_BYTES,
    BUSY_BYTES_PER_S,
    HEAVY_BYTES_PER_S,
    LEAST_BYTES_PER_S,
    LIGHT_BYTES_PER_S,
    QUIET_S,
    Pace,
    PaceLimits,
    ShardPace,
)

TICK_S = 0.02
MIB = 1 << 20


@dataclass
class Lead:
    starving: bool = False
    positions: list[int] = field(default_factory=list)

    def behind(self, now_ms: int, heard_ms: int) -> list[int]:
        return self.positions


@dataclass
class Written:
    end: int = 0


@dataclass
class Machine:
    lead: Lead | None
    log: Written = field(default_factory=Written)
    now_ms: int = 0
    asked: dict[Any, Any] = field(default_factory=dict)
    feed_bytes: int | None = None


@dataclass
class Files:
    written_bytes: int = 0
    fresh: dict[int, Any] = field(default_factory=dict)


class Hosted:
    """What a pace looks at."""

    def __init__(self, leads: bool = True) -> None:
        self.replica = Machine(Lead() if leads else None)
        self.store = Files()
        self.pace = ShardPace()
        self.gate = Gate()
        self.stopped = False


class Node:
    def __init__(self, limits: PaceLimits, *hosted: Hosted) -> None:
        self.pace = Pace(limits)
        self.hosted: Any = hosted

    def run(self, seconds: float, appended_per_s: int = 0, spent: bool = True) -> int:
        """What the first may send in that time, which it does; clients append to it."""
        first = self.hosted[0]
        allowed = 0
        for _ in range(round(seconds / TICK_S)):
            if appended_per_s:
                first.store.written_bytes += int(appended_per_s * TICK_S)
                self.pace.wrote(first)
            self.pace.tick(self.hosted, TICK_S)
            left = first.replica.feed_bytes
            if left is not None and left > 0 and spent:
                allowed += left
                first.replica.feed_bytes = 0
        return allowed


def test_there_is_no_bound_while_nobody_appends():
    node = Node(PaceLimits(), Hosted())
    node.run(1)
    assert node.hosted[0].replica.feed_bytes is None


def test_a_busy_shard_feeds_more_than_is_appended_and_not_much_more():
    node = Node(PaceLimits(busy_percent=150), Hosted())
    node.run(2, appended_per_s=100 * MIB)
    assert node.pace.busy
    allowed = node.run(4, appended_per_s=100 * MIB)
    assert allowed / 4 == pytest.approx(150 * MIB, rel=0.02)


def test_the_bound_ends_soon_after_the_last_append():
    node = Node(PaceLimits(), Hosted())
    node.run(2, appended_per_s=100 * MIB)
    node.run(QUIET_S + TICK_S)
    assert not node.pace.busy
    assert node.hosted[0].replica.feed_bytes is None


def test_a_pause_between_two_appends_ends_no_bound():
    node = Node(PaceLimits(), Hosted())
    node.run(2, appended_per_s=100 * MIB)
    node.run(QUIET_S - 2 * TICK_S)
    assert node.pace.busy


def run_in_bursts(node: Node, pause_s: float, times: int, *, under_way: bool) -> list[bool]:
    """Appends are durable all at once, after each pause; whether the node was busy at its end."""
    first = node.hosted[0]
    found = []
    for _ in range(times):
        first.store.fresh = {0: None} if under_way else {}
        node.run(pause_s)
        found.append(node.pace.busy)
        first.store.fresh = {}
        node.run(TICK_S, appended_per_s=int(50 * MIB * pause_s / TICK_S))
    return found


def test_a_slow_disk_is_no_pause_of_the_clients():
    node = Node(PaceLimits(), Hosted())
    node.run(2, appended_per_s=50 * MIB)
    assert all(run_in_bursts(node, 3 * QUIET_S, 10, under_way=True))
    assert not any(run_in_bursts(node, 3 * QUIET_S, 10, under_way=False))


@pytest.mark.parametrize("under_way", [True, False])
def test_appends_give_way_whatever_the_pauses_between_them(under_way: bool):
    """The one behind gets nine tenths of what is appended, so it never catches up."""
    node = Node(PaceLimits(), Hosted())
    first = node.hosted[0]
    first.replica.lead.positions = [0]
    gave_way = 0
    for _ in range(60):
        run_in_bursts(node, 2 * QUIET_S, 1, under_way=under_way)
        first.replica.log.end += 100
        first.replica.lead.positions[0] += 90
        gave_way += first.gate.way.bytes_per_s is not None
    assert gave_way > 30


def test_a_few_appends_do_not_make_a_node_busy():
    node = Node(PaceLimits(), Hosted())
    node.run(2, appended_per_s=BUSY_BYTES_PER_S // 2)
    assert not node.pace.busy


def test_each_that_is_behind_gets_the_share():
    node = Node(PaceLimits(busy_percent=150), Hosted())
    node.hosted[0].replica.lead.positions = [1, 2]
    node.run(2, appended_per_s=100 * MIB)
    assert node.run(4, appended_per_s=100 * MIB) / 4 == pytest.approx(300 * MIB, rel=0.02)


def test_a_node_that_is_appended_little_feeds_fast():
    node = Node(PaceLimits(), Hosted())
    node.run(2, appended_per_s=2 * MIB)
    assert node.pace.busy
    allowed = node.run(4, appended_per_s=2 * MIB) / 4
    assert allowed == pytest.approx(LIGHT_BYTES_PER_S * (1 - 2 * MIB / HEAVY_BYTES_PER_S), rel=0.02)


def test_idle_shards_of_a_busy_node_share_a_small_rate():
    busy, one, other = Hosted(), Hosted(), Hosted()
    node = Node(PaceLimits(), busy, one, other)
    node.run(2, appended_per_s=50 * MIB)
    for each in (one, other):
        assert each.replica.lead is not None
        each.replica.lead.starving = True
        each.replica.feed_bytes = 0
    before = one.replica.feed_bytes
    node.run(TICK_S, appended_per_s=50 * MIB)
    assert before == 0
    assert one.replica.feed_bytes == pytest.approx(LEAST_BYTES_PER_S / 2 * TICK_S, rel=0.01)


def test_appends_give_way_while_somebody_stays_behind_and_not_after():
    node = Node(PaceLimits(), Hosted())
    first = node.hosted[0]
    node.run(5, appended_per_s=100 * MIB)
    for second in range(20):
        first.replica.log.end = 1000 * (second + 1)
        first.replica.lead.positions = [500 * second]
        node.run(1, appended_per_s=100 * MIB)
    assert list(node.pace.narrow) == [first]
    assert first.gate.way.bytes_per_s == pytest.approx(75 * MIB, rel=0.05)
    first.replica.lead.positions = []
    node.run(1, appended_per_s=75 * MIB)
    assert not first.gate.narrow


def test_what_a_follower_writes_makes_nobody_busy():
    node = Node(PaceLimits(), Hosted(leads=False))
    node.run(2, appended_per_s=100 * MIB)
    assert not node.pace.busy


def test_the_bound_of_all_holds_at_any_time():
    node = Node(PaceLimits(bytes_per_s_max=2 * MIB), Hosted())
    assert node.run(4) / 4 == pytest.approx(2 * MIB, rel=0.02)
    node.run(2, appended_per_s=100 * MIB)
    assert node.run(4, appended_per_s=100 * MIB) / 4 == pytest.approx(2 * MIB, rel=0.02)


def test_what_is_not_used_does_not_pile_up():
    node = Node(PaceLimits(bytes_per_s_max=2 * MIB), Hosted())
    node.run(60, spent=False)
    assert node.hosted[0].replica.feed_bytes == BURST_BYTES


def test_a_debt_is_paid_before_more_is_sent():
    """The last entry of a batch may be longer than what was left."""
    node = Node(PaceLimits(bytes_per_s_max=MIB), Hosted())
    node.run(TICK_S)
    node.hosted[0].replica.feed_bytes = -MIB
    assert node.run(0.5) == 0
    assert node.run(1) > 0
