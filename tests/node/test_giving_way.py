"""Appends give way to those who are behind: no further than need be, and not in vain."""

import pytest

from shardlog.protocol.messages import Append, Envelope, Read
from shardlog_node.giving_way import (
    BURST_BYTES,
    LEAST_SHARE,
    LOOK_S,
    REST_S,
    VAIN_S,
    Gate,
    GivingWay,
)

TICK_S = 0.02
MB = 1_000_000
USUAL = 100 * MB


class Shard:
    """A leader whose machine can do so much: what is not appended is left for who is behind."""

    def __init__(self, capacity: int, wanted: int = USUAL, taken_max: int = 10 * USUAL) -> None:
        self.way = GivingWay()
        self.capacity = capacity
        self.wanted = wanted
        self.taken_max = taken_max
        self.end = 50_000 * MB
        self.at: int | None = None
        self.appended = 0

    @property
    def bound(self) -> float | None:
        return self.way.bytes_per_s

    def run(self, seconds: float) -> float:
        """How far it has got nearer, in bytes a second; a record is a byte."""
        before = None if self.at is None else self.end - self.at
        self.appended = 0
        for _ in range(round(seconds / TICK_S)):
            bound = self.way.bytes_per_s
            rate = self.wanted if bound is None else min(self.wanted, bound)
            new = int(rate * TICK_S)
            self.end += new
            self.appended += new
            if self.at is not None:
                self.at += int(min(self.capacity - rate, self.taken_max) * TICK_S)
            self.way.look(TICK_S, new, self.end, self.at)
        return (
            0.0 if before is None or self.at is None else (before - (self.end - self.at)) / seconds
        )


def behind(capacity: int, **more: int) -> Shard:
    shard = Shard(capacity, **more)
    shard.run(10)
    shard.at = 0
    return shard


def test_nobody_gives_way_while_all_are_in_step():
    shard = Shard(USUAL)
    shard.run(30)
    assert shard.bound is None


def test_one_that_gains_by_itself_is_left_alone():
    shard = behind(USUAL + 130 * MB)
    assert shard.run(30) > 0
    assert shard.bound is None


def test_one_that_would_fall_behind_for_ever_gains_and_most_is_still_appended():
    shard = behind(USUAL + 70 * MB)
    assert shard.run(1) < 0, "without it the distance grows"
    shard.run(10)
    assert shard.run(20) > 0
    assert shard.appended / 20 >= 0.7 * USUAL


def test_no_more_is_given_than_it_takes():
    """Where a tenth less is enough, a quarter less is not asked for."""
    shard = behind(USUAL + 95 * MB)
    shard.run(10)
    assert shard.run(20) > 0
    assert shard.appended / 20 >= 0.85 * USUAL


def test_never_less_than_the_share_is_admitted():
    shard = behind(USUAL + 30 * MB)
    least = USUAL
    for _ in range(100):
        shard.run(LOOK_S)
        least = min(least, shard.appended)
    assert least == pytest.approx(USUAL * LEAST_SHARE, rel=0.02)


def test_who_has_caught_up_ends_it_at_once():
    shard = behind(USUAL + 70 * MB)
    shard.run(10)
    assert shard.bound is not None
    shard.at = None
    shard.run(TICK_S)
    assert shard.bound is None


def test_one_that_takes_hardly_anything_is_not_waited_for():
    shard = behind(10 * USUAL, taken_max=USUAL // 10)
    for _ in range(30):
        shard.run(LOOK_S)
        assert shard.bound is None


def test_what_does_not_help_ends_for_a_while():
    shard = behind(10 * USUAL, taken_max=USUAL // 2)
    bounds = []
    for seconds in (10, VAIN_S, REST_S - 20, 30):
        shard.run(seconds)
        bounds.append(shard.bound is not None)
    assert bounds == [True, False, False, True]


def test_more_load_than_before_is_what_counts_from_then_on():
    shard = Shard(USUAL + 60 * MB, wanted=USUAL // 10)
    shard.run(10)
    shard.at = 0
    shard.wanted = USUAL
    shard.run(20)
    assert shard.bound is not None
    assert shard.bound >= USUAL * LEAST_SHARE * 0.95


# --- the gate ------------------------------------------------------------------------------------


def append(number: int, size: int = 1000) -> Envelope:
    return Envelope("orders", "client 1", 0, "a", 0, Append(1, number, 1, bytes(size), 0))


READ = Envelope("orders", "client 1", 0, "a", 0, Read(1, 0, 1))


def numbers(envelopes: list[Envelope]) -> list[int]:
    return [each.message.request for each in envelopes if isinstance(each.message, Append)]


def test_a_gate_is_wide_open_unless_somebody_is_behind():
    gate = Gate()
    assert not gate.narrow
    assert numbers(gate.admit([append(1), append(2)])) == [1, 2]


def test_appends_wait_in_order_and_nothing_else_does():
    gate = Gate()
    gate.way.bytes_per_s = 100_000
    assert gate.admit([append(1), READ, append(2)]) == [READ]
    assert gate.narrow
    freed = [numbers(gate.refill(TICK_S)) for _ in range(2)]
    assert freed == [[1, 2], []]


def test_so_much_a_second_goes_through():
    gate = Gate()
    gate.way.bytes_per_s = 500_000
    gate.admit([append(number) for number in range(1, 5001)])
    through = sum(len(gate.refill(TICK_S)) for _ in range(round(4 / TICK_S)))
    assert through == pytest.approx(4 * 500, rel=0.02)


def test_what_is_not_used_does_not_pile_up():
    gate = Gate()
    gate.way.bytes_per_s = 100 * MB
    for _ in range(1000):
        gate.refill(TICK_S)
    size = 4 * BURST_BYTES
    passed = gate.admit([append(1, size), append(2, size), append(3, size), append(4, size)])
    assert len(passed) <= 2


def test_all_that_was_held_goes_on_when_it_ends():
    gate = Gate()
    gate.way.bytes_per_s = 1
    assert gate.admit([append(1), append(2)]) == []
    gate.way.bytes_per_s = None
    assert numbers(gate.admit([append(3)])) == [1, 2, 3]
    assert not gate.narrow


def test_a_closed_gate_lets_nothing_but_appends_wait():
    gate = Gate()
    gate.closed = True
    assert gate.narrow
    assert gate.admit([append(1), READ]) == [READ]
    assert gate.refill(TICK_S) == []
    gate.closed = False
    assert numbers(gate.refill(TICK_S)) == [1]
    assert not gate.narrow
