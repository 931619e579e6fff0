"""What a node sends is believed only if it continues what came before.

Nodes send entries straight from their segments, unread, so the client is the one who verifies: the
seal of every header, the sum of every body, and that an entry begins where the one before it
ended and names it as its parent.  Then no entry can be missing, changed or from another log.
"""

from __future__ import annotations

from typing import NamedTuple

from shardlog.checksum import is_body, is_sealed
from shardlog.protocol.entry import Header, Kind
from shardlog.transport.entries import split_entries
from shardlog.transport.failures import MalformedFrame


class Fetched(NamedTuple):
    """A verified entry that waits to be delivered; its body has not been looked into."""

    header: Header
    body: memoryview


class Mismatch(Exception):  # noqa: N818 - named after what happened
    """What came for `offset` is not what should stand there."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


class Lost(Exception):  # noqa: N818 - as above
    """What stood in `[first, end)` was given up: no node has it any more."""

    def __init__(self, first: int, end: int) -> None:
        super().__init__(f"[{first}, {end}) was given up")
        self.first = first
        self.end = end


class Continuity:
    """Where the reader stands: `next` is the first offset that has not been taken yet.

    `next` may lie within an entry, when reading starts.  `parent` is the checksum of the last entry
    taken; None at the start, where every one will do, unless it is known.
    """

    __slots__ = ("next", "parent", "started")

    def __init__(self, start: int, parent: int | None = None) -> None:
        self.next = start
        self.parent = parent
        self.started = parent is not None

    def take(self, raw: memoryview, count: int) -> list[Fetched]:
        """The entries with records, up to the first that is bad or `Lost`; or that, if it is first.

        A bad one is a `Mismatch`.
        """
        found = self.take_all(raw, count, until_loss=True)
        return [each for each in found if each.header.kind is Kind.DATA]

    def take_all(self, raw: memoryview, count: int, until_loss: bool = False) -> list[Fetched]:
        """As `take`, with control entries, and markers of what was lost."""
        try:
            found = split_entries(raw)
        except MalformedFrame as failure:
            raise Mismatch(self.next, str(failure)) from failure
        if len(found) != count:
            raise Mismatch(self.next, f"{len(found)} entries where {count} are announced")
        taken: list[Fetched] = []
        for at, (header, body) in enumerate(found):
            try:
                self._check(header, body)
            except Mismatch:
                if at == 0:
                    raise
                break
            if until_loss and header.kind is Kind.LOST:
                if at == 0:
                    raise Lost(max(header.base, self.next), header.end)
                break
            self.next, self.parent, self.started = header.end, header.checksum, True
            taken.append(Fetched(header, body))
        return taken

    def _check(self, header: Header, body: memoryview) -> None:
        at = self.next
        if not (header.base == at if self.started else header.base <= at < header.end):
            raise Mismatch(at, f"the entry {header.id} does not continue the log here")
        if self.parent is not None and header.parent != self.parent:
            raise Mismatch(at, f"the entry {header.id} has another parent")
        check(header, body)


def check(header: Header, body: memoryview) -> None:
    """One entry, against its own checksums."""
    if not is_sealed(header):
        raise Mismatch(header.base, f"the header of {header.id} is damaged")
    if not is_body(header, body):
        raise Mismatch(header.base, f"the body of {header.id} is damaged")
