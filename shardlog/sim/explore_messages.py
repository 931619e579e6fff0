"""Messages in flight: which stay, which go, and which can no longer matter.

Nothing is ever lost on purpose.  A message that is not delivered is as good as lost, so a state
with more messages in flight can do whatever one with fewer can: that is why a delivery without any
effect is not a transition at all, and why a message may stay in flight after it was delivered.

Requests stay, because their senders repeat them until they are answered; so every repetition and
every duplicate is explored without a clock.  Answers are delivered once, unless told otherwise.

A message is *dead* if delivering it can have no effect, now or ever.  Epochs only rise, also
through a crash, since within the explorer everything a step promised is durable when it ends; so
a message that its receiver's epoch has passed stays dead.  What is left of it is the refusal that
tells an old leader of the higher epoch; that one is an action of its own in `explore_world`.
"""

from __future__ import annotations

from typing import NamedTuple

from shardlog.protocol.coordinator import Coordinator
from shardlog.protocol.failures import DivergenceMismatch, NoReplica, OffsetGap
from shardlog.protocol.messages import (
    Aborted,
    Ack,
    AddFollower,
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


class Flight(NamedTuple):
    """A message, numbered by the world, and what is needed to deliver it."""

    envelope: Envelope
    end: int
    """The position of its receiver in a state."""
    once: bool


def dead_for_replica(envelope: Envelope, replica: Replica) -> bool:
    """Whether this message can never again have an effect on its receiver."""
    message = envelope.message
    if isinstance(message, Create):
        return False
    if envelope.dst_incarnation != replica.incarnation:
        return not isinstance(message, Destroy)
    if isinstance(message, Destroy | Fetch):
        return False
    if isinstance(message, Refused):
        return not isinstance(message.refusal, OffsetGap | DivergenceMismatch)
    epoch: int = getattr(message, "epoch")  # noqa: B009 - every other message has one
    if isinstance(message, FenceAnswer | Ack | Progress):
        return replica.lead is None or epoch != replica.epoch
    if epoch < replica.epoch:
        return True
    if isinstance(message, BecomeLeader):
        return replica.led >= epoch
    return isinstance(message, Entries) and _absorbed(message, replica)


def _absorbed(message: Entries, replica: Replica) -> bool:
    """Everything in it is here already, and stays while the epoch lasts.

    After a restart it would make the replica tell its leader where it is; the announcement, which
    stays in flight, does the same.
    """
    if replica.role not in (Role.FOLLOWER, Role.STANDBY) or message.epoch != replica.epoch:
        return False
    end = message.entries[-1].header.end
    return end <= replica.log.end and min(message.commit, replica.log.end) <= replica.commit


def dead_for_coordinator(envelope: Envelope, c: Coordinator) -> bool:
    message = envelope.message
    record = c.record
    if record is None or type(message) in UNHEARD:
        return True
    if isinstance(message, Refused):
        return not isinstance(message.refusal, NoReplica) or all(
            each.node != envelope.src for each in record.removed
        )
    if isinstance(message, Created):
        joining = record.joining
        return joining is None or joining.node != envelope.src or bool(joining.incarnation)
    if isinstance(message, Destroyed):
        return (envelope.src, message.incarnation) not in record.removed
    epoch: int = getattr(message, "epoch")  # noqa: B009
    if epoch < record.epoch:
        return True
    same = epoch == record.epoch
    if isinstance(message, BecameLeader):
        return same and record.status is Status.STEADY
    if isinstance(message, Prepared):
        return not message.covered or (same and record.phase is not Phase.PREPARE)
    if isinstance(message, Committed):
        return same and record.phase is None
    return False
