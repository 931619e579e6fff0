"""T10: a node's clock among machines whose clocks are off, drift and are set."""

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from protocol.harness import CLIENT, leading

from shardlog.protocol.cluster_clock import DRIFT_PPM
from shardlog.protocol.entry import Header
from shardlog.protocol.messages import Register
from shardlog_node.clock import SAMPLE_AGE_MAX_NS, SLEW_DIVISOR, TOLERANCE_NS, NodeClock

MS = 1_000_000
SECOND = 1_000_000_000
DRIFT_MAX = DRIFT_PPM // 2
START = 1_700_000_000 * SECOND


@dataclass
class Time:
    """The true one."""

    now: int = START


@dataclass
class Machine:
    """Its wall clock is off by `error`, its monotonic clock by `drift` in a million."""

    time: Time
    error: int = 0
    drift: int = 0
    clock: NodeClock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = NodeClock(self.monotonic, self.wall)

    def monotonic(self) -> int:
        elapsed = self.time.now - START
        return 77 * SECOND + elapsed + elapsed * self.drift // 1_000_000

    def wall(self) -> int:
        return self.time.now + self.error

    def ask(self, name: str, other: "Machine", there: int, back: int) -> None:
        sent = self.monotonic()
        self.time.now += there
        read = other.wall()
        self.time.now += back
        self.clock.sample(name, sent, self.monotonic(), read)

    def off(self) -> int:
        """By how much the clock is off the true time, in ns."""
        return self.clock.now_ms() * MS - self.time.now


def test_T10_it_starts_at_the_wall_clock():
    assert Machine(Time(), error=5 * SECOND).clock.now_ms() == (START + 5 * SECOND) // MS


def test_T10_alone_it_follows_its_own_wall_clock_without_a_jump():
    time = Time()
    machine = Machine(time)
    machine.error = 5 * SECOND
    time.now += SECOND
    assert machine.off() == SECOND // SLEW_DIVISOR
    time.now += 60 * SECOND
    assert machine.off() == 5 * SECOND - TOLERANCE_NS


def test_T10_a_clock_that_is_ahead_waits_for_the_others():
    time = Time()
    machine, others = Machine(time, error=3 * SECOND), [Machine(time), Machine(time)]
    for _ in range(40):
        for at, other in enumerate(others):
            machine.ask(str(at), other, MS, MS)
        time.now += SECOND
        machine.clock.now_ms()
    assert abs(machine.off()) <= TOLERANCE_NS + 2 * MS


def test_T10_it_runs_on_while_no_majority_agrees():
    time = Time()
    machine, other = Machine(time), Machine(time, error=3 * SECOND)
    machine.ask("b", other, MS, MS)
    time.now += 5 * SECOND
    assert machine.off() == 0
    assert machine.clock.agreed is None
    assert machine.clock.sources == 2


def test_T10_who_is_not_heard_of_any_more_does_not_count():
    time = Time()
    machine = Machine(time)
    machine.ask("b", Machine(time), MS, MS)
    time.now += SAMPLE_AGE_MAX_NS + SECOND
    machine.clock.now_ms()
    assert machine.clock.sources == 1
    assert machine.clock.agreed is not None


def test_S06_clocks_are_looked_at_once_a_second_however_many_answers_come():
    time = Time()
    machine = Machine(time)
    machine.clock.now_ms()
    before = machine.clock.agreed
    for number in range(1000):
        machine.ask(str(number), Machine(time, error=9 * SECOND), 0, 0)
        machine.clock.now_ms()
    assert machine.clock.agreed == before
    time.now += SECOND
    machine.clock.now_ms()
    assert machine.clock.agreed != before


def test_T10_a_sample_from_the_future_is_none():
    machine = Machine(Time())
    now = machine.monotonic()
    machine.clock.sample("b", now + 1, now, START)
    assert machine.clock.sources == 1


def test_T10_how_far_it_is_from_its_own_wall_clock():
    time = Time()
    machine = Machine(time)
    machine.error = -SECOND
    assert machine.clock.ahead_of_wall_ns == SECOND


@st.composite
def machines(draw: st.DrawFn) -> list[Machine]:
    """Three to five, of which a majority is right; the first is the one that asks."""
    time = Time()
    number = draw(st.integers(3, 5))
    wrong = draw(st.sets(st.integers(0, number - 1), max_size=(number - 1) // 2))
    return [
        Machine(
            time,
            draw(st.integers(-5, 5)) * SECOND
            if at in wrong
            else draw(st.integers(-TOLERANCE_NS, TOLERANCE_NS)),
            draw(st.integers(-DRIFT_MAX, DRIFT_MAX)),
        )
        for at in range(number)
    ]


ROUND_TRIPS = st.tuples(st.integers(0, 50), st.integers(0, 50))
STEPS = st.dictionaries(st.integers(0, 20), st.integers(-3600, 3600), max_size=3)


@given(machines(), st.lists(ROUND_TRIPS, min_size=1, max_size=8), STEPS)
def test_T10_monotonic_and_in_time_within_the_bound(cluster, trips, steps):
    """A minority's clocks are set, again and again; then there is time to come together."""
    asking, *others = cluster
    wrong = [each for each in cluster if abs(each.error) > TOLERANCE_NS]
    shown = [(asking.monotonic(), asking.clock.now_ms())]
    for second in range(20 + SLEW_DIVISOR * 6):
        if second in steps and wrong:
            wrong[second % len(wrong)].error += steps[second] * SECOND
        there, back = trips[second % len(trips)]
        for at, other in enumerate(others):
            asking.ask(str(at), other, there * MS, back * MS)
        asking.time.now += SECOND
        shown.append((asking.monotonic(), asking.clock.now_ms()))
    for (before, first), (after, then) in pairwise(shown):
        elapsed = (after - before) // MS
        most = elapsed // SLEW_DIVISOR + 2
        assert elapsed - most <= then - first <= elapsed + most
    bound = 2 * TOLERANCE_NS + 2 * 100 * MS
    assert abs(asking.off()) <= bound


@given(machines(), st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5000)), max_size=12))
def test_T10_timestamps_never_fall_across_failovers(cluster, leaders):
    """Whoever leads next, whatever its clock shows: never below the last entry's timestamp."""
    log: list[Header] = []
    stamps: list[int] = []
    for epoch, (who, wait_ms) in enumerate(leaders, 2):
        machine = cluster[who % len(cluster)]
        machine.time.now += wait_ms * MS
        leader = leading(log, epoch=epoch)
        leader.now_ms = machine.clock.now_ms()
        leader.receive(Register(epoch), CLIENT)
        log = list(leader.replica.log.headers)
        stamps.append(log[-1].timestamp_ms)
        assert stamps[-1] >= leader.now_ms
    assert stamps == sorted(stamps)
