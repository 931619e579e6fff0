"""An old backup of the metadata, whose ensemble is not the one that is led now (rule 21)."""

import pytest

from protocol.cluster import Cluster
from shardlog.protocol.coordination import (
    Command,
    Contract,
    CoordinatorLimits,
    Expand,
    Promote,
    Rejected,
    Swap,
)
from shardlog.protocol.messages import Appended
from shardlog.protocol.shard import Shard, Status

LONG_MS = 4 * CoordinatorLimits().election_timeout_ms


def up() -> Cluster:
    cluster = Cluster("abcd", operators=["op"])
    cluster.bring_up("abc")
    return cluster


def changed(cluster: Cluster, command: Command) -> Shard:
    """Carry it out, and return the record from before."""
    old = cluster.record
    cluster.command(command)
    cluster.run(LONG_MS)
    assert cluster.record.ensemble != old.ensemble
    assert cluster.record.epoch > old.epoch
    return old


def written(cluster: Cluster) -> int:
    answer = cluster.append(cluster.register(), 1, b"written")
    assert isinstance(answer, Appended), answer
    return answer.base


def is_halted(cluster: Cluster) -> bool:
    return cluster.record.halted is not None


@pytest.mark.parametrize("command", [Swap("c", "d"), Expand("d")])
def test_rule_21_a_leader_of_members_that_the_record_does_not_know_halts_the_shard(command):
    cluster = up()
    old = changed(cluster, command)
    leader, epoch = cluster.leader(), cluster.record.epoch
    cluster.restore(old)
    cluster.run(LONG_MS)
    assert cluster.record.halted == f"{leader.name} leads another ensemble"
    assert (cluster.record.ensemble, cluster.record.epoch) == (old.ensemble, old.epoch)
    # Its leader serves on, and nobody takes that from it or wants anything of the shard.
    assert cluster.leader() is leader
    assert leader.replica.epoch == epoch
    written(cluster)
    refused = cluster.command(Contract("b"))
    assert isinstance(refused, Rejected)
    cluster.run(2 * LONG_MS)
    assert cluster.leader() is leader
    assert leader.replica.epoch == epoch


def test_rule_21_a_follower_of_a_leader_that_the_record_does_not_know_halts_the_shard():
    """Nobody asks that leader: the record does not name it.  Who follows it knows enough."""
    cluster = up()
    old = changed(cluster, Swap("c", "d"))
    cluster.command(Promote("d"))
    cluster.run(LONG_MS)
    leader = cluster.leader()
    assert leader.name == "d"
    epoch = leader.replica.epoch
    cluster.restore(old)
    cluster.run(LONG_MS)
    assert cluster.record.halted in (
        "a follows d, which is of another ensemble", "b follows d, which is of another ensemble",
    )  # fmt: skip
    cluster.run(LONG_MS)
    assert cluster.leader() is leader
    assert leader.replica.epoch == epoch
    written(cluster)


def test_rule_21_a_halt_is_over_when_the_right_record_is_back():
    cluster = up()
    old = changed(cluster, Swap("c", "d"))
    right = cluster.record
    cluster.restore(old)
    cluster.run(LONG_MS)
    assert is_halted(cluster)
    cluster.restore(right)
    cluster.run(LONG_MS)
    assert cluster.record.status is Status.STEADY
    assert not is_halted(cluster)
    written(cluster)


def test_rule_21_members_that_the_record_knows_contradict_nothing():
    """After a contraction the backup knows one member more: it is raised above the leader."""
    cluster = up()
    old = changed(cluster, Contract("c"))
    promised = cluster.record.epoch
    offset = written(cluster)
    cluster.restore(old)
    cluster.run(3 * LONG_MS)
    assert not is_halted(cluster)
    assert cluster.record.epoch > promised
    assert cluster.leader().disk.entries[offset].body == b"written"
    written(cluster)
