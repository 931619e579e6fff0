"""Replicas that cannot be made yet, because their node has no room: who is waited for, and why."""

from protocol.cluster import Cluster
from shardlog.protocol.awaiting import awaited
from shardlog.protocol.choice import Waiting
from shardlog.protocol.coordination import CoordinatorLimits, CreateShard, Expand
from shardlog.protocol.entry import Member
from shardlog.protocol.failures import NO_SPACE
from shardlog.protocol.messages import Create, Created
from shardlog.protocol.shard import Status

LONG_MS = 4 * CoordinatorLimits().election_timeout_ms


def fill(cluster: Cluster, name: str) -> None:
    """It has been asked for a replica, and cannot write it."""
    cluster.hold = lambda each: isinstance(each.message, Created) and each.src == name
    cluster.nodes[name].replica.full = True


def make_room(cluster: Cluster, name: str) -> None:
    cluster.nodes[name].replica.full = False
    cluster.release()
    cluster.run(LONG_MS)


def status(cluster: Cluster) -> Status:
    return cluster.record.status


def test_a_shard_says_whose_volume_has_no_room_for_its_replica():
    cluster = Cluster(operators=["op"])
    machine = cluster.coordinators["op"]
    fill(cluster, "b")
    cluster.run(25)
    cluster.command(CreateShard(tuple("abc"), cluster.policy))
    assert awaited(machine) is None
    cluster.run(LONG_MS)
    assert status(cluster) is Status.CREATING
    assert awaited(machine) == Waiting(None, NO_SPACE, (Member("b", 0),))
    make_room(cluster, "b")
    assert status(cluster) is Status.STEADY
    assert awaited(machine) is None


def test_so_does_one_that_grows():
    cluster = Cluster("abcd", operators=["op"])
    cluster.bring_up("abc")
    machine = cluster.coordinators["op"]
    fill(cluster, "d")
    cluster.command(Expand("d"))
    asked = [each for each in cluster.delivered if isinstance(each.message, Create)]
    cluster.run_until(lambda: awaited(machine) is not None, LONG_MS)
    assert awaited(machine) == Waiting(None, NO_SPACE, (Member("d", 0),))
    assert len([e for e in cluster.delivered if isinstance(e.message, Create)]) > len(asked)
    make_room(cluster, "d")
    assert len(cluster.record.ensemble) == 4
    assert awaited(machine) is None
