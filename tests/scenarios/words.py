"""The words of a transcript for the parts of messages, metadata records and refusals."""

from collections.abc import Iterable

from shardlog.protocol.entry import EntryId, Member
from shardlog.protocol.failures import (
    BelowCommit,
    CorruptEntry,
    DifferentEntry,
    DifferentRequest,
    DivergenceMismatch,
    EntryLost,
    Illegal,
    LostDisk,
    NoReplica,
    NotLeader,
    NotReady,
    OffsetGap,
    OffsetTrimmed,
    OtherElection,
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
)
from shardlog.protocol.history import OPEN_END, History, epoch_at, written
from shardlog.protocol.log import Mark
from shardlog.protocol.messages import FenceAnswer, Operation, Reconfiguration, Snapshot
from shardlog.protocol.shard import Shard, Status


def member(who: Member | None) -> str:
    """A node; with its incarnation if it is not the first."""
    if who is None:
        return "nobody"
    return who.node if who.incarnation <= 1 else str(who)


def session_word(session: int) -> str:
    """The end of its name, which is long."""
    return f"{session % (1 << 16):04x}"


def members(ensemble: Iterable[Member]) -> str:
    return " ".join(member(each) for each in ensemble)


def entry_at(history: History, end: int) -> str:
    """The entry below `end`, for logs whose entries hold one record each."""
    return str(EntryId(epoch_at(history, end - 1), end - 1)) if end else "nothing"


def change_words(change: Reconfiguration) -> str:
    match change.operation:
        case Operation.SWAP:
            return f"swap {member(change.old)} for {member(change.new)}"
        case Operation.EXPAND:
            return f"expand by {member(change.new)}"
    return f"contract {member(change.old)}"


def snapshot_words(snapshot: Snapshot) -> str:
    held = f"[{snapshot.first},{snapshot.end}) of {member(snapshot.source)}"
    return f"{held}, history {written(snapshot.history)}"


def shard_words(shard: Shard, before: Shard | None = None) -> str:
    """A record of the metadata, without what is empty, and the ensemble only if it is new."""
    parts = [str(shard.status)]
    if shard.epoch:
        parts[0] += f" epoch {shard.epoch}"
    if shard.leader:
        parts.append(f"leader {member(shard.leader)}")
    if shard.status is Status.CREATING and not shard.ensemble[0].incarnation:
        parts.append(f"ensemble {' '.join(each.node for each in shard.ensemble)} (not named yet)")
    elif before is None or before.ensemble != shard.ensemble:
        parts.append(f"ensemble {members(shard.ensemble)}")
    if shard.change:
        parts.append(f"{shard.phase}: {change_words(shard.change)}")
    if shard.joining:
        joining = shard.joining
        text = f"joining {member(joining.member)}"
        text += f" for {member(joining.old)}" if joining.old else ""
        text += " (not named yet)" if not joining.incarnation else ""
        parts.append(text + (", cancelled" if joining.cancelled else ""))
    if shard.preferred:
        parts.append(f"prefers {shard.preferred}")
    if shard.removed:
        parts.append(f"to destroy {members(shard.removed)}")
    if shard.accepting:
        parts.append(f"{shard.accepting} may be given up")
    if shard.losses:
        ends = ((lost.base, lost.end if lost.count else "?") for lost in shard.losses)
        parts.append("given up " + " ".join(f"[{first},{end})" for first, end in ends))
    if shard.halted:
        parts.append(f"halted: {shard.halted}")
    return ", ".join(parts)


def stage_of(shard: Shard) -> str:
    """Where a reconfiguration stands, in a word or two."""
    if shard.phase:
        return str(shard.phase)
    if shard.joining:
        return "joining, named" if shard.joining.incarnation else "joining"
    return "done" if shard.removed else "cleaned up"


def fence_words(answer: FenceAnswer) -> str:
    """What a replica may hold."""
    head = entry_at(answer.history, answer.end)
    if answer.open_tail:
        head += " and an unreadable tail"
    parts = [f"head {head}" if answer.end or answer.open_tail else "empty"]
    if answer.commit:
        parts.append(f"commit {answer.commit}")
    if answer.first:
        parts.append(f"first {answer.first}")
    if answer.history:
        parts.append(f"history {written(answer.history)}")
    for slot in answer.slots:
        if slot.mark is not Mark.PRESENT:
            parts.append(f"{EntryId(slot.epoch, slot.base)} {slot.mark.name.lower()}")
    if answer.syncing:
        parts.append("syncing")
    return ", ".join(parts)


def refusal_words(refusal: Refusal) -> str:
    match refusal:
        case StaleEpoch(epoch):
            return f"knows epoch {epoch}"
        case NoReplica(incarnation):
            return f"has incarnation {incarnation}" if incarnation else "has no replica"
        case WrongRole(role, epoch):
            return f"is {role.lower()} at {epoch}"
        case NotLeader(hint):
            return f"does not lead, try {hint}" if hint else "does not lead"
        case WrongParent(entry):
            return f"{entry} does not continue its log"
        case DifferentEntry(entry):
            return f"holds {entry} there"
        case OffsetGap(expected):
            return f"expects {expected} next"
        case BelowCommit(commit):
            return f"has committed up to {commit}"
        case DivergenceMismatch(announced, computed):
            return f"finds the logs part at {computed}, not at {offset(announced)}"
        case NotReady(reason) | Illegal(reason):
            return reason
        case StandbyLagging(lag):
            return f"the new node lags by {lag}"
        case OtherElection(epoch):
            return f"takes part in another election of epoch {epoch}"
        case LostDisk(who, acked):
            return f"{member(who)} had acknowledged {acked} and came back with less"
        case UnknownMember(who):
            return f"{member(who)} does not belong here"
        case SessionUnknown(session):
            return f"session {session_word(session)} is unknown"
        case RequestGap(expected):
            return f"expects request {expected}"
        case ReplyForgotten(oldest):
            return f"remembers replies from request {oldest} on"
        case DifferentRequest(base):
            return f"another request has this number, at {base}"
        case OffsetTrimmed(first):
            return f"the log starts at {first}"
        case EntryLost(first, end):
            return f"[{first},{end}) was given up"
        case CorruptEntry(entry):
            return f"its copy of {entry} is bad"
        case Overloaded(inflight):
            return f"has {inflight} in flight already"
    raise ValueError(f"no words for {refusal}")


def offset(at: int) -> str:
    return "its end" if at == OPEN_END else str(at)
