"""Reading a damaged disk at start: a walk along the chain, from the first offset on.

The walk ends at the first blank slot: nothing behind it can have been synced, because syncs cover
all that was queued before them.  One exception is a blank below the superblock's commit offset.
Something committed was there, so the slot is lying, and counts as a fault.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardlog.protocol.effects import Superblock
from shardlog.protocol.entry import Entry, Header, unreadable
from shardlog.protocol.failures import ImpossibleState
from shardlog.protocol.history import History, epoch_at
from shardlog.protocol.log import Mark
from shardlog.sim.slot import Part, Slot


@dataclass(frozen=True, slots=True)
class Found:
    """`slots` are those that belong to the log, mended; `end` is where the log ends."""

    headers: tuple[Header, ...]
    marks: tuple[tuple[int, Mark], ...]
    slots: dict[int, Slot]
    end: int
    tail_slots: int


def classify(superblock: Superblock, first: int, boundary: int, stable: dict[int, Slot]) -> Found:
    """See the table in `disk`."""
    walk = _Walk(superblock, first, boundary)
    bases = sorted(base for base in stable if base >= first)
    at = first
    for base in bases:
        slot = stable[base]
        if base < at:
            if walk.hole is None:
                continue  # left over from before a cut, and overwritten since
            at = base  # the stretch was cut here, and written on
        if at >= superblock.commit and (base > at or slot.blank):
            break
        if base > at:
            walk.unreadable(at, _never_written(at, base - at))
            at = base
        if slot.known:
            at = walk.known(slot)
        elif slot.blank:
            walk.unreadable(base, _never_written(base, 0))
        else:
            at = walk.unreadable(base, slot)
    if at < superblock.commit and walk.hole is None:
        walk.unreadable(at, _never_written(at, 0))
    return walk.found()


def _never_written(base: int, count: int) -> Slot:
    """A blank below the commit offset, kept as a fault so that it stays one at the next start."""
    return Slot(Entry(unreadable(0, base, count), b""), Part.BAD, Part.BAD)


class _Walk:
    """What has been found so far; `hole` is where an unreadable stretch began."""

    def __init__(self, superblock: Superblock, first: int, boundary: int) -> None:
        self.history: History = superblock.history
        self.commit = superblock.commit
        self.headers: list[Header] = []
        self.marks: list[tuple[int, Mark]] = []
        self.slots: dict[int, Slot] = {}
        self.hole: int | None = None
        self.parent: int | None = boundary
        self.end = first

    def known(self, slot: Slot) -> int:
        header = slot.entry.header
        if self.hole is not None:
            self._close(header.base)
        if self.parent is not None and header.parent != self.parent:
            raise ImpossibleState(
                f"{header.id} on disk does not follow the entry before it: "
                "something was written before a cut was durable"
            )
        self.headers.append(header)
        if slot.body is Part.OK:
            slot.header = Part.OK
        else:
            self.marks.append((header.base, Mark.CORRUPT))
        self.slots[header.base] = slot
        self.parent = header.checksum
        self.end = header.end
        return header.end

    def unreadable(self, base: int, slot: Slot) -> int:
        if self.hole is None:
            self.hole = base
        self.parent = None
        self.slots[base] = slot
        return slot.entry.header.end

    def _close(self, end: int) -> None:
        """The unreadable stretch ends at `end`, where something can be read again."""
        for base, upto in self._pieces(end):
            self._add(base, upto - base)
        self.hole = None

    def _pieces(self, end: int | None) -> list[tuple[int, int]]:
        """The stretch from the hole on, split where the history starts a new span.

        A tail is also split at the commit offset: up to there something was written for certain.
        """
        assert self.hole is not None
        cuts = {span.first for span in self.history}
        if end is None:
            cuts.add(self.commit)
        starts = [self.hole]
        starts += sorted(cut for cut in cuts if cut > self.hole and (end is None or cut < end))
        ends = [*starts[1:], end if end is not None else starts[-1]]
        return list(zip(starts, ends, strict=True))

    def _add(self, base: int, count: int) -> None:
        self.headers.append(unreadable(epoch_at(self.history, base), base, count))
        self.marks.append((base, Mark.FAULT))

    def found(self) -> Found:
        """At the tail nobody knows how far the last unreadable stretch reaches: count 0."""
        if self.hole is not None:
            for base, upto in self._pieces(None):
                self._add(base, upto - base)
            self.end = self.headers[-1].base
        behind = sum(1 for base in self.slots if self.hole is not None and base >= self.hole)
        marks = tuple(self.marks)
        return Found(tuple(self.headers), marks, self.slots, self.end, max(behind, 1))
