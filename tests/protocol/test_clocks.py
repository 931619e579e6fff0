"""T10: clocks are set forwards and back, and nothing that must hold depends on them."""

from hypothesis import given
from hypothesis import strategies as st

from protocol.cluster import Cluster
from protocol.harness import CLIENT, acked, chain, leading, sent
from shardlog.protocol.coordination import CoordinatorLimits
from shardlog.protocol.messages import Appended, Heartbeat, Register, Trim
from shardlog.protocol.shard import Status

LOG = chain([1, 1, 1])
HOUR_MS = 3_600_000
LONG_MS = 4 * CoordinatorLimits().election_timeout_ms


def test_T10_timestamps_do_not_fall_when_the_clock_is_set_back():
    leader = leading(LOG)
    stamps = []
    for nonce, step_ms in enumerate((HOUR_MS, -HOUR_MS // 2, 5, -HOUR_MS // 4, HOUR_MS), start=1):
        leader.now_ms += step_ms
        leader.receive(Register(nonce), CLIENT)
        stamps.append(leader.replica.log.headers[-1].timestamp_ms)
    assert stamps == [HOUR_MS] * 4 + [leader.now_ms]


def test_T10_a_clock_that_was_set_back_shows_the_new_time_once_it_is_ahead_again():
    leader = leading(LOG)
    leader.tick(1000)
    leader.now_ms = 400
    leader.tick()
    leader.tick(700)
    leader.receive(Register(1), CLIENT)
    assert leader.replica.log.headers[-1].timestamp_ms == 1100


def test_T10_heartbeats_go_on_when_the_clock_is_set_back():
    leader = leading(LOG)
    acked(leader, "b", 4)
    leader.tick(HOUR_MS)
    leader.now_ms -= HOUR_MS
    leader.tick()
    assert sent(leader.tick(leader.limits.heartbeat_ms), Heartbeat)


@given(st.lists(st.integers(-HOUR_MS, HOUR_MS), max_size=12))
def test_T10_own_time_never_goes_back(steps):
    leader = leading(LOG)
    leader.now_ms = 12 * HOUR_MS
    leader.tick()
    before = leader.replica.now_ms
    for step_ms in steps:
        leader.tick(step_ms)
        assert leader.replica.now_ms == before + max(step_ms, 0)
        assert leader.replica.clock_ms == leader.now_ms
        before = leader.replica.now_ms


def test_T10_an_operator_whose_clock_was_set_back_still_elects():
    cluster = Cluster(operators=["op"])
    cluster.now_ms = HOUR_MS
    cluster.bring_up()
    cluster.now_ms = 0
    cluster.kill(cluster.led_by)
    cluster.run(LONG_MS)
    assert cluster.record.status is Status.STEADY
    answer = cluster.append(cluster.register(), 1)
    assert isinstance(answer, Appended)


def test_T10_the_last_entry_is_not_trimmed_because_it_carries_the_time():
    leader = leading(LOG)
    acked(leader, "b", 4)
    leader.receive(Trim(2, 99))
    assert (leader.replica.log.first, leader.replica.log.end) == (3, 4)


def test_T10_the_last_committed_entry_stays_where_more_is_written_behind_it():
    leader = leading(LOG)
    acked(leader, "b", 4)
    leader.receive(Register(1), CLIENT)
    leader.receive(Trim(2, 99))
    assert (leader.replica.log.first, leader.replica.commit, leader.replica.log.end) == (3, 4, 5)
