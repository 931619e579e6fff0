"""Reading all of a log without changing anything: what recovery would say, and more.

A `Scan` judges slots and entries by the table of `walk`, with three differences.  It begins at the
first segment, not at the last checkpoint; it reads bodies below the commit offset too; and what
makes a start fail is one more finding here, behind which it goes on.

What was trimmed but still stands in a file, and what a cut under way is about to drop, is read to
find the way and never reported: nobody will miss it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shardlog.protocol.entry import Header, Kind, unreadable
from shardlog.protocol.history import OPEN_END, History, epoch_at
from shardlog.protocol.log import Mark
from shardlog.storage.failures import DiskFailed
from shardlog.storage.findings import Consequence, Finding, Found
from shardlog.storage.layout import (
    BLANK_SLOT,
    ENTRY_HEADER_BYTES,
    Context,
    Slot,
    foreign_type,
    unpack_header,
)
from shardlog.storage.segment import GROUP_BYTES_MAX, Segment
from shardlog.storage.walk import lost_stretch, lost_tail

_BATCH_SLOTS = 64


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the superblock says of the log, as far as it matters here.

    Recovery reads from `tail` on; `cut_to` is where a cut that is under way will end the log.
    """

    history: History = ()
    first: int = 0
    boundary: int | None = None
    commit: int = 0
    tail: int = 0
    cut_to: int = OPEN_END

    def hold(self, header: Header) -> bool:
        """Whether an entry, or a stretch, is part of the log."""
        return header.base < self.cut_to and (header.end > self.first or not header.count)


@dataclass(frozen=True, slots=True)
class _Hole:
    """An unreadable stretch: its first offset, and where its first slot stood."""

    base: int
    path: str
    position: int
    slots: int


class Scan:
    """Over segments in their order; `at` is the offset that comes next."""

    def __init__(self, bounds: Bounds, findings: list[Finding], bodies: bool) -> None:
        self.bounds = bounds
        self.findings = findings
        self.bodies = bodies
        self.at = bounds.first
        # The latest commit context, and the slot that it rode in.
        self.context = Context(0, 0)
        self.context_at = ("", 0)
        self._begun = False
        # The checksum before `at` and the place in the file that is next; None if not known.
        self._parent: int | None = None
        self._position: int | None = None
        self._hole: _Hole | None = None

    def segment(self, segment: Segment, end: int | None) -> Iterator[Found]:
        """Everything in one segment; `end` is where the next segment begins, if there is one."""
        if not self._begun:
            self._begun = True
            self.at = segment.first
            self._parent = self.bounds.boundary if self.at == self.bounds.first else None
        self._position = segment.head.body_start
        segment.load_count()
        for start in range(0, segment.count, _BATCH_SLOTS):
            pieces = segment.slot_bytes(start, min(_BATCH_SLOTS, segment.count - start))
            for index, piece in enumerate(pieces, start):
                slot = None if piece is None else segment.unpacked(piece, index)
                if slot is not None:
                    yield from self._known(segment, index, slot)
                else:
                    yield from self._slotless(segment, index, piece)
        yield from self._behind_the_slots(segment, end)
        segment.position = segment.head.size if self._position is None else self._position
        if end is None and self._hole is None:
            yield from self._torn(segment)
        yield from self._close(segment, end)

    @property
    def doubt(self) -> bool:
        """Whether the log ends in a stretch that cannot be read."""
        return self._hole is not None

    def finish(self, directory: str) -> Iterator[Found]:
        """The tail, if it cannot be read."""
        if not self._begun and self.at < self.bounds.commit:
            self._lose(directory, 0, 0)
        hole = self._hole
        if hole is None:
            return
        most = max(hole.slots, 1)
        what = f"nothing can be read from offset {hole.base} on: up to {most} entries"
        self._tell(hole.base, OPEN_END, hole.path, hole.position, what, Consequence.REPAIR)
        for header in lost_tail(self.bounds.history, hole.base, self.bounds.commit):
            yield Found(header, Mark.FAULT, hole.path, hole.position, 0)

    # --- one slot --------------------------------------------------------------------------------

    def _known(self, segment: Segment, index: int, slot: Slot) -> Iterator[Found]:
        header, position = slot.header, segment.slot_position(index)
        if self._hole is not None and header.base >= self.at:
            yield from self._end_hole(header.base)
        elif header.base != self.at or self._position not in (None, slot.position):
            what = f"a gap: {header.id} stands where offset {self.at} was expected"
            self._tell_of(header, segment.path, position, what, Consequence.REPLACE)
            self._parent = self._hole = None
        if self._parent is not None and header.parent != self._parent:
            what = f"{header.id} does not follow the entry before it"
            self._tell_of(header, segment.path, position, what, Consequence.REPLACE)
        if slot.context.end > self.context.end and header.base < self.bounds.cut_to:
            self.context, self.context_at = slot.context, (segment.path, position)
        whole = not self.bodies or segment.entry(header, slot.position, slot.length) is not None
        if not whole:
            self._tell_corrupt(segment, header, slot.position, slot.length)
        yield self._taken(segment, header, slot.position, slot.length, whole)

    def _slotless(self, segment: Segment, index: int, piece: bytes | None) -> Iterator[Found]:
        """A slot that is bad, or blank in front of others: is its entry where it must stand?"""
        kind = None if piece is None else foreign_type(piece)
        if kind is not None:
            what = f"a record of type {kind}, which has no place here"
            at = segment.slot_position(index)
            self._tell(self.at, OPEN_END, segment.path, at, what, Consequence.REPLACE)
        blank = piece == BLANK_SLOT
        known = self._in_place(segment)
        if known is None or (not known[2] and blank and known[0].end > self.bounds.commit):
            self._lose(segment.path, segment.slot_position(index), 1)
            return
        header, length, whole = known
        self._tell_lost_slot(segment, index, header, blank and header.end > self.bounds.commit)
        position = self._position or 0
        if not whole:
            self._tell_corrupt(segment, header, position, length)
        yield self._taken(segment, header, position, length, whole)

    def _behind_the_slots(self, segment: Segment, end: int | None) -> Iterator[Found]:
        """Entries that were on their way to a slot of their own."""
        index = segment.count
        while self._hole is None and index < segment.head.slots and (end is None or self.at < end):
            known = self._in_place(segment)
            if known is None or not (known[2] or known[0].end <= self.bounds.commit):
                break
            header, length, whole = known
            self._tell_lost_slot(segment, index, header, header.end > self.bounds.commit)
            position = self._position or 0
            if not whole:
                self._tell_corrupt(segment, header, position, length)
            yield self._taken(segment, header, position, length, whole)
            index += 1
        segment.count = index

    def _in_place(self, segment: Segment) -> tuple[Header, int, bool] | None:
        """The header that must come next, its body's length, and whether the entry is whole."""
        if self._position is None or self._hole is not None:
            return None
        known = segment.header_at(self._position)
        if known is None:
            return None
        header, length = known
        if header.base != self.at or (self._parent is not None and header.parent != self._parent):
            return None
        return header, length, segment.entry(header, self._position, length) is not None

    def _taken(
        self, segment: Segment, header: Header, position: int, length: int, whole: bool
    ) -> Found:
        self.at, self._parent = header.end, header.checksum
        self._position = position + ENTRY_HEADER_BYTES + length
        if header.kind is Kind.LOST:
            self._position = None
        mark = Mark.PRESENT if whole else Mark.CORRUPT
        return Found(header, mark, segment.path, position, length)

    # --- the end ---------------------------------------------------------------------------------

    def _torn(self, segment: Segment) -> Iterator[Found]:
        """A write behind the log's end that was never acknowledged.

        It begins with the header that comes next, or where that is still blank.  Anything else is
        what the file held when it was another segment.
        """
        position = segment.position
        length = min(GROUP_BYTES_MAX, segment.head.size - position)
        data = _read(segment, position, length)
        used = length if data is None else len(data.rstrip(b"\0"))
        if not used or self.at < self.bounds.commit:
            return
        begins = b"" if data is None else data[:ENTRY_HEADER_BYTES]
        there = unpack_header(begins) if any(begins) else None
        if any(begins) and (there is None or there[0].base != self.at):
            return
        what = "a write that was cut short, and never acknowledged"
        self._tell(self.at, OPEN_END, segment.path, position, what, Consequence.REMOVED)
        header = unreadable(epoch_at(self.bounds.history, self.at), self.at, 0)
        yield Found(header, Mark.BLANK, segment.path, position, used)

    def _close(self, segment: Segment, end: int | None) -> Iterator[Found]:
        """Nothing may be missing before the next segment, nor below the commit offset."""
        least = self.bounds.commit if end is None else end
        if self._hole is None and self.at < least:
            self._lose(segment.path, segment.position, 0)
        if end is not None and self._hole is not None:
            yield from self._end_hole(end)

    def _lose(self, path: str, position: int, slots: int) -> None:
        hole = self._hole
        if hole is None:
            self._hole = _Hole(self.at, path, position, slots)
            self._parent = self._position = None
        else:
            self._hole = _Hole(hole.base, hole.path, hole.position, hole.slots + slots)

    def _end_hole(self, end: int) -> Iterator[Found]:
        hole = self._hole
        assert hole is not None
        self._hole, self.at = None, end
        base = max(hole.base, self.bounds.first)
        if end <= base:
            return
        what = f"offsets [{base}, {end}) cannot be read: neither slots nor entries"
        self._tell(base, end, hole.path, hole.position, what, Consequence.REPAIR)
        for header in lost_stretch(self.bounds.history, base, end):
            yield Found(header, Mark.FAULT, hole.path, hole.position, 0)

    # --- telling ---------------------------------------------------------------------------------

    def _tell(
        self, base: int, end: int, path: str, position: int, what: str, consequence: Consequence
    ) -> None:
        if end > self.bounds.first and base < self.bounds.cut_to:
            self.findings.append(Finding(path, position, what, consequence))

    def _tell_of(
        self, header: Header, path: str, position: int, what: str, consequence: Consequence
    ) -> None:
        self._tell(header.base, header.end, path, position, what, consequence)

    def _tell_lost_slot(self, segment: Segment, index: int, header: Header, underway: bool) -> None:
        """A slot that was `underway` when a crash came is well: its entry is durable already."""
        if underway:
            what, consequence = f"the slot of {header.id} is not written", Consequence.FINISHED
        elif header.base >= self.bounds.tail:
            what, consequence = f"the slot of {header.id} is damaged", Consequence.MENDED
        else:
            what, consequence = f"the slot of {header.id} is damaged", Consequence.SPARED
        self._tell_of(header, segment.path, segment.slot_position(index), what, consequence)

    def _tell_corrupt(self, segment: Segment, header: Header, position: int, length: int) -> None:
        data = _read(segment, position, ENTRY_HEADER_BYTES)
        if data is None or unpack_header(data) != (header, length):
            what = f"the header of {header.id} is damaged"
        else:
            what = f"the body of {header.id} is damaged"
            position += ENTRY_HEADER_BYTES
        self._tell_of(header, segment.path, position, what, Consequence.REPAIR)


def _read(segment: Segment, position: int, length: int) -> bytes | None:
    with segment.handles.use(segment.path) as file:
        try:
            return file.read(position, length)
        except DiskFailed:
            return None
