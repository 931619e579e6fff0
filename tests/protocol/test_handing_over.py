"""A node that is about to stop hands over what it leads."""

import pytest

from protocol.cluster import TICK_MS, Cluster
from shardlog.protocol.coordination import CoordinatorLimits, Expand, Promote
from shardlog.protocol.messages import (
    Ack,
    Appended,
    Committed,
    Entries,
    PauseWrites,
    StatusReport,
    StatusRequest,
)
from shardlog.protocol.shard import Status

LIMITS = CoordinatorLimits()
LONG_MS = 4 * LIMITS.election_timeout_ms


def up(ensemble: str = "abc", nodes: str = "abcd") -> Cluster:
    cluster = Cluster(nodes, operators=["op"])
    cluster.bring_up(ensemble)
    return cluster


def drain(cluster: Cluster, names: str) -> None:
    for name in names:
        cluster.nodes[name].replica.draining = True


def asked(cluster: Cluster) -> list[str]:
    return [
        each.message.target.node
        for each in cluster.delivered
        if isinstance(each.message, PauseWrites)
    ]


def test_a_status_tells_it():
    cluster = up()
    for draining in (False, True):
        cluster.nodes["b"].replica.draining = draining
        (report,) = cluster.tell("b", StatusRequest(1), "somebody")
        assert isinstance(report, StatusReport)
        assert report.draining is draining


def test_leadership_goes_to_a_member_that_stays():
    cluster = up()
    assert isinstance(cluster.append(cluster.register(), 1, b"kept"), Appended)
    drain(cluster, "ab")
    cluster.run_until(lambda: cluster.record.status is Status.STEADY and cluster.led_by == "c", 500)
    assert cluster.leader().replica.log.end >= 3
    assert asked(cluster) == ["c"]


def test_a_follower_that_stops_changes_nothing():
    cluster = up()
    drain(cluster, "b")
    cluster.run(LONG_MS)
    assert (cluster.led_by, cluster.record.epoch, asked(cluster)) == ("a", 1, [])


@pytest.mark.parametrize(("ensemble", "draining"), [("abc", "abc"), ("a", "a")])
def test_nobody_to_hand_over_to(ensemble, draining):
    cluster = up(ensemble)
    drain(cluster, draining)
    cluster.run(LONG_MS)
    assert (cluster.led_by, cluster.record.epoch, asked(cluster)) == ("a", 1, [])
    assert isinstance(cluster.append(cluster.register(), 1, b"x"), Appended)


def test_it_is_tried_again_once_somebody_has_caught_up():
    cluster = up()
    cluster.hold = lambda each: each.dst == "c" and isinstance(each.message, Entries)
    session = cluster.register()
    assert isinstance(cluster.append(session, 1, b"x"), Appended)
    cluster.run(200)
    drain(cluster, "ab")
    cluster.run(LONG_MS)
    assert (cluster.led_by, asked(cluster)) == ("a", [])
    cluster.release()
    cluster.run_until(lambda: cluster.record.status is Status.STEADY and cluster.led_by == "c", 900)


def test_a_target_that_does_not_get_there_is_given_up_and_writes_go_on():
    cluster = up()
    session = cluster.register()
    cluster.run(200)
    cluster.hold = lambda each: each.src == "c" and isinstance(each.message, Ack)
    drain(cluster, "ab")
    before = cluster.append(session, 1, b"x")
    cluster.run(LONG_MS)
    assert isinstance(before, Appended)
    assert cluster.led_by == "a"
    paused = len(asked(cluster))
    cluster.run(LONG_MS)
    assert len(asked(cluster)) == paused
    assert isinstance(cluster.append(session, 2, b"y"), Appended)


def test_a_change_is_let_finish_first():
    cluster = up()
    cluster.hold = lambda each: isinstance(each.message, Committed)
    cluster.command(Expand("d"))
    cluster.run_until(lambda: cluster.record.change is not None, LONG_MS)
    drain(cluster, "a")
    cluster.run(500)
    assert cluster.led_by == "a"
    cluster.release()
    cluster.run_until(
        lambda: cluster.record.status is Status.STEADY and cluster.led_by != "a", LONG_MS
    )
    assert len(cluster.record.ensemble) == 4


def test_an_election_passes_over_who_is_about_to_stop():
    cluster = up("abcde", "abcde")
    drain(cluster, "bc")
    cluster.run(3 * LIMITS.status_ms)
    cluster.kill("a")
    cluster.run_until(lambda: cluster.record.epoch > 1 and cluster.record.leader is not None, 3000)
    assert cluster.led_by == "d"


def test_who_came_back_from_a_stop_may_lead_again():
    cluster = up()
    drain(cluster, "a")
    cluster.run_until(
        lambda: cluster.record.status is Status.STEADY and cluster.led_by != "a", 1000
    )
    cluster.kill("a")
    cluster.run(TICK_MS)
    cluster.revive("a")
    cluster.run(500)
    cluster.command(Promote("a"))
    cluster.run(LONG_MS)
    assert cluster.led_by == "a"
