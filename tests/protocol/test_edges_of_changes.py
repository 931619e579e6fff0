"""Standbys that started over or were cancelled, replicas in doubt, late refusals, stranded waiters.

Each was found by an audit, on the machines; the ids H4_n are those of its report.
"""

from dataclasses import replace

import pytest

from protocol.cluster import Cluster
from protocol.harness import (
    CLIENT,
    MAJORITY,
    Node,
    acked,
    chain,
    fenced,
    fenced_answer,
    history_of,
    lead_of,
    leading,
    only,
    restarted,
    sent,
)
from shardlog.protocol.choice import Decision, Waiting, decide
from shardlog.protocol.coordination import AbortChange, Expand, Promote
from shardlog.protocol.effects import Limits
from shardlog.protocol.entry import Header, Kind, Member, sealed, unreadable
from shardlog.protocol.failures import NoReplica
from shardlog.protocol.history import Span
from shardlog.protocol.log import Mark
from shardlog.protocol.messages import (
    AddFollower,
    Announce,
    Append,
    Appended,
    BecameLeader,
    BecomeLeader,
    Destroy,
    Entries,
    Envelope,
    Fence,
    Fetched,
    InstallSnapshot,
    Kept,
    Prepare,
    Refused,
    Snapshot,
    StatusReport,
    Trim,
)
from shardlog.protocol.states import Role
from shardlog.sim.seal import seal, seal_body

LONG_MS = 6000


def appended(cluster: Cluster, session: int, first: int, count: int) -> None:
    for request in range(first, first + count):
        assert isinstance(cluster.append(session, request), Appended)


def test_V7_H4_5_a_standby_that_had_to_start_over_is_promoted():
    cluster = Cluster("abcd", operators=["op"], limits=Limits(headers_kept=8))
    leader = cluster.bring_up("abc")
    session = cluster.register()
    appended(cluster, session, 1, 20)
    cluster.hold = lambda e: e.dst == "d" and isinstance(e.message, Entries)
    cluster.command(Expand("d"))
    new = cluster.nodes["d"]
    cluster.run_until(lambda: new.replica.role is Role.STANDBY, LONG_MS)
    appended(cluster, session, 21, 20)
    cluster.run(200)
    cluster.tell(leader.name, Trim(leader.replica.epoch, leader.replica.commit - 2))
    assert leader.replica.log.first > new.replica.log.end
    cluster.held.clear()
    cluster.hold = lambda e: False
    incarnation = new.replica.incarnation
    cluster.run_until(lambda: len(cluster.record.ensemble) == 4, LONG_MS)
    assert new.replica.incarnation == incarnation


def test_H4_8_a_cancelled_standby_leaves_no_cursor():
    cluster = Cluster("abcd", operators=["op"])
    leader = cluster.bring_up("abc")
    cluster.hold = lambda e: isinstance(e.message, Prepare)
    cluster.command(Expand("d"))
    cluster.run_until(lambda: cluster.nodes["d"].member in lead_of(leader).cursors, LONG_MS)
    cluster.command(AbortChange())
    cluster.hold = lambda e: False
    cluster.run(LONG_MS)
    assert cluster.nodes["d"].replica.role is Role.NOT_MEMBER
    assert [each.node for each in lead_of(leader).cursors] == ["b", "c"]
    assert lead_of(leader).resting


def test_rule_15_H4_6_a_follower_whose_tail_is_in_doubt_is_no_lost_disk():
    """A Relaxed shard lost power there: what it acknowledged last may be gone, and it says so."""
    cluster = Cluster("abc", operators=["op"])
    cluster.bring_up("abc")
    appended(cluster, cluster.register(), 1, 10)
    cluster.run(1000)
    follower = next(each for each in cluster.nodes.values() if each is not cluster.leader())
    before, kept = follower.replica.log.end, 8
    assert before > kept
    cluster.kill(follower.name)
    disk = follower.disk
    for base in [base for base in disk.entries if base >= kept]:
        del disk.entries[base]
    disk.ridden_commit = min(disk.ridden_commit, kept)
    assert disk.superblock
    commit = min(disk.superblock.commit, kept)
    disk.superblock = replace(disk.superblock, in_doubt=100, commit=commit)
    # Heartbeats are echoed long before the first entry comes.
    cluster.hold = lambda e: e.dst == follower.name and isinstance(e.message, Entries | Fetched)
    member = follower.member
    cluster.revive(follower.name)
    cluster.run(500)
    cluster.release()
    cluster.run(LONG_MS)
    assert not [each for each in cluster.delivered if isinstance(each.message, Destroy)]
    assert follower.replica.member == member
    assert (follower.replica.role, follower.replica.log.end) == (Role.FOLLOWER, before)
    assert follower.replica.in_doubt == 0


def rolled_back(node: Node, end: int) -> None:
    """Its volume comes back from an old copy, with the identity that it had."""
    disk = node.disk
    for base in [base for base in disk.entries if base >= end]:
        del disk.entries[base]
    disk.ridden_commit = min(disk.ridden_commit, end)
    assert disk.superblock
    disk.superblock = replace(disk.superblock, commit=min(disk.superblock.commit, end))


@pytest.mark.parametrize("away", [True, False])
def test_T5_rule_15_H4_6_nothing_is_destroyed_that_the_others_do_not_hold(away):
    """b has less than it acknowledged, c has been away: what b still has is the second copy."""
    cluster = Cluster("abc", operators=["op"])
    assert cluster.bring_up("abc").name == "a"
    session = cluster.register()
    appended(cluster, session, 1, 3)
    cluster.run(200)
    if away:
        cluster.kill("c")
    appended(cluster, session, 4, 7)
    cluster.run(1000)
    b = cluster.nodes["b"]
    member = b.member
    cluster.kill("b")
    rolled_back(b, 8)
    # Heartbeats are echoed before the first entry comes: so the leader learns of it.
    cluster.hold = lambda e: e.dst == "b" and isinstance(e.message, Entries | Fetched)
    cluster.revive("b")
    cluster.run(300)
    cluster.release()
    cluster.run(LONG_MS)
    destroyed = [each for each in cluster.delivered if isinstance(each.message, Destroy)]
    assert bool(destroyed) is not away
    assert (b.member == member) is away
    assert b.replica.log.end == cluster.leader().replica.log.end
    appended(cluster, session, 11, 1)


def test_rule_13_what_a_follower_cannot_read_any_more_does_not_count():
    """Its acknowledgement stands, but of what it may hold nothing is committed."""
    log = chain([1, 1, 1])
    leader = leading(log, names="abcde", silent="de")
    epoch = leader.replica.epoch
    end = leader.replica.log.end
    acked(leader, "b", end, beat=1)
    cursor = lead_of(leader).cursors[Member("b", 1)]
    assert cursor.acked == end
    again = restarted("b", log, bad={2: Mark.FAULT})
    again.receive(Fence(epoch))
    leader.receive(AddFollower(epoch, again.answer(), standby=False))
    assert cursor.acked == 2
    acked(leader, "c", end, beat=1)
    assert leader.replica.commit == 0


def late_refusals(cluster: Cluster, name: str, asked: int) -> None:
    """As of an earlier incarnation, more often than it takes to be believed."""
    for _ in range(5):
        refused = Refused("StatusRequest", 0, NoReplica(0, asked))
        cluster._send(Envelope("orders", name, 0, "op", 0, refused))
    cluster.settle()


def test_rule_12_H4_7_late_refusals_of_an_earlier_incarnation_destroy_nobody():
    cluster = Cluster("abc", operators=["op"])
    cluster.bring_up("abc")
    name = next(each.node for each in cluster.record.ensemble if each != cluster.record.leader)
    earlier = cluster.nodes[name].member
    cluster.kill(name)
    cluster.wipe(name)
    cluster.revive(name)
    cluster.run(LONG_MS)
    member = cluster.nodes[name].member
    assert member in cluster.record.ensemble
    assert member != earlier
    written = len(cluster.records)
    cluster.hold = lambda e: e.src == name and isinstance(e.message, StatusReport)
    late_refusals(cluster, name, earlier.incarnation)
    cluster.run(200)
    cluster.release()
    cluster.run(LONG_MS)
    assert cluster.nodes[name].member == member
    assert not cluster.records[written:], "nobody was even suspected"


def test_rule_12_a_false_alarm_changes_nothing():
    """Its volume was away for a moment: the refusals were true, and the replica is there again."""
    cluster = Cluster("abc", operators=["op"])
    cluster.bring_up("abc")
    name = next(each.node for each in cluster.record.ensemble if each != cluster.record.leader)
    member = cluster.nodes[name].member
    cluster.hold = lambda e: e.src == name and isinstance(e.message, StatusReport)
    late_refusals(cluster, name, member.incarnation)
    cluster.run(100)
    assert any(each.joining for each in cluster.records)
    cluster.release()
    cluster.run(LONG_MS)
    assert cluster.nodes[name].member == member
    assert not [each for each in cluster.delivered if isinstance(each.message, Destroy)]
    assert cluster.record.joining is None


def test_rule_12_one_refusal_alone_proves_nothing():
    cluster = Cluster("abc", operators=["op"])
    cluster.bring_up("abc")
    name = next(each.node for each in cluster.record.ensemble if each != cluster.record.leader)
    cluster.hold = lambda e: e.src == name and isinstance(e.message, StatusReport)
    refused = Refused("StatusRequest", 0, NoReplica(0, cluster.nodes[name].member.incarnation))
    cluster._send(Envelope("orders", name, 0, "op", 0, refused))
    cluster.run(500)
    assert not any(each.joining for each in cluster.records)


def log_with_a_request() -> list[Header]:
    found: list[Header] = []
    for kind, session, request in (
        (Kind.EPOCH_START, 0, 0),
        (Kind.REGISTER, 0, 0),
        (Kind.DATA, 1, 1),
    ):
        parent = found[-1].checksum if found else 0
        body = seal_body(b"x") if kind is Kind.DATA else 0
        found.append(sealed(seal, 1, len(found), 1, kind, session, request, 0, parent, body))
    return found


def test_rule_18_H4_9_a_commit_that_a_syncing_follower_tells_of_answers_who_waits():
    log = log_with_a_request()
    leader = leading(log, silent="bc")
    assert not sent(leader.receive(Append(1, 1, 1, b"x", seal_body(b"x")), CLIENT), Appended)
    head = log[-1].checksum
    snapshot = Snapshot(Member("a", 1), history_of(log), 3, head, 4, 5, ())
    new = fenced("b", epoch=1)
    new.receive(InstallSnapshot(1, snapshot))
    new.receive(Fence(2))
    answer = new.answer()
    assert (answer.syncing, answer.commit) == (True, 3)
    effects = leader.receive(AddFollower(2, answer, standby=False))
    assert leader.replica.commit == 3
    assert [each.base for each in sent(effects, Appended)] == [2]
    assert not lead_of(leader).waiters


def test_rule_13_H4_16_a_new_leader_ends_the_doubt_of_its_own_tail():
    """It is elected with a log that ends where its unreadable tail begins."""
    log = chain([1, 1, 1])
    node = restarted("a", log, bad={2: Mark.FAULT})
    assert node.disk.superblock
    node.disk.superblock = replace(node.disk.superblock, in_doubt=3)
    node.restart()
    assert node.replica.log.open_tail
    node.receive(Fence(2))
    follower = fenced_answer("b", log[:2])
    ensemble = tuple(Member(name, 1) for name in "abc")
    kept = Kept(history_of(log[:2]), 2, log[1].checksum)
    node.receive(BecomeLeader(2, ensemble, MAJORITY, kept, (follower.member,), (follower,)))
    assert lead_of(node).serving
    node.restart()
    assert (node.replica.in_doubt, node.replica.log.open_tail) == (0, False)


def test_rule_13_V9_H5_2_3_a_tail_in_doubt_stays_so_when_the_log_is_started_over():
    log = chain([1] * 6)
    bad = dict.fromkeys((3, 4, 5), Mark.FAULT)
    node = restarted("b", log, commit=2, bad=bad)
    slots = node.replica.log.tail_slots
    assert slots == 3
    node.receive(Fence(2))
    boundary = log[3].checksum
    snapshot = Snapshot(Member("a", 1), history_of(log), 4, boundary, 4, boundary, ())
    history = (*history_of(log), Span(3, 6))
    announce = Announce(3, history, 6, 4, 4, False, snapshot)
    node.receive(announce, Member("a", 1))
    assert (node.replica.log.open_tail, node.replica.in_doubt) == (True, slots)


def test_rule_13_H4_14_a_leader_does_not_ask_for_what_a_follower_has_trimmed():
    """It is behind with its commit offset, and what it cannot read there nobody else keeps."""
    log = chain([1] * 12)
    node = restarted("a", log, commit=5, bad={6: Mark.CORRUPT})
    node.receive(Fence(2))
    trimmed = fenced_answer("b", log[:10])
    trimmed = replace(trimmed, first=8, commit=10, slots=())
    answers = {node.member: node.answer(), trimmed.member: trimmed}
    ensemble = tuple(Member(name, 1) for name in "abc")
    decision = decide(answers, (ensemble,), MAJORITY)
    assert isinstance(decision, Decision)
    assert decision.leader == node.member
    message = BecomeLeader(2, ensemble, MAJORITY, decision.kept, decision.sources, (trimmed,))
    node.receive(message)
    assert node.replica.commit == 8
    assert lead_of(node).serving


@pytest.mark.parametrize("end", [6, 10])
def test_V9_H4_15_nobody_leads_who_lacks_what_all_others_have_trimmed(end):
    """b starts over at 8 and is not through.  What c lacks below can only come from a, which is
    down; if c reaches further than b, which a quorum that took part in the trim does, c leads."""
    log = chain([1] * 12)
    started_over = replace(
        fenced_answer("b", log[:9]), first=8, commit=8, slots=(), syncing=True, head=0
    )
    other = fenced_answer("c", log[:end])
    answers = {each.member: each for each in (started_over, other)}
    ensemble = tuple(Member(name, 1) for name in "abc")
    decision = decide(answers, (ensemble,), MAJORITY)
    if end == 10:
        assert isinstance(decision, Decision)
        assert (decision.leader.node, decision.kept.end) == ("c", 10)
    else:
        assert isinstance(decision, Waiting)
        assert [each.node for each in decision.members] == ["a", "b"]


def test_T13_H4_14_those_in_reach_who_failed_to_lead_are_tried_again_in_turn():
    """c is away for good.  b has the longest log and never leads; a has failed once."""
    cluster = Cluster("abc", operators=["op"])
    cluster.bring_up("abc")
    session = cluster.register()
    cluster.command(Promote("b"))
    cluster.run_until(lambda: cluster.record.leader is not None and cluster.led_by == "b", LONG_MS)
    cluster.run(500)
    cluster.kill("c")
    cluster.cut.add(("b", "a"))
    assert cluster.append(session, 1) is None
    cluster.kill("b")
    cluster.cut.clear()
    failing = ["a", "b"]
    cluster.hold = lambda e: e.dst in failing and isinstance(e.message, BecomeLeader)
    cluster.revive("b")
    cluster.run_until(lambda: {each.dst for each in cluster.held} == {"a", "b"}, 3 * LONG_MS)
    failing.remove("a")
    cluster.run_until(lambda: cluster.record.leader is not None, 3 * LONG_MS)
    assert cluster.led_by == "a"
    assert cluster.leader().replica.log.end == cluster.nodes["b"].replica.log.end


def test_rule_23_H4_4_a_leader_that_has_what_was_given_up_says_so():
    leader = restarted("a", chain([1, 1, 1]))
    leader.receive(Fence(2))
    answer = fenced_answer("b", chain([1, 1, 1]), 2)
    kept = Kept(history_of(chain([1, 1, 1])), 3, leader.replica.log.head_checksum)
    members = tuple(Member(name, 1) for name in "abc")
    lost = unreadable(1, 2, 0)
    asked = BecomeLeader(2, members, MAJORITY, kept, (answer.member,), (answer,), (lost,))
    effects = leader.receive(asked)
    assert only(effects, BecameLeader).needless == (lost.id,)
