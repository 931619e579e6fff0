"""What one sync covers, and the entries that stand in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from shardlog.protocol.entry import Entry, Header
from shardlog.storage.files import Buffer, File
from shardlog.storage.handles import Handles
from shardlog.storage.layout import (
    ENTRY_HEADER_BYTES,
    SLOT_BYTES,
    Context,
    Slot,
    join_slot,
    pack_header,
    slot_sequence,
)
from shardlog.storage.segment import GROUP_BYTES_MAX, Segment

ROUND_FILES_MAX = 2
"""A group may go to a new segment while the slots of the one before go to the old one."""


_slot: Callable[[tuple[Header, int, int, Context]], Slot] = partial(tuple.__new__, Slot)
"""One for each entry, without the detour through `Slot.__new__`, which is written in Python."""


class Append(NamedTuple):
    """One entry to be written, and the commit offset that rides along."""

    entry: Entry
    commit: int


append_of: Callable[[tuple[Entry, int]], Append] = partial(tuple.__new__, Append)


class Group:
    """Entries of one segment that are written together, and the slots they will get.

    `buffers` are `headers` and bodies by turns; the next entry goes to `after`.
    """

    __slots__ = ("after", "buffers", "headers", "index", "position", "segment", "slots",
                 "slots_max", "stop")  # fmt: skip

    def __init__(self, segment: Segment, index: int, position: int) -> None:
        self.segment = segment
        self.index = index
        self.position = position
        self.after = position
        self.slots: list[Slot] = []
        self.headers: list[bytes] = []
        self.buffers: list[Buffer] = []
        # The segment has no room for more slots than these, nor for anything behind `stop`.
        self.slots_max = segment.head.slots - index
        self.stop = segment.head.size

    def add(self, entry: Entry, context: Context) -> bool:
        """False if the segment has no room for it, or the group would become too long."""
        header, body = entry
        length = len(body)
        position = self.after
        after = position + ENTRY_HEADER_BYTES + length
        slots = self.slots
        if after > self.stop or len(slots) >= self.slots_max:
            return False
        if after - self.position > GROUP_BYTES_MAX and slots:
            return False
        slots.append(_slot((header, length, position, context)))
        packed = pack_header(header, length)
        self.headers.append(packed)
        self.buffers += (packed, body)
        self.after = after
        return True

    def packed_slots(self) -> bytes:
        head = self.segment.head
        lineage, first = head.lineage, slot_sequence(head.number, self.index)
        return b"".join(
            [
                join_slot(self.headers[at], slot.position, slot.context, lineage, first + at)
                for at, slot in enumerate(self.slots)
            ]
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
    # Whether its entries are old ones that will hardly be read soon.
    passing: bool = False
    # Whether the slots of its own group are durable too, so that nothing is left for the next.
    complete: bool = False
    # Open until `release`.
    pinned: dict[str, File] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """What is written, but for what `alone` does."""
        slots = len(self.slotted.slots) * SLOT_BYTES if self.slotted else 0
        return slots + (self.group.after - self.group.position if self.group else 0)

    def write(self) -> None:
        """Into the page cache; the files stay open until `release`."""
        if self.alone is not None:
            self.alone()
        if self.group is not None:
            self._write(self.group.segment.path, self.group.position, self.group.buffers)
        if self.slotted is not None:
            self._write_slots(self.slotted)

    def _write_slots(self, group: Group) -> None:
        segment = group.segment
        at = segment.slot_position(group.index)
        self._write(segment.path, at, [group.packed_slots()])

    def _write(self, path: str, position: int, buffers: Sequence[Buffer]) -> None:
        file = self.pinned.get(path)
        if file is None:
            file = self.pinned[path] = self.handles.pin(path)
        file.write(position, buffers)

    @property
    def unsynced(self) -> Collection[File]:
        """The files that a sync has to cover."""
        return () if self.relaxed else self.pinned.values()

    def sync(self) -> None:
        for file in self.unsynced:
            file.sync()
        group = self.group
        if self.passing and group is not None:
            # From before its beginning on: the page there was only half written the last time.
            start = max(group.position - GROUP_BYTES_MAX, group.segment.head.body_start)
            self.pinned[group.segment.path].drop(start, group.after - start)

    def complete_group(self) -> None:
        """After its sync, when nothing waits: the slots, and a sync of their own."""
        assert self.group is not None
        self._write_slots(self.group)
        self.sync()
        self.complete = True

    def release(self) -> None:
        while self.pinned:
            self.handles.unpin(self.pinned.popitem()[0])
