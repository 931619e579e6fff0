"""An illegal event gets a typed refusal and changes nothing."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from protocol.harness import (
    CLIENT,
    LEADER,
    Node,
    acked,
    chain,
    chain_under,
    entries,
    fenced,
    fenced_answer,
    follower,
    history_of,
    lead_of,
    leading,
    refusal,
    restarted,
    sent,
    session_at,
    snapshot,
)
from shardlog.protocol.effects import Limits, ReadFailed, Received, Send, Synced
from shardlog.protocol.entry import Member
from shardlog.protocol.failures import (
    BelowCommit,
    DifferentEntry,
    DivergenceMismatch,
    Illegal,
    LostDisk,
    NoReplica,
    NotLeader,
    NotReady,
    OffsetGap,
    OffsetTrimmed,
    Overloaded,
    Refusal,
    ReplyForgotten,
    RequestGap,
    SessionUnknown,
    StaleEpoch,
    StandbyLagging,
    UnknownMember,
    WrongParent,
    WrongRole,
    WrongShard,
)
from shardlog.protocol.history import Span
from shardlog.protocol.log import Mark
from shardlog.protocol.messages import (
    Abort,
    Ack,
    AddFollower,
    Announce,
    Append,
    BecomeLeader,
    Commit,
    Created,
    Entries,
    Fence,
    Fetched,
    Heartbeat,
    InstallSnapshot,
    Kept,
    Message,
    Operation,
    PauseWrites,
    Prepare,
    Progress,
    Read,
    Reconfiguration,
    Refused,
    Register,
    Snapshot,
    SnapshotOffer,
    SnapshotRequest,
    Trim,
)
from shardlog.protocol.quorum import QuorumPolicy

A, B, C, D = (Member(node, 1) for node in "abcd")
ABC = (A, B, C)
STRANGER = Member("x", 1)
CONTRACT = Reconfiguration(Operation.CONTRACT, ABC, B, None)
SWAP = Reconfiguration(Operation.SWAP, ABC, C, D)
LIMITS = Limits(replies_max=1, appends_inflight_max=2, standby_lag_entries_max=0)
LOG = chain_under(LIMITS, [1, 1, 1])
SNAPSHOT = Snapshot(LEADER, history_of(LOG), 1, LOG[0].checksum, 3, LOG[2].checksum, ())


def _session() -> int:
    node = leading(LOG, limits=LIMITS)
    node.receive(Register(1), CLIENT)
    return session_at(node, 4)


SESSION = _session()


# --- replicas in each state --------------------------------------------------------------------


def none() -> Node:
    return Node("b")


def fenced_with_log() -> Node:
    """Fenced at 2, committed up to 2."""
    node = follower(LOG, commit=2)
    node.receive(Fence(2))
    return node


def following() -> Node:
    """Follows A in epoch 1, committed up to 2."""
    return follower(LOG, commit=2)


def syncing() -> Node:
    node = fenced("d")
    node.receive(InstallSnapshot(1, SNAPSHOT))
    return node


def repairing() -> Node:
    """Leads, but is not whole yet."""
    node = restarted("a", LOG, bad={1: Mark.CORRUPT})
    node.receive(Fence(2))
    node.receive(to_lead(2))
    return node


def serving() -> Node:
    """A leads epoch 2 over B and C; SESSION has made two requests; D is a lagging standby."""
    node = leading(LOG, limits=LIMITS)
    node.receive(AddFollower(2, fenced_answer("d", LOG), standby=True))
    node.receive(Progress(2, 3), D)
    acked(node, "b", 4)
    node.receive(Register(1), CLIENT)
    node.receive(append(1), CLIENT)
    acked(node, "b", 6)
    node.receive(append(2), CLIENT)
    acked(node, "b", 7)
    return node


def stepped_down() -> Node:
    node = serving()
    node.receive(Refused("Heartbeat", 3, StaleEpoch(3)), B)
    return node


def preparing() -> Node:
    """B, which is to leave, alone holds with A what is committed: not covered."""
    node = serving()
    node.receive(Prepare(3, CONTRACT))
    assert not lead_of(node).covered
    return node


def crowded() -> Node:
    node = serving()
    node.receive(append(3), CLIENT)
    node.receive(append(4), CLIENT)
    return node


def paused() -> Node:
    node = serving()
    node.receive(PauseWrites(2, C))
    return node


def trimmed() -> Node:
    node = serving()
    node.receive(Trim(2, 3))
    assert node.replica.log.first == 3
    return node


def with_lost_follower() -> Node:
    node = serving()
    beat = max(each.beat for each in sent(node.tick(60), Heartbeat))
    acked(node, "b", 3, beat)
    return node


def append(request, session=SESSION, count=1):
    return Append(session, request, count, b"x", 1)


def to_lead(epoch, kept=LOG):
    keep = Kept(history_of(kept), len(kept), kept[-1].checksum)
    return BecomeLeader(epoch, ABC, QuorumPolicy(), keep, (B, C), ())


NEXT = (Span(1, 0), Span(2, 3))


def announced(epoch=2, history=NEXT, cut=3):
    return Announce(epoch, history, 0, cut, 0, False, None)


def fed(headers, epoch=1):
    return Entries(epoch, entries(headers), 2, 0)


OTHER_BODY = chain([1], start=1, parent=LOG[0].checksum, body=b"other")
OTHER_PARENT = chain([1, 1, 1, 1], body=b"other")[3:]
OP = "op"

ILLEGAL: dict[str, tuple[Callable[[], Node], Message, Member | str, type[Refusal]]] = {
    # who is meant
    "fence without a replica": (none, Fence(1), OP, NoReplica),
    "append without a replica": (none, append(1), CLIENT, NoReplica),
    "a message for coordinators": (fenced, Created(1), OP, Illegal),
    # fences
    "stale fence": (fenced_with_log, Fence(1), OP, StaleEpoch),
    "fence of the same epoch while following": (following, Fence(1), OP, WrongRole),
    "fence of the same epoch while leading": (serving, Fence(2), OP, WrongRole),
    # announcements
    "stale announcement": (fenced_with_log, announced(epoch=1), LEADER, StaleEpoch),
    "another voice in the same epoch": (following, announced(epoch=1), STRANGER, WrongRole),
    "announced to the leader itself": (serving, announced(), STRANGER, WrongRole),
    "announced divergence too high": (
        fenced_with_log,
        announced(history=(Span(1, 0), Span(2, 2))),
        LEADER,
        DivergenceMismatch,
    ),
    "announced divergence too low": (fenced_with_log, announced(cut=2), LEADER, DivergenceMismatch),
    "announced below commit": (
        fenced_with_log,
        announced(history=(Span(1, 0), Span(2, 1)), cut=1),
        LEADER,
        BelowCommit,
    ),
    "announced without a snapshot while syncing": (
        syncing,
        announced(epoch=1, history=history_of(LOG), cut=1),
        LEADER,
        NotReady,
    ),
    # entries
    "stale entries": (fenced_with_log, fed(LOG), LEADER, StaleEpoch),
    "entries of an epoch not announced": (following, fed(LOG, epoch=2), LEADER, WrongRole),
    "entries from another than the leader": (following, fed(LOG), STRANGER, Illegal),
    "entries to the leader": (serving, fed(LOG, epoch=2), STRANGER, WrongRole),
    "a gap": (following, fed(chain([1] * 5)[4:]), LEADER, OffsetGap),
    "a wrong parent": (following, fed(OTHER_PARENT), LEADER, WrongParent),
    "the same offset with another body": (following, fed(OTHER_BODY), LEADER, DifferentEntry),
    "a stale heartbeat": (fenced_with_log, Heartbeat(1, 3, 0, 1, True), LEADER, StaleEpoch),
    "a heartbeat from another": (following, Heartbeat(1, 3, 0, 1, True), STRANGER, Illegal),
    # becoming leader
    "stale BecomeLeader": (fenced_with_log, to_lead(1), OP, StaleEpoch),
    "BecomeLeader of a higher epoch": (fenced_with_log, to_lead(3), OP, WrongRole),
    "BecomeLeader while following": (following, to_lead(1), OP, WrongRole),
    "BecomeLeader twice": (stepped_down, to_lead(2), OP, WrongRole),
    "BecomeLeader while syncing": (syncing, to_lead(1), OP, WrongRole),
    "BecomeLeader below commit": (fenced_with_log, to_lead(2, LOG[:1]), OP, BelowCommit),
    # followers
    "AddFollower to one that does not lead": (
        following,
        AddFollower(1, fenced_answer("c", LOG), False),
        OP,
        WrongRole,
    ),
    "stale AddFollower": (serving, AddFollower(1, fenced_answer("c", LOG), False), OP, StaleEpoch),
    "AddFollower of a stranger": (
        serving,
        AddFollower(2, fenced_answer("x", LOG), False),
        OP,
        UnknownMember,
    ),
    "AddFollower of one that is ahead": (
        serving,
        AddFollower(2, replace(fenced_answer("c", LOG), commit=99), False),
        OP,
        BelowCommit,
    ),
    "AddFollower of a lost disk": (
        with_lost_follower,
        AddFollower(2, fenced_answer("b", LOG), False),
        OP,
        LostDisk,
    ),
    # reconfigurations
    "Prepare to one that does not lead": (following, Prepare(2, CONTRACT), OP, WrongRole),
    "stale Prepare": (serving, Prepare(1, CONTRACT), OP, StaleEpoch),
    "Prepare in the same epoch": (serving, Prepare(2, CONTRACT), OP, StaleEpoch),
    "Prepare of the leader's own removal": (
        serving,
        Prepare(3, Reconfiguration(Operation.CONTRACT, ABC, A, None)),
        OP,
        Illegal,
    ),
    "Prepare of another ensemble": (
        serving,
        Prepare(3, Reconfiguration(Operation.CONTRACT, (A, C), C, None)),
        OP,
        NotReady,
    ),
    "Prepare of a second change": (preparing, Prepare(4, SWAP), OP, NotReady),
    "Prepare before the tenure has committed": (
        lambda: leading(LOG),
        Prepare(3, CONTRACT),
        OP,
        NotReady,
    ),
    "Prepare of a node that is no standby": (
        serving,
        Prepare(3, Reconfiguration(Operation.EXPAND, ABC, None, STRANGER)),
        OP,
        NotReady,
    ),
    "Prepare of a lagging standby": (serving, Prepare(3, SWAP), OP, StandbyLagging),
    "Commit to one that does not lead": (following, Commit(1, CONTRACT), OP, WrongRole),
    "Commit not prepared": (serving, Commit(2, CONTRACT), OP, NotReady),
    "Commit not covered": (preparing, Commit(3, CONTRACT), OP, NotReady),
    "Commit of another change": (preparing, Commit(3, SWAP), OP, NotReady),
    "stale Commit": (preparing, Commit(2, CONTRACT), OP, StaleEpoch),
    "Abort to one that does not lead": (following, Abort(2, ABC), OP, WrongRole),
    "stale Abort": (preparing, Abort(2, ABC), OP, StaleEpoch),
    "Abort to another ensemble": (preparing, Abort(4, (A, B)), OP, Illegal),
    "PauseWrites to one that does not lead": (following, PauseWrites(1, C), OP, WrongRole),
    "stale PauseWrites": (serving, PauseWrites(1, C), OP, StaleEpoch),
    # snapshots and trimming
    "SnapshotRequest to one that does not lead": (following, SnapshotRequest(1), OP, WrongRole),
    "stale SnapshotRequest": (serving, SnapshotRequest(1), OP, StaleEpoch),
    "stale InstallSnapshot": (fenced_with_log, InstallSnapshot(1, SNAPSHOT), OP, StaleEpoch),
    "InstallSnapshot while leading": (serving, InstallSnapshot(2, SNAPSHOT), OP, WrongRole),
    "Trim while fenced": (fenced_with_log, Trim(2, 1), OP, WrongRole),
    "stale Trim": (serving, Trim(1, 1), OP, StaleEpoch),
    # clients
    "Register to a follower": (following, Register(9), CLIENT, NotLeader),
    "Append to a follower": (following, append(1), CLIENT, NotLeader),
    "Read from a follower": (following, Read(9, 0, 1), CLIENT, NotLeader),
    "Append while repairing": (repairing, append(1), CLIENT, NotReady),
    "Append while paused": (paused, append(3), CLIENT, NotReady),
    "Append of an empty batch": (serving, append(3, count=0), CLIENT, Illegal),
    "Append of an unknown session": (serving, append(1, session=3), CLIENT, SessionUnknown),
    "Append with a gap": (serving, append(4), CLIENT, RequestGap),
    "Append of a forgotten request": (serving, append(1), CLIENT, ReplyForgotten),
    "Append of request 0": (serving, append(0), CLIENT, ReplyForgotten),
    "Append too many": (crowded, append(5), CLIENT, Overloaded),
    "Register without a nonce": (serving, Register(0), CLIENT, Illegal),
    "Register too many": (crowded, Register(9), CLIENT, Overloaded),
    "Read below the first offset": (trimmed, Read(9, 0, 1), CLIENT, OffsetTrimmed),
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_message_is_refused_and_changes_nothing(name):
    build, message, src, expected = ILLEGAL[name]
    node = build()
    before = snapshot(node.replica)
    effects = node.step(Received(node.envelope(message, src)))
    assert type(refusal(effects)) is expected
    assert all(isinstance(each, Send) for each in effects)
    assert node.replica.at_odds == (expected in (DifferentEntry, WrongParent))
    node.replica.at_odds = False
    assert snapshot(node.replica) == before


@pytest.mark.parametrize(
    ("change", "expected"),
    [({"shard": "other"}, WrongShard), ({"dst_incarnation": 9}, NoReplica)],
    ids=["another shard", "another incarnation"],
)
@pytest.mark.parametrize("build", [fenced_with_log, following, serving])
def test_a_message_for_somebody_else_is_refused_and_changes_nothing(build, change, expected):
    node = build()
    before = snapshot(node.replica)
    envelope = replace(node.envelope(Fence(9)), **change)
    assert type(refusal(node.step(Received(envelope)))) is expected
    assert snapshot(node.replica) == before


def received(message, src):
    return lambda node: Received(node.envelope(message, src))


IGNORED = {
    "a stranger's ack": (serving, received(Ack(2, 7, 7, 0), STRANGER)),
    "another incarnation's ack": (serving, received(Ack(2, 7, 7, 0), Member("c", 9))),
    "an ack of an earlier epoch": (serving, received(Ack(1, 7, 7, 0), C)),
    "an ack of a later epoch": (serving, received(Ack(3, 7, 7, 0), C)),
    "an ack of more than there is": (serving, received(Ack(2, 99, 99, 0), C)),
    "progress beyond the log": (serving, received(Progress(2, 99), D)),
    "an ack to a follower": (following, received(Ack(1, 3, 3, 0), C)),
    "a lost disk's ack": (with_lost_follower, received(Ack(2, 7, 7, 0), B)),
    "a stranger's progress": (serving, received(Progress(2, 7), STRANGER)),
    "a stranger's position": (serving, received(fenced_answer("x", LOG), STRANGER)),
    "another's position": (serving, received(fenced_answer("c", LOG), B)),
    "a position of an earlier epoch": (serving, received(fenced_answer("c", LOG, 1), C)),
    "a stranger's refusal": (serving, received(Refused("Entries", 2, OffsetGap(3)), STRANGER)),
    "a refusal that tells nothing new": (
        serving,
        received(Refused("Heartbeat", 2, StaleEpoch(2)), B),
    ),
    "a refusal to a follower": (following, received(Refused("Fence", 9, StaleEpoch(9)), B)),
    "entries fetched in an earlier epoch": (repairing, received(Fetched(1, entries(LOG[1:2])), B)),
    "entries that nobody fetches": (fenced_with_log, received(Fetched(2, entries(LOG)), LEADER)),
    "a snapshot that nobody asked for": (
        following,
        received(SnapshotOffer(1, SNAPSHOT), LEADER),
    ),
    "a sync that nobody awaits": (serving, lambda node: Synced(0)),
    "a failed read of what is not there": (following, lambda node: ReadFailed(99)),
    "a failed read without a replica": (none, lambda node: ReadFailed(0)),
}


@pytest.mark.parametrize("name", IGNORED)
def test_an_answer_out_of_place_is_ignored(name):
    build, event = IGNORED[name]
    node = build()
    before = snapshot(node.replica)
    assert node.step(event(node)) == []
    assert snapshot(node.replica) == before


def test_no_refusal_is_answered_by_a_refusal():
    answers = (Refused("Fence", 9, StaleEpoch(9)), fenced_answer("c", LOG), Ack(9, 0, 0, 0))
    for build in (none, fenced, following, serving):
        for answer in answers:
            node = build()
            envelope = replace(node.envelope(answer, STRANGER), dst_incarnation=77)
            assert node.step(Received(envelope)) == []
