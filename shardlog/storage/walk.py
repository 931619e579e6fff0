"""Reading the tail of a log at start: what each slot and its entry have to say.

    slot ok,  entry ok          present
    slot ok,  entry bad         corrupt: it was durable once, we know what it was
    slot bad, entry ok          present; the slot is written again
    slot bad, entry bad         fault: something was here
    slot blank, entry ok        present if it follows the one before: durable, its slot on the way
    slot blank, entry bad       blank: never acknowledged; the log ends here

Slots are written only when their entries are durable, and in order, so a blank slot in front of one
that is not blank has been lost, and is as good as bad; so is one below the commit offset.

A `Walk` goes over one segment after the other.  Bodies are read only from the commit offset on:
what lies below is verified when it is read, and mended then.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardlog.protocol.entry import Header, Kind, unreadable
from shardlog.protocol.history import History, epoch_at
from shardlog.protocol.log import Mark
from shardlog.storage.failures import Damaged
from shardlog.storage.layout import (
    BLANK_SLOT,
    ENTRY_HEADER_BYTES,
    Context,
    Slot,
    foreign_type,
)
from shardlog.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class Unslotted:
    """A whole entry whose slot has to be written again."""

    segment: Segment
    index: int
    slot: Slot


def lost_stretch(history: History, base: int, end: int) -> list[Header]:
    """What cannot be read in `[base, end)`, in pieces: one for each epoch."""
    cuts = sorted({span.first for span in history if base < span.first < end})
    starts, ends = [base, *cuts], [*cuts, end]
    return [
        unreadable(epoch_at(history, start), start, upto - start)
        for start, upto in zip(starts, ends, strict=True)
    ]


def lost_tail(history: History, base: int, commit: int) -> list[Header]:
    """The same without an end; up to the commit offset something was written for certain."""
    last = max([base, commit, *(span.first for span in history)])
    certain = [
        piece
        for start, upto in ((base, min(max(base, commit), last)), (max(base, commit), last))
        if start < upto
        for piece in lost_stretch(history, start, upto)
    ]
    return [*certain, unreadable(epoch_at(history, last), last, 0)]


class Walk:
    """`at` is the offset that comes next, `parent` the checksum before it, None if not known."""

    def __init__(self, history: History, commit: int, at: int, parent: int | None) -> None:
        self.history = history
        self.commit = commit
        self.at = at
        self.parent = parent
        self.headers: list[Header] = []
        self.marks: list[tuple[int, Mark]] = []
        # Where an unreadable stretch began, and how many slots it has had so far.
        self.hole: int | None = None
        self.lost_slots = 0
        self.unslotted: list[Unslotted] = []
        # The latest commit context, and the file and position it rode in.
        self.context = Context(0, 0)
        self.context_at = ("", 0)
        # Where the next entry must stand in its file; None if that is not known.
        self.position: int | None = None

    # --- one segment -----------------------------------------------------------------------------

    def segment(self, segment: Segment, start: int, end: int | None) -> None:
        """All of `segment` from slot `start` on; `end` is where the next segment begins, if any."""
        self.position = segment.head.body_start if start == 0 else None
        segment.load_count()
        used = segment.count
        pieces = segment.slot_bytes(start, used - start) if used > start else []
        for index, piece in enumerate(pieces, start):
            slot = None if piece is None else segment.unpacked(piece, index)
            if slot is not None:
                self._known(segment, index, slot)
                continue
            kind = None if piece is None else foreign_type(piece)
            if kind is not None:
                why = f"a record of type {kind}, which has no place here"
                raise Damaged(segment.path, segment.slot_position(index), why)
            if not self._found_in_place(segment, index, piece != BLANK_SLOT):
                self._lost()
        index = used
        while self._open_end(end) and index < segment.head.slots:
            if not self._found_in_place(segment, index, False):
                break
            index += 1
        segment.count = index
        segment.position = segment.head.size if self.position is None else self.position
        self._close(end)

    def _open_end(self, end: int | None) -> bool:
        """Whether entries may stand behind the last slot, on their way to one of their own."""
        return self.hole is None and (end is None or self.at < end)

    def _known(self, segment: Segment, index: int, slot: Slot) -> None:
        header = slot.header
        if self.hole is not None and header.base >= self.at:
            self._end_hole(header.base)
        elif header.base != self.at or self.position not in (None, slot.position):
            raise Damaged(
                segment.path,
                segment.slot_position(index),
                f"a gap: {header.id} stands where offset {self.at} was expected",
            )
        if self.parent is not None and header.parent != self.parent:
            raise Damaged(
                segment.path,
                segment.slot_position(index),
                f"{header.id} does not follow the entry before it",
            )
        self._take(header, slot.after)
        if slot.context.end > self.context.end:
            self.context = slot.context
            self.context_at = (segment.path, segment.slot_position(index))
        if header.end > self.commit and segment.entry(header, slot.position, slot.length) is None:
            self.marks.append((header.base, Mark.CORRUPT))

    def _found_in_place(self, segment: Segment, index: int, was_durable: bool) -> bool:
        """Whether the entry itself can be found where it must stand, without its slot."""
        if self.position is None or self.hole is not None:
            return False
        position = self.position
        known = segment.header_at(position)
        if known is None:
            return False
        header, length = known
        if header.base != self.at or (self.parent is not None and header.parent != self.parent):
            return False
        if header.epoch != epoch_at(self.history, header.base):
            return False  # left behind by a leader whose log parted from what was adopted since
        whole = segment.entry(header, position, length) is not None
        if not whole and not was_durable and header.end > self.commit:
            return False
        if not whole:
            self.marks.append((header.base, Mark.CORRUPT))
        context = Context(0, 0)
        self.unslotted.append(Unslotted(segment, index, Slot(header, length, position, context)))
        self._take(header, position + ENTRY_HEADER_BYTES + length)
        return True

    def _take(self, header: Header, after: int) -> None:
        """Behind a marker nobody knows where the next entry stands: what was lost had a body."""
        self.headers.append(header)
        self.at, self.parent = header.end, header.checksum
        self.position = None if header.kind is Kind.LOST else after

    # --- holes -----------------------------------------------------------------------------------

    def _lost(self, slots: int = 1) -> None:
        if self.hole is None:
            self.hole, self.lost_slots = self.at, 0
            self.parent = self.position = None
        self.lost_slots += slots

    def _end_hole(self, end: int) -> None:
        """The stretch ends at `end`; it is told in pieces, one for each epoch."""
        assert self.hole is not None
        if end > self.hole:
            self._tell(lost_stretch(self.history, self.hole, end))
        self.at, self.hole = end, None

    def _tell(self, stretch: list[Header]) -> None:
        self.headers += stretch
        self.marks += [(header.base, Mark.FAULT) for header in stretch]

    def _close(self, end: int | None) -> None:
        """The end of a segment: nothing may be missing before the next, nor below the commit."""
        if self.hole is None and self.at < (self.commit if end is None else end):
            self._lost(0)
        if end is not None and self.hole is not None:
            self._end_hole(end)

    def nothing(self) -> None:
        """There is no segment at all."""
        self._close(None)

    def finish(self) -> int:
        """Tell the open tail, if there is one; how many entries it may have held."""
        if self.hole is None:
            return 0
        self._tell(lost_tail(self.history, self.hole, self.commit))
        return max(self.lost_slots, 1)
