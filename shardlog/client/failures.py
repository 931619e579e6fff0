"""What can go wrong for a caller, by what it can do about it.

Three questions have an answer in every failure: is it worth trying again (`retriable`), may what
was asked have been done all the same (`fate_unknown`), and what is there to know (attributes, never
a message to be parsed).  `Unavailable` ones are met and retried inside; a caller sees them as the
`last` of a `DeadlineExceeded`.
"""

from __future__ import annotations

from typing import ClassVar

from shardlog.protocol.failures import Refusal


class ClientFailure(Exception):  # noqa: N818 - named after what happened
    """Base of all that this package raises."""

    retriable: ClassVar[bool] = False
    fate_unknown: bool = False
    """Whether what was asked may have been done, or may be done yet."""


# --- the caller's ------------------------------------------------------------------------------


class InvalidArgument(ClientFailure, ValueError):  # noqa: N818 - as above
    """Something that can never be right."""


class InvalidRecord(InvalidArgument):
    """A record that no batch can hold."""


class RecordTooLarge(InvalidRecord):
    """Longer than the client or the node accepts."""

    def __init__(self, size: int, bytes_max: int) -> None:
        super().__init__(f"a record of {size} bytes, more than {bytes_max}")
        self.size = size
        self.bytes_max = bytes_max


class BufferFull(ClientFailure):
    """More bytes wait to be appended than may wait: `append` and `until_room` wait for room."""

    retriable = True


class Closed(ClientFailure):
    """The client, or this producer of it, has been closed."""


class InternalFailure(ClientFailure):
    """The client itself has failed, in a way that is a bug; `__cause__` is what happened."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the client has failed (a bug: please report it): {reason}")


# --- the shard's -------------------------------------------------------------------------------


class NoSuchShard(ClientFailure):
    """Nobody knows it."""

    def __init__(self, shard: str) -> None:
        super().__init__(f"there is no shard {shard!r}")
        self.shard = shard


class OffsetTrimmed(ClientFailure):
    """The log starts at `first` now."""

    def __init__(self, shard: str, first: int) -> None:
        super().__init__(f"{shard!r} has been trimmed: it starts at offset {first}")
        self.shard = shard
        self.first = first


class CorruptLog(ClientFailure):
    """What a node sent is not what was appended, even when it was asked to verify and repair."""

    retriable = True

    def __init__(self, shard: str, offset: int, reason: str) -> None:
        super().__init__(f"{shard!r} at offset {offset}: {reason}")
        self.shard = shard
        self.offset = offset


class EntryLost(ClientFailure):
    """The records in `[first, next)` were damaged on every node, and people have given them up.

    Nobody will ever read them again; reading goes on at `next`.
    """

    def __init__(self, shard: str, first: int, following: int) -> None:
        super().__init__(f"{shard!r} has lost its records in [{first}, {following})")
        self.shard = shard
        self.first = first
        self.next = following


class UnreadableBatch(ClientFailure):
    """The entry is intact, but its body is no batch of records; `next` is where the next begins."""

    def __init__(self, shard: str, offset: int, following: int, reason: str) -> None:
        super().__init__(
            f"{shard!r} at offset {offset} holds no batch of records: {reason}; the next entry "
            f"begins at {following}"
        )
        self.shard = shard
        self.offset = offset
        self.next = following


class FateUnknown(ClientFailure):
    """Sent, and not answered before `last` ended it all: it may be in the log or not."""

    fate_unknown = True

    def __init__(self, shard: str, last: ClientFailure) -> None:
        super().__init__(f"what was sent to {shard!r} may be appended or not: {last}")
        self.shard = shard
        self.last = last


class SessionEvicted(ClientFailure):
    """The session was forgotten before this request was answered: it may be in the log or not."""

    fate_unknown = True

    def __init__(self, shard: str, session: int) -> None:
        super().__init__(f"session {session} of {shard!r} was evicted with requests unanswered")
        self.shard = shard
        self.session = session


class OffsetForgotten(ClientFailure):
    """Something was appended under this request's number, too long ago to tell where and what."""

    fate_unknown = True

    def __init__(self, shard: str, request: int) -> None:
        super().__init__(
            f"{shard!r} knows request {request} as appended, but no longer at which offset"
        )
        self.shard = shard
        self.request = request


class NumberTaken(ClientFailure):
    """Another batch was appended under this request's number, at `offset`: this one was not.

    Somebody else uses the session, or work that is done again has other records, or another order.
    """

    def __init__(self, shard: str, session: int, request: int, offset: int) -> None:
        super().__init__(
            f"not appended to {shard!r}: number {request} of session {session} was used for "
            f"another batch, at offset {offset}"
        )
        self.shard = shard
        self.session = session
        self.request = request
        self.offset = offset


class Refused(ClientFailure):
    """A typed no of the replica, for which no other failure stands here."""

    def __init__(self, shard: str, refusal: Refusal) -> None:
        super().__init__(f"{shard!r} refused: {refusal}")
        self.shard = shard
        self.refusal = refusal


# --- the cluster's -----------------------------------------------------------------------------


class NodeRejected(ClientFailure):
    """One side will not have the other: certificates, or no version in common."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address} and this client do not accept each other: {reason}")
        self.address = address


class DirectoryRejected(ClientFailure):
    """The directory's answer is none that this client understands."""


class DeadlineExceeded(ClientFailure):
    """Not done in the time given.  `last` is what stood in the way when it was up."""

    retriable = True

    def __init__(
        self,
        what: str,
        deadline_ms: int,
        last: ClientFailure | None = None,
        *,
        fate_unknown: bool = False,
    ) -> None:
        because = f": {last}" if last is not None else ""
        super().__init__(f"{what} was not done in {deadline_ms} ms{because}")
        self.deadline_ms = deadline_ms
        self.last = last
        self.fate_unknown = fate_unknown


class Unavailable(ClientFailure):
    """Not now, or not there; met by trying again."""

    retriable = True


class Unreachable(Unavailable):
    """No connection to a node, or it broke."""


class DirectoryUnavailable(Unavailable):
    """The directory does not answer."""


class NoLeader(Unavailable):
    """Nobody leads the shard at the moment, as far as is known."""


class NowhereFound(Unavailable, NoSuchShard):
    """None of the addresses holds a replica: no such shard, or they are just being opened."""


class NoAnswer(Unavailable):
    """A request has been unanswered for so long that something must be wrong."""


class Busy(Unavailable):
    """The leader is not ready, or has too much in flight."""


class Repairing(Unavailable):
    """An entry is bad at the leader; it has asked the others for theirs."""

    def __init__(self, shard: str, epoch: int, offset: int) -> None:
        super().__init__(f"{shard!r} is being repaired at ({epoch},{offset})")
        self.offset = offset
