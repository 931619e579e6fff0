"""The log as a replica sees it: headers in order, and marks on those whose copy is bad.

Bodies stay on disk.  A header without a mark is *present*.  A marked one is *corrupt* (its header
is known, its body is not) or a *fault* (not even the header is known).  Bad slots still belong to
the log: it may have been this very copy that made an entry committed, so they are reported,
counted in `may_end` and repaired in place, never dropped.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from enum import IntEnum

from shardlog.protocol.entry import GENESIS_CHECKSUM, Header, Kind, unreadable
from shardlog.protocol.failures import (
    DifferentEntry,
    ImpossibleState,
    OffsetGap,
    Refusal,
    WrongParent,
)


class Mark(IntEnum):
    """The state of one slot, as told in a fence answer."""

    PRESENT = 0
    MISSING = 1
    """The header is known, the body was never received."""
    CORRUPT = 2
    """The header is known, the body has been damaged."""
    BLANK = 3
    """Never written: the slot says so positively."""
    FAULT = 4
    """Unreadable: something may have been here."""


class Log:
    """`[first, end)`; `boundary` is the checksum of the entry that ended at `first`."""

    __slots__ = ("bases", "boundary", "first", "headers", "marks", "tail_slots")

    def __init__(self, first: int = 0, boundary: int = GENESIS_CHECKSUM) -> None:
        self.first = first
        self.boundary = boundary
        self.headers: list[Header] = []
        self.bases: list[int] = []
        # Only bases that stand in `bases`; absent means present.
        self.marks: dict[int, Mark] = {}
        # With an open tail: how many entries it may have held; the disk tells slots, not offsets.
        self.tail_slots = 0

    @property
    def end(self) -> int:
        """Where the next entry goes."""
        return self.headers[-1].end if self.headers else self.first

    @property
    def open_tail(self) -> bool:
        """Whether the log ends in an unreadable stretch of unknown length."""
        return bool(self.headers) and self.headers[-1].count == 0

    @property
    def may_end(self) -> int:
        """The end of what may be held: beyond `end` if the tail cannot be read."""
        return self.end + 1 if self.open_tail else self.end

    @property
    def head_checksum(self) -> int:
        return self.headers[-1].checksum if self.headers else self.boundary

    def position(self, base: int) -> int | None:
        """The list position of the entry that starts at `base`."""
        at = bisect_left(self.bases, base)
        return at if at < len(self.bases) and self.bases[at] == base else None

    def covering(self, offset: int) -> Header | None:
        """The header whose range holds `offset`."""
        at = bisect_right(self.bases, offset) - 1
        if at < 0:
            return None
        header = self.headers[at]
        return header if offset < header.end or header.count == 0 else None

    def between(self, start: int, end: int) -> list[Header]:
        """The headers whose base is in `[start, end)`."""
        return self.headers[bisect_left(self.bases, start) : bisect_left(self.bases, end)]

    def is_boundary(self, offset: int) -> bool:
        """Whether an entry starts or the log ends at `offset`."""
        return offset in (self.first, self.end) or self.position(offset) is not None

    def checksum_before(self, offset: int) -> int:
        """The checksum of the entry that ends at `offset`."""
        at = bisect_left(self.bases, offset) - 1
        return self.headers[at].checksum if at >= 0 else self.boundary

    def present(self, base: int) -> bool:
        return self.position(base) is not None and base not in self.marks

    def bad(self, start: int = 0) -> Iterator[Header]:
        """The marked headers at or above `start`, in order."""
        for base in sorted(self.marks):
            if base >= start:
                at = self.position(base)
                if at is None:
                    raise ImpossibleState(f"a mark without an entry at {base}")
                yield self.headers[at]

    def intact_end(self, start: int) -> int:
        """The end of what is present from `start` on: what a follower may acknowledge."""
        if not self.marks:
            return self.end
        return min((base for base in self.marks if base >= start), default=self.end)

    def append(self, header: Header) -> None:
        """Only on the right parent and without a gap: checked by `refusal_to_append` before."""
        self.headers.append(header)
        self.bases.append(header.base)

    def refusal_to_append(self, header: Header) -> Refusal | None:
        """Why `header` may not be appended at the end."""
        if header.base != self.end or self.open_tail:
            return OffsetGap(self.end)
        return wrong_parent(header, self.head_checksum)

    def refusal_of_duplicate(self, header: Header) -> Refusal | None:
        """Why `header` is not the entry that already stands intact at its base."""
        at = self.position(header.base)
        if at is None:
            return OffsetGap(self.end)
        mine = self.headers[at]
        return None if mine.checksum == header.checksum else DifferentEntry(mine.id)

    def mark(self, base: int, mark: Mark) -> None:
        if self.position(base) is None:
            raise ImpossibleState(f"no entry at {base} to mark")
        self.marks[base] = mark

    def repair(self, header: Header) -> Refusal | None:
        """Put a good header in the place of a bad slot; the driver writes the entry."""
        at = self.position(header.base)
        if at is None or header.base not in self.marks:
            return OffsetGap(self.end)
        bad = self.headers[at]
        if bad.kind is not Kind.UNKNOWN:
            if bad.checksum != header.checksum:
                return DifferentEntry(bad.id)
            del self.marks[header.base]
            return None
        return self._fill(at, bad, header)

    def _fill(self, at: int, gap: Header, header: Header) -> Refusal | None:
        """Put `header` at the start of an unreadable stretch; what is left of it stays bad.

        A tail of unknown length stays one as long as more may have stood behind this entry.
        """
        if gap.count and header.epoch != gap.epoch:
            return DifferentEntry(gap.id)
        before = self.headers[at - 1] if at else None
        if before is None or before.kind is not Kind.UNKNOWN:
            refusal = wrong_parent(header, before.checksum if before else self.boundary)
            if refusal:
                return refusal
        if gap.count and header.end > gap.end:
            return DifferentEntry(gap.id)
        del self.marks[gap.base]
        self.headers[at] = header
        rest = gap.end - header.end if gap.count else 0
        if not gap.count:
            self.tail_slots -= 1
        if rest or (not gap.count and self.tail_slots > 0):
            self.headers.insert(at + 1, unreadable(header.epoch, header.end, rest))
            self.bases.insert(at + 1, header.end)
            self.marks[header.end] = Mark.FAULT
        return None

    def open_at_end(self, epoch: int, slots: int) -> None:
        """From here on nobody knows what stood here: up to so many entries."""
        end = self.end
        self.append(unreadable(epoch, end, 0))
        self.marks[end] = Mark.FAULT
        self.tail_slots = slots

    def truncate(self, end: int) -> None:
        """Drop everything from `end` on; an unreadable stretch may be cut anywhere."""
        keep = bisect_left(self.bases, end)
        inside = self.headers[keep - 1] if keep and end < self.headers[keep - 1].end else None
        if inside is not None:
            if inside.kind is not Kind.UNKNOWN:
                raise ImpossibleState(f"cannot cut inside an entry at {end}")
            self.headers[keep - 1] = unreadable(inside.epoch, inside.base, end - inside.base)
        for base in self.bases[keep:]:
            self.marks.pop(base, None)
        del self.headers[keep:]
        del self.bases[keep:]

    def trim(self, first: int) -> None:
        """Drop everything below `first`."""
        if not self.is_boundary(first):
            raise ImpossibleState(f"cannot trim inside an entry at {first}")
        boundary = self.checksum_before(first)
        drop = bisect_left(self.bases, first)
        for base in self.bases[:drop]:
            self.marks.pop(base, None)
        del self.headers[:drop]
        del self.bases[:drop]
        self.first, self.boundary = first, boundary


def wrong_parent(header: Header, parent: int) -> Refusal | None:
    """The hash chain: an entry continues only the log that its leader continued (T1)."""
    return None if header.parent == parent else WrongParent(header.id)
