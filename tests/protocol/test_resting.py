"""A leader with nothing to tell beats more seldom, and nobody takes that for silence."""

import sys
from dataclasses import replace

import pytest

from protocol.cluster import TICK_MS, Cluster
from protocol.harness import OPERATOR
from shardlog.protocol.coordination import CoordinatorLimits
from shardlog.protocol.effects import Disconnected, Limits
from shardlog.protocol.entry import Member
from shardlog.protocol.failures import SessionUnknown
from shardlog.protocol.messages import Heartbeat, StatusReport
from shardlog.protocol.mood import mood_of
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Status
from shardlog.protocol.suspicion import Seen, given_up
from shardlog_node import process

LIMITS, COORDINATOR = Limits(), CoordinatorLimits()
SECOND_MS = 1000


@pytest.fixture(autouse=True, params=[Limits().rest_ms, process.LIMITS.rest_ms])
def limits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The protocol's own, and those that nodes have."""
    rest = replace(Limits(), rest_ms=request.param)
    monkeypatch.setattr(sys.modules[__name__], "LIMITS", rest)


def up(nodes: str = "abc") -> Cluster:
    cluster = Cluster(nodes, [OPERATOR], LIMITS)
    cluster.bring_up(nodes)
    cluster.run(SECOND_MS)
    return cluster


def beats(cluster: Cluster, ms: int) -> int:
    """How many heartbeats each follower gets within so long."""
    before = len(cluster.delivered)
    cluster.run(ms)
    found = [each for each in cluster.delivered[before:] if type(each.message) is Heartbeat]
    return len(found) // max(1, len({each.dst for each in found}))


def test_T8_a_leader_with_nothing_to_tell_beats_more_seldom():
    cluster = up()
    assert beats(cluster, 2 * SECOND_MS) == 2 * SECOND_MS // LIMITS.rest_ms


def test_T8_what_is_committed_is_told_without_delay_before_it_rests():
    cluster = up()
    session = cluster.register()
    cluster.append(session, 1)
    commit = cluster.leader().replica.commit
    cluster.run(2 * LIMITS.heartbeat_ms)
    assert {node.replica.commit for node in cluster.nodes.values()} == {commit}
    assert beats(cluster, 2 * SECOND_MS) <= 2 * SECOND_MS // LIMITS.rest_ms + 2


def test_a_follower_that_does_not_answer_ends_the_rest():
    cluster = up()
    follower = next(name for name in cluster.nodes if name != cluster.led_by)
    cluster.kill(follower)
    cluster.run(2 * LIMITS.rest_ms)
    assert beats(cluster, SECOND_MS) == SECOND_MS // LIMITS.heartbeat_ms


def test_a_leader_alone_rests_too():
    cluster = up("a")
    lead = cluster.leader().replica.lead
    assert lead
    assert lead.resting
    ticks = sum(_needs_tick(cluster, "a") for _ in range(SECOND_MS // TICK_MS))
    assert ticks <= SECOND_MS // LIMITS.rest_ms + 1


def _needs_tick(cluster: Cluster, name: str) -> bool:
    replica = cluster.nodes[name].replica
    needed = replica.needs_tick(cluster.now_ms + TICK_MS)
    cluster.run(TICK_MS)
    return needed


def test_followers_need_no_ticks():
    cluster = up()
    follower = next(name for name in cluster.nodes if name != cluster.led_by)
    assert not any(_needs_tick(cluster, follower) for _ in range(SECOND_MS // TICK_MS))


def test_T11_a_leader_at_rest_is_heard_by_all_who_are_asked():
    """At every moment: its followers hear it, and it hears its quorum."""
    cluster = up()
    for _ in range(2 * SECOND_MS // TICK_MS):
        cluster.run(TICK_MS)
        moods = [mood_of(node.replica, cluster.now_ms) for node in cluster.nodes.values()]
        assert all(mood.content for mood in moods)


def test_a_session_beyond_the_log_is_told_so_by_a_leader_at_rest():
    """At once, or to whoever asks again, at whatever moment that is."""
    cluster = up()
    for _ in range(20):
        cluster.run(7 * TICK_MS)
        if cluster.append(999, 1).refusal != SessionUnknown(999):
            assert cluster.append(999, 1).refusal == SessionUnknown(999)


def test_T11_nobody_listens_and_the_followers_of_a_leader_at_rest_still_hear_it():
    cluster = up()
    epoch = cluster.record.epoch
    cluster.unheeded.add(cluster.led_by)
    cluster.run(3 * SECOND_MS)
    assert cluster.record.epoch == epoch


def test_T11_a_killed_leader_at_rest_is_not_waited_for():
    cluster = up()
    first = cluster.led_by
    cluster.unheeded.add(first)
    cluster.kill(first)
    cluster.run_until(
        lambda: cluster.record.status is Status.STEADY and cluster.led_by != first,
        3 * COORDINATOR.status_ms,
    )


def test_T11_a_broken_connection_alone_deposes_nobody():
    cluster = up()
    epoch = cluster.record.epoch
    for _ in range(10):
        for name in cluster.nodes:
            cluster._step(name, Disconnected(cluster.led_by))
        cluster.run(2 * LIMITS.rest_ms)
    assert cluster.record.epoch == epoch


def test_T11_a_follower_whose_connection_broke_hears_nobody_until_the_next_heartbeat():
    cluster = up()
    follower = next(name for name in cluster.nodes if name != cluster.led_by)
    other = next(name for name in cluster.nodes if name not in (follower, cluster.led_by))
    replica = cluster.nodes[follower].replica
    cluster._step(follower, Disconnected(other))
    assert mood_of(replica, cluster.now_ms).content
    cluster._step(follower, Disconnected(cluster.led_by))
    assert not mood_of(replica, cluster.now_ms).content
    cluster.run(LIMITS.rest_ms)
    assert mood_of(replica, cluster.now_ms).content


A, B, C = ABC = tuple(Member(node, 1) for node in "abc")
REPORT = StatusReport(1, B, "FOLLOWER", 1, (), 0, 0, A, 0, False, False, (), ())


@pytest.mark.parametrize(
    ("heard_ms_ago", "slack_ms", "against"),
    [(199, 0, False), (200, 0, True), (200, 150, False), (349, 150, False), (350, 150, True)],
)
def test_T11_who_may_take_its_time_is_given_it(heard_ms_ago, slack_ms, against):
    report = replace(REPORT, heard_ms_ago=heard_ms_ago, slack_ms=slack_ms)
    seen = {B: Seen(report, 1000), C: Seen(replace(report, member=C), 1000)}
    assert given_up(A, ABC, QuorumPolicy(), seen, 900, 200) is against
