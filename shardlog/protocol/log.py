"""The log as a replica sees it: headers in order, and marks on those whose copy is bad.

Bodies stay on disk.  A header without a mark is *present*.  A marked one is *corrupt* (its header
is known, its body is not) or a *fault* (not even the header is known).  Bad slots still belong to
the log: it may have been this very copy that made an entry committed, so they are reported,
counted in `may_end` and repaired in place, never dropped.

Only the latest headers are kept in memory.  Older ones, which are committed and durable, are asked
for from the driver's `Archive` when somebody needs them: a reader, a follower far behind, a repair.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from enum import IntEnum
from typing import Protocol

from shardlog.protocol.entry import GENESIS_CHECKSUM, Header, Kind, unreadable
from shardlog.protocol.failures import (
    DifferentEntry,
    ImpossibleState,
    OffsetGap,
    Refusal,
    WrongParent,
)

_UNKNOWN = Kind.UNKNOWN  # looked up once: every header that is sent is asked
ALL = 1 << 62
"""No bound on how many headers are wanted."""


class Archive(Protocol):
    """Headers at rest.  A stretch that cannot be read is told as one of kind UNKNOWN."""

    def headers(self, start: int, end: int, most: int) -> list[Header]:
        """Those whose base is in `[start, end)`, up to `most`."""

    def covering(self, offset: int) -> Header | None:
        """The one whose range holds `offset`; None if that is not here at all."""


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

    __slots__ = ("archive", "bases", "boundary", "first", "headers", "lost", "marks", "mending",
                 "tail_slots", "weights")  # fmt: skip

    def __init__(
        self,
        first: int = 0,
        boundary: int = GENESIS_CHECKSUM,
        archive: Archive | None = None,
    ) -> None:
        self.first = first
        self.boundary = boundary
        self.archive = archive
        # The latest headers; empty only if the log is.
        self.headers: list[Header] = []
        self.bases: list[int] = []
        # For each of them, the bytes of all bodies up to it.
        self.weights: list[int] = []
        # Only bases of entries that are here; absent means present.
        self.marks: dict[int, Mark] = {}
        # The marked headers that are not among the latest.
        self.lost: dict[int, Header] = {}
        # Bases of those that were repaired, while the archive may not know it yet.
        self.mending: set[int] = set()
        # With an open tail: how many entries it may have held; the disk tells slots, not offsets.
        self.tail_slots = 0

    @property
    def kept_from(self) -> int:
        """Older headers than this one are in the archive."""
        return self.bases[0] if self.bases else self.first

    @property
    def end(self) -> int:
        """Where the next entry goes."""
        if not self.headers:
            return self.first
        last = self.headers[-1]
        return last.base + last.count

    @property
    def weight(self) -> int:
        """Only what it grows by says something: the bytes of bodies that were appended."""
        return self.weights[-1] if self.weights else 0

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

    def starting_at(self, base: int) -> Header | None:
        """The entry, or unreadable stretch, that starts at `base`."""
        at = bisect_left(self.bases, base)
        if at < len(self.bases) and self.bases[at] == base:
            return self.headers[at]
        header = self._archived_at(base)
        return header if header is not None and header.base == base else None

    def covering(self, offset: int) -> Header | None:
        """The header whose range holds `offset`."""
        at = bisect_right(self.bases, offset) - 1
        if at < 0:
            return self._archived_at(offset)
        header = self.headers[at]
        return header if offset < header.end or header.count == 0 else None

    def _archived_at(self, offset: int) -> Header | None:
        if self.archive is None or not self.first <= offset < self.kept_from:
            return None
        for header in self.lost.values():
            if header.base <= offset < header.end:
                return header
        found = self.archive.covering(offset)
        if found is not None:
            self._note(found)
        return found

    def _note(self, header: Header) -> None:
        """What the archive cannot read is bad from now on."""
        if header.kind is Kind.UNKNOWN and header.base not in self.lost.keys() | self.mending:
            self.lost[header.base] = header
            self.marks[header.base] = Mark.FAULT

    def between(self, start: int, end: int, most: int = ALL) -> list[Header]:
        """Up to `most` headers whose base is in `[start, end)`."""
        older: list[Header] = []
        kept_from = self.kept_from
        if self.archive is not None and start < kept_from:
            older = self._archived(max(start, self.first), min(end, kept_from), most)
        at, upto = bisect_left(self.bases, start), bisect_left(self.bases, end)
        return older + self.headers[at : min(upto, at + most - len(older))]

    def _archived(self, start: int, end: int, most: int) -> list[Header]:
        assert self.archive is not None
        found = self.archive.headers(start, end, most)
        if not found or found[0].base > start:
            self._archived_at(start)  # it may lie within a stretch that cannot be read
        for header in found:
            if header.kind is _UNKNOWN:
                self._note(header)
        return found

    def load(self, start: int, end: int) -> tuple[int, int]:
        """How many entries begin in `[start, end)`, and the bytes of their bodies."""
        if start < self.kept_from:
            headers = self.between(start, end)
            return len(headers), sum([header.body_bytes for header in headers])
        at, upto = bisect_left(self.bases, start), bisect_left(self.bases, end)
        if at >= upto:
            return 0, 0
        before = self.weights[at] - self.headers[at].body_bytes
        return upto - at, self.weights[upto - 1] - before

    def is_boundary(self, offset: int) -> bool:
        """Whether an entry starts or the log ends at `offset`."""
        return offset in (self.first, self.end) or self.starting_at(offset) is not None

    def checksum_before(self, offset: int) -> int:
        """The checksum of the entry that ends at `offset`: what the one behind it names."""
        after = self.starting_at(offset)
        if after is not None and after.kind is not Kind.UNKNOWN:
            return after.parent
        if offset <= self.first:
            return self.boundary
        before = self.covering(min(offset, self.end) - 1)
        return before.checksum if before is not None else GENESIS_CHECKSUM

    def present(self, base: int) -> bool:
        return base not in self.marks and self.starting_at(base) is not None

    def bad(self, start: int = 0) -> Iterator[Header]:
        """The marked headers at or above `start`, in order."""
        for base in sorted(self.marks):
            if base >= start:
                header = self.starting_at(base)
                if header is None:
                    raise ImpossibleState(f"a mark without an entry at {base}")
                yield header

    def intact_end(self, start: int) -> int:
        """The end of what is present from `start` on: what a follower may acknowledge."""
        if not self.marks:
            return self.end
        return min((base for base in self.marks if base >= start), default=self.end)

    # --- changing --------------------------------------------------------------------------------

    def append(self, header: Header) -> None:
        """Only on the right parent and without a gap: checked by `refusal_to_append` before."""
        weights = self.weights
        self.headers.append(header)
        self.bases.append(header.base)
        weights.append((weights[-1] if weights else 0) + (header.body_checksum >> 32))

    def _weigh(self, at: int) -> None:
        """The headers from `at` on are others now."""
        del self.weights[at:]
        total = self.weights[-1] if self.weights else 0
        for header in self.headers[at:]:
            total += header.body_bytes
            self.weights.append(total)

    def refusal_to_append(self, header: Header) -> Refusal | None:
        """Why `header` may not be appended at the end."""
        if not self.headers:
            end, parent, is_open = self.first, self.boundary, False
        else:
            last = self.headers[-1]
            end, parent, is_open = last.base + last.count, last.checksum, last.count == 0
        if header.base != end or is_open:
            return OffsetGap(end)
        return wrong_parent(header, parent)

    def refusal_of_duplicate(self, header: Header) -> Refusal | None:
        """Why `header` is not the entry that already stands intact at its base."""
        mine = self.starting_at(header.base)
        if mine is None:
            return OffsetGap(self.end)
        return None if mine.checksum == header.checksum else DifferentEntry(mine.id)

    def mark(self, base: int, mark: Mark) -> None:
        header = self.starting_at(base)
        if header is None:
            raise ImpossibleState(f"no entry at {base} to mark")
        self.marks[base] = mark
        if base < self.kept_from:
            self.lost[base] = header

    def repair(self, header: Header) -> Refusal | None:
        """Put a good header in the place of a bad slot; the driver writes the entry."""
        bad = self.starting_at(header.base) if header.base in self.marks else None
        if bad is None:
            return OffsetGap(self.end)
        if bad.kind is not Kind.UNKNOWN:
            marked = bad.kind is Kind.LOST and header.kind is not Kind.LOST
            if bad.checksum != header.checksum or bad.count != header.count or marked:
                return DifferentEntry(bad.id)
            self._replace(bad, header, None)
            return None
        return self._fill(bad, header)

    def _fill(self, gap: Header, header: Header) -> Refusal | None:
        """Put `header` at the start of an unreadable stretch; what is left of it stays bad.

        A tail of unknown length stays one as long as more may have stood behind this entry.
        """
        if gap.count and (header.epoch != gap.epoch or header.end > gap.end):
            return DifferentEntry(gap.id)
        before = self.covering(gap.base - 1) if gap.base > self.first else None
        if before is None or before.kind is not Kind.UNKNOWN:
            refusal = wrong_parent(header, before.checksum if before else self.boundary)
            if refusal:
                return refusal
        rest = gap.end - header.end if gap.count else 0
        if not gap.count:
            self.tail_slots -= 1
        goes_on = rest or (not gap.count and self.tail_slots > 0)
        self._replace(gap, header, unreadable(header.epoch, header.end, rest) if goes_on else None)
        return None

    def _replace(self, gap: Header, header: Header, rest: Header | None) -> None:
        del self.marks[gap.base]
        if rest is not None:
            self.marks[rest.base] = Mark.FAULT
        if gap.base < self.kept_from:
            self.lost.pop(gap.base, None)
            self.mending.add(gap.base)
            if rest is not None:
                self.lost[rest.base] = rest
            return
        at = bisect_left(self.bases, gap.base)
        self.headers[at] = header
        if rest is not None:
            self.headers.insert(at + 1, rest)
            self.bases.insert(at + 1, rest.base)
        self._weigh(at)

    def open_at_end(self, epoch: int, slots: int) -> None:
        """From here on nobody knows what stood here: up to so many entries."""
        end = self.end
        self.append(unreadable(epoch, end, 0))
        self.marks[end] = Mark.FAULT
        self.tail_slots = slots

    def truncate(self, end: int) -> None:
        """Drop everything from `end` on; an unreadable stretch may be cut anywhere."""
        if end < self.kept_from:
            raise ImpossibleState(f"a cut at {end}, below what is kept in memory")
        keep = bisect_left(self.bases, end)
        inside = self.headers[keep - 1] if keep and end < self.headers[keep - 1].end else None
        if inside is not None:
            if inside.kind is not Kind.UNKNOWN:
                raise ImpossibleState(f"cannot cut inside an entry at {end}")
            self.headers[keep - 1] = unreadable(inside.epoch, inside.base, end - inside.base)
        for base in self.bases[keep:]:
            self.marks.pop(base, None)
        last = self._archived_at(end - 1) if not keep else None
        del self.headers[keep:]
        del self.bases[keep:]
        del self.weights[keep:]
        if last is not None:
            self.append(last)
            self.lost.pop(last.base, None)

    def trim(self, first: int) -> None:
        """Drop everything below `first`."""
        if not self.is_boundary(first):
            raise ImpossibleState(f"cannot trim inside an entry at {first}")
        boundary = self.checksum_before(first)
        drop = bisect_left(self.bases, first)
        for base in [base for base in self.marks if base < first]:
            del self.marks[base]
            self.lost.pop(base, None)
        del self.headers[:drop]
        del self.bases[:drop]
        del self.weights[:drop]
        self.first, self.boundary = first, boundary

    def forget(self, below: int, keep: int) -> int:
        """Leave headers below an offset to the archive, but for the last `keep`: how many went."""
        drop = min(bisect_right(self.bases, below) - 1, len(self.bases) - keep)
        if self.archive is None or drop <= 0:
            return 0
        for header in self.headers[:drop]:
            if header.base in self.marks:
                self.lost[header.base] = header
        del self.headers[:drop]
        del self.bases[:drop]
        del self.weights[:drop]
        return drop


def wrong_parent(header: Header, parent: int) -> Refusal | None:
    """The hash chain: an entry continues only the log that its leader continued (T1)."""
    return None if header.parent == parent else WrongParent(header.id)
