"""Identity, fences and the end of a replica.

Only Create formats a volume (rule 12): a wiped disk under an old name has no replica, answers so,
and counts for nothing.  A fence is the promise never again to help a lower epoch; it is answered
only when the promise, and all that was written before it, is on disk (N9).
"""

from __future__ import annotations

from shardlog.protocol import answering
from shardlog.protocol.effects import Erase, Format, Superblock
from shardlog.protocol.entry import EntryId
from shardlog.protocol.failures import (
    NO_SPACE,
    Illegal,
    NotReady,
    OtherElection,
    Refusal,
    StaleEpoch,
    WrongRole,
)
from shardlog.protocol.history import EPOCH_MAX, clip
from shardlog.protocol.messages import (
    Created,
    Destroy,
    Destroyed,
    Envelope,
    Fence,
    StatusReport,
    StatusRequest,
)
from shardlog.protocol.replica_state import Due, Promise, ReplicaState
from shardlog.protocol.states import Cause, Role

_NOT_MEMBER = Role.NOT_MEMBER  # looked up once: every message asks


def is_addressed(r: ReplicaState, envelope: Envelope, from_client: bool) -> bool:
    """A wiped volume under an old name is not the replica that was meant (rule 12)."""
    if r.role is _NOT_MEMBER:
        return False
    return from_client or envelope.dst_incarnation == r.incarnation


def create(r: ReplicaState, envelope: Envelope, draw: int) -> None:
    """Format, once.  Asked again, the same incarnation is told, or why it is not durable yet."""
    if r.role is Role.NOT_MEMBER:
        r.blank(draw)
        r.become(Cause.CREATE)
        r.emit(Format(Superblock(draw, 0, 0, (), 0, 0, (), None)))
    elif r.full:
        r.refuse(envelope, NotReady(NO_SPACE))
        return
    r.sync(Due.CREATED, to=envelope.src)


def created(r: ReplicaState, promise: Promise) -> None:
    if r.role is not Role.NOT_MEMBER:
        r.send(promise.to, Created(r.incarnation))


def destroy(r: ReplicaState, envelope: Envelope, _: Destroy) -> None:
    """The coordinator removed this incarnation from the shard."""
    answering.dismiss(r)
    gone = r.incarnation
    r.become(Cause.DESTROY)
    r.blank(0)
    r.emit(Erase())
    r.sync(Due.DESTROYED, end=gone, to=envelope.src)


def destroyed(r: ReplicaState, promise: Promise) -> None:
    r.send(promise.to, Destroyed(promise.end))


def fence(r: ReplicaState, envelope: Envelope, message: Fence) -> None:
    refusal = refusal_to_fence(r, message)
    if refusal:
        r.refuse(envelope, refusal)
        return
    if message.epoch > r.epoch:
        answering.dismiss(r)
        r.become(Cause.FENCE)
        r.leader = None
    r.promise(message.epoch, message.election)
    persist_promise(r)
    r.sync(Due.FENCED, end=r.log.end, to=envelope.src)


def refusal_to_fence(r: ReplicaState, message: Fence) -> Refusal | None:
    """Answered again only while still Fenced at that epoch, by the same election (rule 1)."""
    if message.epoch > EPOCH_MAX:
        return Illegal(f"epoch {message.epoch}: more than {EPOCH_MAX}")
    if message.epoch < r.epoch:
        return StaleEpoch(r.epoch)
    if r.is_promised_elsewhere(message.epoch, message.election):
        return OtherElection(r.epoch)
    if message.epoch == r.epoch and r.role is not Role.FENCED:
        return WrongRole(r.role, r.epoch)
    return None


def persist_promise(r: ReplicaState) -> None:
    """Before any answer that promises an epoch, the superblock holds it (rule 5)."""
    r.persist()


def fenced(r: ReplicaState, promise: Promise) -> None:
    r.durable_end = max(r.durable_end, min(promise.end, r.log.end))
    if r.role is not Role.FENCED:
        return
    if r.log.end > r.durable_end:
        # A snapshot went on arriving meanwhile: what is told must be durable.
        r.sync(Due.FENCED, end=r.log.end, to=promise.to)
    else:
        r.send(promise.to, r.fence_answer())


def status(r: ReplicaState, envelope: Envelope, message: StatusRequest) -> None:
    """Followers tell when they last heard the leader; only the coordinator judges (rule 20)."""
    lead = r.lead
    upkeep = message.upkeep
    if upkeep is not None and (message.epoch, upkeep.version) >= r.upkeep_of:
        r.upkeep, r.upkeep_of = upkeep, (message.epoch, upkeep.version)
    r.answer(
        envelope,
        StatusReport(
            message.epoch,
            r.member,
            r.role,
            r.epoch,
            clip(r.history, r.log.may_end),
            r.log.end,
            r.commit,
            r.member if lead else r.leader,
            r.now_ms - r.heard_ms if r.heard_ms >= 0 else -1,
            bool(lead and lead.serving),
            bool(lead and lead.quorum_fresh(r.member, r.now_ms, r.limits)),
            lead.ensemble if lead else (),
            lead.cursor_statuses(r.now_ms) if lead else (),
            r.draining,
            len(r.log.marks),
            awaited(r),
            r.repaired,
            r.scrubbed,
            r.scrub_rounds,
            r.transfer.report(r.log.end, r.now_ms) if r.transfer else None,
            r.slack_ms,
            r.full,
            r.election,
        ),
    )


def awaited(r: ReplicaState) -> EntryId | None:
    """The first bad entry that nobody has supplied so far, though all have been asked."""
    bad = next(r.log.bad(), None) if r.log.marks else None
    if bad is None or (r.lead is not None and r.lead.tries <= len(r.lead.cursors)):
        return None
    return bad.id
