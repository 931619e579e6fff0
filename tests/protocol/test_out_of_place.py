"""What coordinators ignore; and impossible states, which stop a replica."""

from dataclasses import replace

import pytest

from protocol.cluster import Cluster
from protocol.harness import LEADER, chain, fenced_answer, follower, snapshot
from shardlog.protocol.coordination import Contract
from shardlog.protocol.effects import Limits, Received, Recovered
from shardlog.protocol.failures import ImpossibleState
from shardlog.protocol.history import OPEN_END, Span
from shardlog.protocol.messages import (
    Announce,
    BecameLeader,
    CannotServe,
    Committed,
    Fence,
    Prepared,
)
from shardlog.protocol.replica import Replica
from shardlog.protocol.states import Cause, Role, next_role
from shardlog.sim.seal import seal

LOG = chain([1, 1, 1])


# --- coordinators ------------------------------------------------------------------------------


def steady() -> Cluster:
    cluster = Cluster(operators=["op"])
    cluster.bring_up()
    return cluster


def in_prepare() -> Cluster:
    cluster = steady()
    cluster.hold = lambda each: isinstance(each.message, Prepared)
    cluster.command(Contract("c"))
    return cluster


def in_election() -> Cluster:
    """B was asked to lead, and has not confirmed yet."""
    cluster = steady()
    cluster.hold = lambda each: isinstance(each.message, BecameLeader)
    cluster.kill("a")
    cluster.run_until(lambda: bool(cluster.held), 5000)
    return cluster


def unchanged_by(cluster, src, message, shard=None):
    coordinator = cluster.coordinators["op"]
    before = snapshot(coordinator)
    envelope = replace(
        cluster.nodes[src].envelope(message, cluster.nodes[src].member), dst="op", dst_incarnation=0
    )
    envelope = replace(envelope, shard=shard or envelope.shard)
    effects = coordinator.step(cluster.now_ms, Received(envelope))
    return effects == [] and snapshot(coordinator) == before


@pytest.mark.parametrize(
    ("build", "src", "message"),
    [
        (in_election, "c", BecameLeader(2)),
        (in_election, "b", BecameLeader(1)),
        (in_election, "c", CannotServe(2, 0)),
        (in_election, "b", CannotServe(1, 0)),
        (steady, "c", CannotServe(1, 0)),
        (steady, "a", BecameLeader(1)),
        (steady, "a", Prepared(1, True)),
        (steady, "a", Committed(1)),
        (in_prepare, "b", Prepared(2, True)),
        (in_prepare, "a", Prepared(1, True)),
        (in_prepare, "a", Prepared(2, False)),
        (in_prepare, "a", Committed(2)),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_coordinator_ignores_what_is_out_of_place(build, src, message):
    assert unchanged_by(build(), src, message)


def test_a_coordinator_ignores_fence_answers_of_another_epoch():
    cluster = in_election()
    assert unchanged_by(cluster, "c", replace(fenced_answer("c", LOG), epoch=1))


def test_a_coordinator_ignores_another_shard():
    assert unchanged_by(in_prepare(), "a", Prepared(2, True), shard="other")


# --- impossible --------------------------------------------------------------------------------


def test_a_history_with_another_start_of_a_known_epoch_is_refused():
    node = follower(LOG)
    node.receive(Fence(2))
    message = Announce(2, (Span(1, 1), Span(2, 3)), 0, OPEN_END, 0, False, None)
    node.step(Received(node.envelope(message, LEADER)))
    assert node.replica.role is Role.FENCED


def test_a_commit_offset_beyond_the_log_is_impossible():
    node = follower(LOG)
    with pytest.raises(ImpossibleState, match="beyond the log"):
        node.replica.advance_commit(4)


def test_a_commit_offset_beyond_the_log_is_impossible_at_start_too():
    block = follower(LOG).disk.superblock
    assert block
    recovered = Recovered(replace(block, commit=9), 0, 0, (), ())
    with pytest.raises(ImpossibleState):
        Replica.restart("orders", "b", Limits(), seal, recovered)


def test_a_role_change_that_is_not_in_the_table_is_impossible():
    with pytest.raises(ImpossibleState, match="not legal"):
        next_role(Role.NOT_MEMBER, Cause.BECOME_LEADER)
