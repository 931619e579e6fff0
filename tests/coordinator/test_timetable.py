"""One timer for many, in virtual time."""

import asyncio
import heapq
from collections.abc import Callable
from functools import partial

import uvloop

from coordinator.nodes import Cluster, now_ms
from shardlog.coordinator.driver import DriverLimits, ShardCoordinator, Surroundings
from shardlog.coordinator.elections import ELECTIONS_MAX, TURN_MS, ElectionTurns
from shardlog.coordinator.leaders import LeaderCounts
from shardlog.coordinator.timetable import ROUND_S, TURN_MAX, Timetable
from shardlog.protocol.coordination import CoordinatorLimits, LeadersCounted
from shardlog.protocol.coordinator import Coordinator
from shardlog.protocol.entry import Member
from shardlog.protocol.shard import Shard, Status


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes only from one timer to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.virtual_s = 0.0

    def time(self) -> float:
        return self.virtual_s

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.virtual_s = max(self.virtual_s, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def run(story: Callable[[Timetable, list[tuple[str, float]]], None], until_s: float) -> list:
    """What was called, and when."""
    called: list[tuple[str, float]] = []

    async def played() -> None:
        timetable = Timetable()
        story(timetable, called)
        await asyncio.sleep(until_s)
        timetable.stop()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(played())
    return called


def noting(called: list, name: str) -> Callable[[], None]:
    return lambda: called.append((name, round(asyncio.get_running_loop().time(), 6)))


def test_each_is_called_when_it_is_due():
    def story(timetable, called):
        timetable.call_after(noting(called, "late"), 0.09)
        timetable.call_after(noting(called, "soon"), 0.02)
        timetable.call_after(noting(called, "now"), 0)

    assert run(story, 1) == [("now", 0.0), ("soon", 0.02), ("late", 0.09)]


def test_the_earlier_of_two_times_counts_and_it_is_called_once():
    def story(timetable, called):
        one = noting(called, "one")
        timetable.call_after(one, 0.08)
        timetable.call_after(one, 0.01)
        timetable.call_after(one, 0.05)

    assert run(story, 1) == [("one", 0.01)]


def test_what_is_not_urgent_is_called_in_company():
    def story(timetable, called):
        for number in range(50):
            timetable.call_after(noting(called, f"{number}"), 3.01 + number / 1000)

    times = {at for _, at in run(story, 5)}
    assert len(times) == 1
    assert 3 <= times.pop() <= 3.05 + ROUND_S


def test_who_is_forgotten_is_not_called():
    def story(timetable, called):
        one = noting(called, "one")
        timetable.call_after(one, 0.02)
        timetable.call_after(noting(called, "two"), 0.03)
        timetable.forget(one)

    assert run(story, 1) == [("two", 0.03)]


def test_others_get_their_turn_between_many_that_are_due():
    order: list[str] = []

    def story(timetable, called):
        for _ in range(3 * TURN_MAX):
            timetable.call_after(lambda: order.append("due"), 0.01)
        asyncio.get_running_loop().call_later(0.01, lambda: order.append("other"))

    run(story, 1)
    assert order.count("due") == 3 * TURN_MAX
    assert order.index("other") <= TURN_MAX


def test_a_call_that_fails_stops_no_other():
    failures: list[dict] = []

    def story(timetable, called):
        asyncio.get_running_loop().set_exception_handler(lambda _, told: failures.append(told))

        def fail() -> None:
            raise RuntimeError("a bug")

        timetable.call_after(fail, 0.01)
        timetable.call_after(noting(called, "one"), 0.02)

    assert run(story, 1) == [("one", 0.02)]
    assert len(failures) == 1


def test_nothing_is_left_of_what_was_called_or_moved():
    def story(timetable, called):
        one = noting(called, "one")
        for number in range(100, 0, -1):
            timetable.call_after(one, number / 2000)
        assert len(timetable._heap) == 100
        assert heapq.nsmallest(1, timetable._heap)[0][0] == 0.0005

    assert run(story, 1) == [("one", 0.0005)]


# --- leaders -------------------------------------------------------------------------------------


def led_by(node: str | None) -> Shard:
    members = (Member("a", 1), Member("b", 1))
    leader = Member(node, 1) if node else None
    return Shard("orders", Status.STEADY, 1, leader, members)


def test_leaders_are_counted_as_they_change():
    counts = LeaderCounts()
    counts.change(None, led_by("a"))
    counts.change(None, led_by("b"))
    assert counts.counted == LeadersCounted((("a", 1), ("b", 1)))
    known = counts.counted
    counts.change(led_by("a"), led_by("a"))
    assert counts.counted is known
    counts.change(led_by("a"), led_by(None))
    counts.change(led_by(None), led_by("b"))
    assert counts.counted == LeadersCounted((("b", 2),))
    counts.change(led_by("b"), None)
    assert counts.counted == LeadersCounted((("b", 1),))


def test_on_the_loop_that_processes_run_on():
    async def story() -> list[str]:
        called: list[str] = []
        timetable = Timetable()
        for name in ("0", "1", "2"):
            timetable.call_after(partial(called.append, name), 0)
        while len(called) < 3:
            await asyncio.sleep(0)
        timetable.stop()
        return called

    assert uvloop.run(story()) == ["0", "1", "2"]


def test_leaders_that_are_about_to_be_count():
    counts = LeaderCounts()
    counts.change(None, led_by(None))
    counts.choose("orders", "a")
    counts.choose("invoices", "a")
    assert counts.counted == LeadersCounted((("a", 2),))
    counts.change(led_by(None), led_by("a"))
    assert counts.counted == LeadersCounted((("a", 2),))
    counts.choose("invoices", None)
    counts.choose("invoices", None)
    assert counts.counted == LeadersCounted((("a", 1),))


def test_so_many_elections_at_once_and_no_more():
    turns = ElectionTurns()
    for number in range(ELECTIONS_MAX):
        assert turns.has_room(1000)
        turns.begun(f"s{number}", 1000 + number)
    assert not turns.has_room(1100)
    turns.ended("s7")
    turns.ended("s7")
    assert turns.has_room(1100)
    turns.begun("s7", 1100)
    assert not turns.has_room(999 + TURN_MS)
    assert turns.has_room(1000 + TURN_MS)
    turns.begun("s3", 1000 + TURN_MS)
    assert turns.has_room(5000)
    assert not turns._begun


def test_a_shard_that_is_left_alone_counts_for_nothing():
    async def story() -> None:
        leaders, elections = LeaderCounts(), ElectionTurns()
        cluster = Cluster("")
        around = Surroundings(
            cluster.memory.handle(), cluster, now_ms, DriverLimits(), Timetable(), leaders,
            elections,
        )  # fmt: skip
        machine = Coordinator("operator", "orders", CoordinatorLimits(), 1)
        coordinator = ShardCoordinator(machine, around, lambda shard, failure: None)
        leaders.choose("orders", "a")
        for number in range(1, ELECTIONS_MAX):
            elections.begun(f"s{number}", 1000)
        elections.begun("orders", 1000)
        assert not elections.has_room(1000)
        coordinator.stop()
        assert elections.has_room(1000)
        assert leaders.counted == LeadersCounted(())

    asyncio.run(story())
