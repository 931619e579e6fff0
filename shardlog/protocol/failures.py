"""What can go wrong, by whose fault.

A `Refusal` is a value: somebody sent what may not be done now.  It travels back as an answer, and
the machine that refuses is left as it was.  `ImpossibleState` is an exception: an invariant of
our own is broken, and the replica must stop before it does harm.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardlog.protocol.entry import EntryId, Member

NO_SPACE = "no space left on the volume"
"""Why a replica is not ready: it goes on by itself when there is room again."""


class ImpossibleState(Exception):  # noqa: N818 - it names the state, not an error of somebody's
    """An invariant is broken.  The replica stops; it is never logged and passed over."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Base of all typed refusals."""


@dataclass(frozen=True, slots=True)
class NoReplica(Refusal):
    """No replica here, or another incarnation than the one addressed.  Counts for nothing.

    `asked` is the incarnation that was addressed: an answer that is late speaks of an earlier one.
    """

    incarnation: int
    asked: int = 0


@dataclass(frozen=True, slots=True)
class WrongShard(Refusal):
    """The message is for another shard."""

    shard: str


@dataclass(frozen=True, slots=True)
class StaleEpoch(Refusal):
    """The sender's epoch has been overtaken; the newer one is told."""

    epoch: int


@dataclass(frozen=True, slots=True)
class WrongRole(Refusal):
    """Not something that a replica in this role does at this epoch."""

    role: str
    epoch: int


@dataclass(frozen=True, slots=True)
class OtherElection(Refusal):
    """This epoch was promised to another election: the metadata is older than the promise."""

    epoch: int


@dataclass(frozen=True, slots=True)
class NotLeader(Refusal):
    """Ask `hint` instead, if it is known."""

    hint: str | None


@dataclass(frozen=True, slots=True)
class UnknownMember(Refusal):
    """A node that this leader was never told of."""

    member: Member


@dataclass(frozen=True, slots=True)
class OffsetGap(Refusal):
    """Entries must come without a gap; the next one expected is named."""

    expected: int


@dataclass(frozen=True, slots=True)
class WrongParent(Refusal):
    """The entry does not continue the chain that ends here."""

    entry: EntryId


@dataclass(frozen=True, slots=True)
class DifferentEntry(Refusal):
    """Another entry stands intact at this offset."""

    entry: EntryId


@dataclass(frozen=True, slots=True)
class DivergenceMismatch(Refusal):
    """The announced divergence point is not the one computed here."""

    announced: int
    computed: int


@dataclass(frozen=True, slots=True)
class BelowCommit(Refusal):
    """Would cut or contradict what is committed here."""

    commit: int


@dataclass(frozen=True, slots=True)
class NotReady(Refusal):
    """Legal, but not yet: the reason names what is awaited."""

    reason: str


@dataclass(frozen=True, slots=True)
class StandbyLagging(Refusal):
    """The new node is too far behind to be promoted."""

    lag: int


@dataclass(frozen=True, slots=True)
class LostDisk(Refusal):
    """A follower came back with less than it had acknowledged (rule 15)."""

    member: Member
    acked: int


@dataclass(frozen=True, slots=True)
class Illegal(Refusal):
    """Never legal, whatever the state: the reason says why."""

    reason: str


@dataclass(frozen=True, slots=True)
class UnsafeQuorum(Refusal):
    """A replication and a fencing quorum of this ensemble need not meet (rule 6)."""

    size: int
    replication: int
    fencing: int


@dataclass(frozen=True, slots=True)
class SessionUnknown(Refusal):
    """The session was evicted, or never registered: register again."""

    session: int


@dataclass(frozen=True, slots=True)
class RequestGap(Refusal):
    """Request numbers must come one by one."""

    expected: int


@dataclass(frozen=True, slots=True)
class ReplyForgotten(Refusal):
    """So old a request that its reply is no longer kept."""

    oldest: int


@dataclass(frozen=True, slots=True)
class DifferentRequest(Refusal):
    """Another batch is committed under this number, at `base`: the one refused is not appended.

    It never will be, unless it was sent under another number as well.
    """

    base: int


@dataclass(frozen=True, slots=True)
class Overloaded(Refusal):
    """Too much in flight; try again."""

    inflight: int


@dataclass(frozen=True, slots=True)
class OffsetTrimmed(Refusal):
    """The log starts at `first` now."""

    first: int


@dataclass(frozen=True, slots=True)
class EntryLost(Refusal):
    """What stood in `[first, end)` was damaged everywhere, and given up; the log goes on behind."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class CorruptEntry(Refusal):
    """The entry's copy here is bad; repair has been asked for."""

    entry: EntryId
