"""What one sync covers, and the entries that stand in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from shardlog.protocol.entry import Entry
from shardlog.storage.files import Buffer
from shardlog.storage.handles import Handles
from shardlog.storage.layout import (
    ENTRY_HEADER_BYTES,
    Context,
    Slot,
    pack_header,
    pack_slot,
    slot_sequence,
)
from shardlog.storage.segment import GROUP_BYTES_MAX, Segment

ROUND_FILES_MAX = 2
"""A group may go to a new segment while the slots of the one before go to the old one."""


@dataclass(frozen=True, slots=True)
class Append:
    """One entry to be written, and the commit offset that rides along."""

    entry: Entry
    commit: int


@dataclass(slots=True)
class Group:
    """Entries of one segment that are written together, and the slots they will get."""

    segment: Segment
    index: int
    position: int
    slots: list[Slot] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)

    @property
    def after(self) -> int:
        return self.slots[-1].after if self.slots else self.position

    def add(self, entry: Entry, context: Context) -> bool:
        """False if the segment has no room for it, or the group would become too long."""
        length = len(entry.body)
        position = self.after
        if not self.segment.fits(length, self.index + len(self.slots), position):
            return False
        grown = position + ENTRY_HEADER_BYTES + length - self.position
        if self.slots and grown > GROUP_BYTES_MAX:
            return False
        self.slots.append(Slot(entry.header, length, position, context))
        self.buffers += (pack_header(entry.header, length), entry.body)
        return True

    def packed_slots(self) -> bytes:
        head = self.segment.head
        first = slot_sequence(head.number, self.index)
        return b"".join(
            pack_slot(slot, head.lineage, first + at) for at, slot in enumerate(self.slots)
        )


@dataclass(slots=True)
class Round:
    """`group` is written, and the slots of `slotted`; `alone` is rare, and syncs for itself."""

    handles: Handles
    group: Group | None = None
    slotted: Group | None = None
    alone: Callable[[], None] | None = None
    # Whether a queued operation, and not only a preparation for one, is done with this round.
    settles: bool = False
    # Whether entries are left to the kernel to write back (`durability: Relaxed`).
    relaxed: bool = False
    pinned: list[str] = field(default_factory=list)

    def write(self) -> None:
        """Into the page cache; the files stay open until `release`."""
        if self.alone is not None:
            self.alone()
        if self.group is not None:
            self._write(self.group.segment.path, self.group.position, self.group.buffers)
        if self.slotted is not None:
            segment = self.slotted.segment
            at = segment.slot_position(self.slotted.index)
            self._write(segment.path, at, [self.slotted.packed_slots()])

    def _write(self, path: str, position: int, buffers: list[Buffer]) -> None:
        if path not in self.pinned:
            self.handles.pin(path)
            self.pinned.append(path)
        with self.handles.use(path) as file:
            file.write(position, buffers)

    @property
    def unsynced(self) -> list[str]:
        """The files that a sync has to cover."""
        return [] if self.relaxed else self.pinned

    def sync(self) -> None:
        for path in self.unsynced:
            with self.handles.use(path) as file:
                file.sync()

    def release(self) -> None:
        while self.pinned:
            self.handles.unpin(self.pinned.pop())
