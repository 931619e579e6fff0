"""The end of a shard: written first, carried out by whoever finds it, and final."""

from dataclasses import replace

import pytest

from protocol.cluster import TICK_MS, Cluster
from shardlog.protocol.coordination import (
    Accepted,
    Commanded,
    CompareAndSwap,
    Contract,
    CoordinatorLimits,
    CreateShard,
    DeleteShard,
    Expand,
    Loaded,
    Promote,
    Rejected,
    Swapped,
    TrimShard,
)
from shardlog.protocol.coordinator import Coordinator
from shardlog.protocol.effects import Received, Send, Tick
from shardlog.protocol.entry import Member
from shardlog.protocol.failures import NoReplica, StaleEpoch
from shardlog.protocol.messages import (
    Create,
    Created,
    Destroy,
    Destroyed,
    Envelope,
    Fence,
    Message,
    Operation,
    Refused,
    StatusRequest,
)
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Joining, Shard, Status
from shardlog.protocol.states import Role

LIMITS = CoordinatorLimits()
LONG_MS = 4 * LIMITS.election_timeout_ms
A, B, C, D = (Member(node, 1) for node in "abcd")


def up(nodes: str = "abcd", operators: tuple[str, ...] = ("op",)) -> Cluster:
    cluster = Cluster(nodes, operators=operators)
    cluster.bring_up("abc")
    return cluster


def kinds(cluster: Cluster, start: int) -> set[type[Message]]:
    return {type(each.message) for each in cluster.delivered[start:]}


def test_every_replica_goes_and_then_the_record():
    cluster = up()
    assert isinstance(cluster.command(DeleteShard()), Accepted)
    assert cluster.record.status is Status.DELETING
    cluster.run(LONG_MS)
    assert cluster.store.record is None
    assert {node.replica.role for node in cluster.nodes.values()} == {Role.NOT_MEMBER}


def test_the_intent_is_written_before_anybody_is_told():
    cluster = up()
    before = len(cluster.lines)
    cluster.command(DeleteShard())
    cluster.run(LONG_MS)
    lines = cluster.lines[before:]
    told = next(number for number, line in enumerate(lines) if line.endswith(": Destroy"))
    gone = next(number for number, line in enumerate(lines) if line == "metadata: no record")
    last = max(number for number, line in enumerate(lines) if line.endswith(": Destroyed"))
    assert lines.index("metadata: DELETING 1") < told < last < gone


def test_a_replica_out_of_reach_holds_the_record():
    cluster = up()
    cluster.kill("c")
    cluster.command(DeleteShard())
    cluster.run(LONG_MS)
    assert cluster.record.status is Status.DELETING
    cluster.revive("c")
    cluster.run(LONG_MS)
    assert cluster.store.record is None
    assert cluster.nodes["c"].replica.role is Role.NOT_MEMBER


def test_nobody_elects_or_polls_meanwhile():
    cluster = up()
    cluster.kill("c")
    cluster.command(DeleteShard())
    before = len(cluster.delivered)
    cluster.run(LONG_MS)
    asked = kinds(cluster, before)
    assert Destroy in asked
    assert not asked & {Fence, StatusRequest, Create}


@pytest.mark.parametrize(
    "command",
    [Promote("b"), Contract("c"), Expand("d"), TrimShard(1), CreateShard(("a",), QuorumPolicy())],
)
def test_O6_other_commands_are_refused_meanwhile(command):
    cluster = up()
    cluster.kill("c")
    cluster.command(DeleteShard())
    answer = cluster.command(command)
    assert isinstance(answer, Rejected)
    assert answer.reason in ("the shard is being deleted", "the shard exists")


def test_asked_again_it_is_still_accepted():
    cluster = up()
    cluster.kill("c")
    cluster.command(DeleteShard())
    assert isinstance(cluster.command(DeleteShard()), Accepted)


def test_what_does_not_exist_cannot_be_deleted():
    cluster = Cluster("abc", operators=["op"])
    cluster.run(TICK_MS)
    answer = cluster.command(DeleteShard())
    assert isinstance(answer, Rejected)
    assert answer.reason == "there is no such shard"


def test_the_next_coordinator_goes_on():
    cluster = up(operators=("op", "other"))
    cluster.kill("c")
    cluster.command(DeleteShard())
    cluster.kill("op")
    cluster.revive("c")
    cluster.run(LONG_MS)
    assert cluster.store.record is None
    cluster.revive("op")
    cluster.run(LONG_MS)
    assert isinstance(cluster.command(CreateShard(("a", "b"), QuorumPolicy())), Accepted)


@pytest.mark.parametrize("late", [Created, Destroyed])
def test_a_shard_that_is_being_created_or_joined(late):
    """Replicas whose incarnation nobody has written down are found, and destroyed."""
    cluster = Cluster("abcd", operators=["op"])
    if late is Created:
        cluster.hold = lambda envelope: isinstance(envelope.message, Created)
        cluster.run(TICK_MS)
        cluster.command(CreateShard(("a", "b", "c"), QuorumPolicy()))
    else:
        cluster.bring_up("abc")
        cluster.hold = lambda envelope: isinstance(envelope.message, Created)
        cluster.command(Expand("d"))
    cluster.run(500)
    assert isinstance(cluster.command(DeleteShard()), Accepted)
    assert any(not member.incarnation for member in cluster.record.removed)
    cluster.run(LONG_MS)
    assert cluster.store.record is None
    assert {node.replica.role for node in cluster.nodes.values()} == {Role.NOT_MEMBER}


def test_a_name_is_free_again_and_starts_from_nothing():
    cluster = up()
    cluster.append(cluster.register(), 1, b"of the first life")
    cluster.command(DeleteShard())
    cluster.run(LONG_MS)
    cluster.chain.clear()
    cluster.voices.clear()
    cluster.bring_up("abc")
    assert cluster.record.epoch == 1
    assert cluster.leader().replica.log.end == 1


# --- a coordinator alone -------------------------------------------------------------------------

STEADY = Shard("s", Status.STEADY, 3, A, (A, B, C))
DELETING = Shard("s", Status.DELETING, 3, None, (A,), removed=(A, Member("d", 0)))


def holding(record: Shard, version: int = 7) -> Coordinator:
    c = Coordinator("op", "s", LIMITS)
    c.step(0, Loaded(version, record))
    return c


def told(c: Coordinator, now_ms: int) -> list[Member]:
    sent = [each.envelope for each in c.step(now_ms, Tick()) if isinstance(each, Send)]
    return [Member(each.dst, each.dst_incarnation) for each in sent]


def heard(c: Coordinator, node: str, message: Message) -> list[object]:
    return list(c.step(1, Received(Envelope("s", node, 0, "op", 0, message))))


def refused(incarnation: int, asked: int) -> Refused:
    return Refused("Destroy", 0, NoReplica(incarnation, asked))


def test_only_an_incarnation_that_stands_in_the_record_is_destroyed():
    c = holding(DELETING)
    assert told(c, 0) == [A, Member("d", 0)]
    heard(c, "d", refused(9, 0))
    effects = c.step(LIMITS.resend_ms, Tick())
    named = replace(DELETING, removed=(A, Member("d", 9)))
    assert effects == [CompareAndSwap(7, named)]
    c.step(LIMITS.resend_ms, Swapped(True, 8, named))
    assert told(c, 3 * LIMITS.resend_ms) == list(named.removed)


@pytest.mark.parametrize(
    ("refusal", "gone"),
    [
        pytest.param(refused(0, 1), True, id="no replica"),
        pytest.param(refused(5, 1), True, id="another one"),
        pytest.param(refused(0, 4), False, id="late, of an earlier one"),
        pytest.param(Refused("Destroy", 3, StaleEpoch(9)), False, id="another refusal"),
        pytest.param(Destroyed(1), True, id="destroyed"),
        pytest.param(Destroyed(4), False, id="an earlier one destroyed"),
    ],
)
def test_a_late_answer_does_not_count_for_another_incarnation(refusal, gone):
    c = holding(Shard("s", Status.DELETING, 3, None, (A,), removed=(A,)))
    told(c, 0)
    heard(c, "a", refusal)
    effects = c.step(LIMITS.resend_ms, Tick())
    assert (effects == [CompareAndSwap(7, None)]) is gone


def test_a_record_that_is_gone_is_read_again_before_it_is_believed():
    c = holding(STEADY)
    c.step(1, Loaded(0, None))
    assert [type(each).__name__ for each in c.step(2, Tick())] == ["Load"]
    c.step(3, Loaded(7, STEADY))
    assert c.record == STEADY
    c.step(4, Loaded(0, None))
    c.step(5, Loaded(0, None))
    assert c.version == 0
    assert c.step(6, Tick()) == []


def test_a_write_that_finds_no_record():
    c = holding(STEADY)
    started = c.step(1, Tick())
    assert started
    c.write(STEADY)
    c.step(2, Swapped(False, 0, None))
    assert (c.writing, c.version) == (False, -1)


def test_a_joining_node_and_a_change_are_on_the_list():
    joining = Shard(
        "s", Status.STEADY, 3, A, (A, B), joining=Joining(Operation.EXPAND, None, "d", 0),
        removed=(C,),
    )  # fmt: skip
    c = holding(joining)
    effects = c.step(1, Commanded(1, DeleteShard()))
    assert isinstance(effects[0], CompareAndSwap)
    assert effects[0].shard is not None
    assert effects[0].shard.removed == (A, B, C, Member("d", 0))
