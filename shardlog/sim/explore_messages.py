"""Messages in flight: which stay, which go, and which need not wait.

Nothing is ever lost on purpose.  A message that is not delivered is as good as lost, so a state
with more messages in flight can do whatever one with fewer can.  That is why a delivery without
any effect is not a transition at all, and why requests may stay in flight after they were
delivered: their senders repeat them until they are answered, so every repetition and every
duplicate is explored without a clock.

A message is *dead* if delivering it can have no effect, now or ever.  Epochs only rise, also
through a crash, since everything that a step promised is durable when it ends; so a message that
its receiver's epoch has passed stays dead.  All that is left of it is the refusal that makes an
old leader step down, which is explored without `Reduction.REFUSALS` only.

A message is *urgent* if delivering it at once loses nothing, because the state after it can do
whatever the state before it could, and owes more.  Each case is argued where it stands.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Flag, IntEnum, auto
from typing import NamedTuple

from shardlog.protocol.coordinator import Coordinator
from shardlog.protocol.failures import DivergenceMismatch, NoReplica, OffsetGap
from shardlog.protocol.history import last_epoch
from shardlog.protocol.messages import (
    Aborted,
    Ack,
    AddFollower,
    Announce,
    BecameLeader,
    BecomeLeader,
    Committed,
    Create,
    Created,
    Destroy,
    Destroyed,
    Entries,
    Envelope,
    Fence,
    FenceAnswer,
    Fetch,
    FollowerAdded,
    Message,
    Prepared,
    Progress,
    Refused,
    SnapshotInstalled,
    SnapshotOffer,
)
from shardlog.protocol.replica import Replica
from shardlog.protocol.shard import Phase, Status
from shardlog.protocol.states import Role


class Reduction(Flag):
    """What a world leaves out that makes no difference to it.  Each can be had by itself.

    Tests compare worlds with and without each of them (docs/decisions/0029).
    """

    NONE = 0
    """Only what is dead beyond doubt."""
    SYMMETRY = auto()
    """States that differ by an exchange of names are one (`explore_symmetry`)."""
    COMMITS = auto()
    """Followers learn no commit offset: it decides nothing, and what they would call committed is
    checked all the same."""
    REFUSALS = auto()
    """Refusals are not heeded: what they repeat is in flight anyway, and a leader that is not told
    of a later epoch can do all that one that is told can."""
    ACKS = auto()
    """Acknowledgements are urgent, but for those of `slow` nodes."""
    ANSWERS = auto()
    """What adds a follower is urgent, and so is the word that an election has ended."""
    QUORUMS = auto()
    """Fence answers are heard a quorum at a time (`World`)."""
    HISTORIES = auto()
    """A Fenced replica keeps the part of its history that it would tell."""
    FENCES = auto()
    """A coordinator that looks after its shard does not fence members again.  One that is Fenced
    that way hears nothing of earlier epochs any more, as if it were lost, and is announced to as it
    would be without."""
    LEFTOVERS = auto()
    """New nodes have joined before the world begins, and nothing is cleared away in the end."""
    ALL = SYMMETRY | COMMITS | REFUSALS | ACKS | ANSWERS | QUORUMS | HISTORIES | FENCES | LEFTOVERS


class Fate(IntEnum):
    WAITS = 0
    DEAD = 1
    URGENT = 2


class Flight(NamedTuple):
    """A message, numbered by the world, and what is needed to deliver it."""

    envelope: Envelope
    end: int
    """The position of its receiver in a state."""
    once: bool


ONCE: frozenset[type[Message]] = frozenset(
    {
        Fence,
        FenceAnswer,
        AddFollower,
        Refused,
        Created,
        Destroyed,
        SnapshotOffer,
        SnapshotInstalled,
    }
)
"""Delivered once.  The rest stays in flight: its sender repeats it, or it can be heard again
without harm, and then not having to remember whether it was heard saves states."""

UNHEARD = frozenset({Aborted, FollowerAdded})
"""No coordinator has a rule for these."""


def stripped(envelope: Envelope, reduction: Reduction) -> Envelope:
    """Without the commit offset that rides along, where followers do not learn it.

    The end of the leader's log in an announcement is read only by those with an unreadable tail.
    """
    message = envelope.message
    if Reduction.COMMITS not in reduction:
        return envelope
    if isinstance(message, Entries):
        return replace(envelope, message=replace(message, commit=0))
    if isinstance(message, Announce):
        return replace(envelope, message=replace(message, commit=0, end=0))
    return envelope


# --- to replicas -------------------------------------------------------------------------------


class Mood(NamedTuple):
    """What else decides the fate of messages.

    `slow` are those whose acknowledgements are not urgent, because a change may turn on whether
    they were counted before it.  `unshaken`: no crash can come any more.
    """

    slow: frozenset[str]
    unshaken: bool


def fate_at_replica(envelope: Envelope, replica: Replica, reduction: Reduction, mood: Mood) -> Fate:
    message = envelope.message
    if isinstance(message, Create):
        return Fate.WAITS
    if envelope.dst_incarnation != replica.incarnation:
        answered = isinstance(message, Destroy) and Reduction.LEFTOVERS not in reduction
        return Fate.WAITS if answered else Fate.DEAD
    if isinstance(message, Destroy):
        return Fate.DEAD if Reduction.LEFTOVERS in reduction else Fate.WAITS
    if isinstance(message, Fetch):
        return Fate.WAITS
    if isinstance(message, Refused):
        gap = isinstance(message.refusal, OffsetGap) and Reduction.REFUSALS not in reduction
        return Fate.WAITS if gap or isinstance(message.refusal, DivergenceMismatch) else Fate.DEAD
    epoch: int = getattr(message, "epoch")  # noqa: B009 - every other message has one
    if isinstance(message, FenceAnswer | Ack | Progress):
        return _fate_at_leader(message, envelope, replica, reduction, mood.slow)
    if epoch < replica.epoch:
        return Fate.DEAD
    if isinstance(message, Entries) and _absorbed(message, replica):
        return Fate.DEAD
    if isinstance(message, BecomeLeader) and mood.unshaken and replica.lead is not None:
        return Fate.DEAD  # it leads that epoch, and will not forget it
    if Reduction.ANSWERS not in reduction:
        return Fate.WAITS
    if isinstance(message, AddFollower) and _adds(message, replica):
        return Fate.URGENT
    if isinstance(message, Announce) and message.standby:
        return Fate.URGENT  # a standby counts for nothing; what it lacks is still to be sent
    return Fate.WAITS


def _fate_at_leader(
    message: FenceAnswer | Ack | Progress,
    envelope: Envelope,
    replica: Replica,
    reduction: Reduction,
    slow: frozenset[str],
) -> Fate:
    """An answer to a leader is worth nothing once it leads that epoch no more.

    A follower that came back and is Fenced tells where it is; it takes nothing but an announcement
    now, so its leader only gains by knowing.

    An acknowledgement makes the leader call committed what a quorum holds already, and everybody
    has to keep that.  Nothing else that a leader does depends on its commit offset, but for a
    change: it may be prepared once something is committed, and is covered when the final ensemble
    holds all that is.  An acknowledgement of a node that stays makes neither harder here, because
    in all these worlds the leader and one that stays are a quorum of the final ensemble; one that
    leaves is `slow`, since its acknowledgements count only if they come before the change.
    """
    lead = replica.lead
    if lead is None or message.epoch != replica.epoch:
        return Fate.DEAD
    answers = Fate.URGENT if Reduction.ANSWERS in reduction else Fate.WAITS
    if not isinstance(message, Ack):
        return answers
    urgent = Reduction.ACKS in reduction and envelope.src not in slow
    return Fate.URGENT if urgent else Fate.WAITS


def _absorbed(message: Entries, replica: Replica) -> bool:
    """Everything in it is here already, and stays while the epoch lasts.

    After a restart it would make the replica tell its leader where it is; the announcement, which
    stays in flight, does the same.
    """
    if replica.role not in (Role.FOLLOWER, Role.STANDBY) or message.epoch != replica.epoch:
        return False
    end = message.entries[-1].header.end
    return end <= replica.log.end and min(message.commit, replica.log.end) <= replica.commit


def _adds(message: AddFollower, replica: Replica) -> bool:
    """A follower that the leader does not know yet: it will be announced to, or not be reached."""
    lead = replica.lead
    return (
        lead is not None
        and message.epoch == replica.epoch
        and message.answer.member not in lead.cursors
    )


# --- to coordinators ---------------------------------------------------------------------------


def fate_at_coordinator(
    envelope: Envelope, c: Coordinator, reduction: Reduction, alone: bool
) -> Fate:
    message = envelope.message
    record = c.record
    if record is None or type(message) in UNHEARD:
        return Fate.DEAD
    if isinstance(message, Refused) and Reduction.REFUSALS in reduction:
        return Fate.DEAD
    if isinstance(message, Destroyed) and Reduction.LEFTOVERS in reduction:
        return Fate.DEAD
    if isinstance(message, Refused | Created | Destroyed):
        return Fate.WAITS if _concerns(envelope, c) else Fate.DEAD
    epoch: int = getattr(message, "epoch")  # noqa: B009
    if epoch != record.epoch:
        return Fate.DEAD if epoch < record.epoch else Fate.WAITS
    if isinstance(message, FenceAnswer):
        urgent = Reduction.ANSWERS in reduction and _late(c, message)
        return Fate.URGENT if urgent else Fate.WAITS
    if isinstance(message, BecameLeader):
        return _fate_of_became(c, reduction, alone)
    if isinstance(message, Prepared):
        due = message.covered and record.phase is Phase.PREPARE
        return Fate.WAITS if due else Fate.DEAD
    if isinstance(message, Committed):
        return Fate.WAITS if record.phase is Phase.COMMIT else Fate.DEAD
    return Fate.WAITS


def _concerns(envelope: Envelope, c: Coordinator) -> bool:
    """Messages without an epoch: about replicas that come or go."""
    message, record = envelope.message, c.record
    assert record is not None
    if isinstance(message, Created):
        joining = record.joining
        return joining is not None and joining.node == envelope.src and not joining.incarnation
    if isinstance(message, Destroyed):
        return (envelope.src, message.incarnation) in record.removed
    assert isinstance(message, Refused)
    gone = any(each.node == envelope.src for each in record.removed)
    return isinstance(message.refusal, NoReplica) and gone


def _late(c: Coordinator, answer: FenceAnswer) -> bool:
    """The leader has been chosen: an answer only lets the coordinator add one follower more.

    Unless it comes from one that followed in this epoch already and has restarted, while the
    coordinator has not heard yet that the epoch is led: then it begins another election.
    """
    assert c.record is not None
    if c.record.status is Status.STEADY:
        return True
    led = last_epoch(answer.history) >= c.record.epoch
    return bool(c.election and c.election.asked) and not led


def _fate_of_became(c: Coordinator, reduction: Reduction, alone: bool) -> Fate:
    """A coordinator that is alone and has no change to complete only gains by knowing it: it can
    still start over, as before, and a command becomes possible."""
    record = c.record
    assert record is not None
    if record.status is not Status.ELECTION:
        return Fate.DEAD
    if Reduction.ANSWERS in reduction and alone and record.change is None:
        return Fate.URGENT
    return Fate.WAITS
