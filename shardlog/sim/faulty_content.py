"""The bytes of one simulated file: what the process reads, what a crash is certain to leave.

`cached` is `durable` with the `pending` writes done on it, in order; an allocation is a pending
write of no bytes at the new end.  A failed sync breaks that on purpose: the kernel drops what it
could not write and goes on showing it, so `cached` is then `stale` and a crash takes it away.

Sectors are counted only when a crash has to decide for each what became of it, or when one of them
cannot be read: the normal path is one slice assignment.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from shardlog.storage.files import SECTOR_BYTES

Alteration = Callable[[int, bytes], bytes]
"""From an offset in the damaged range, and the bytes found there, to as many others."""


class Content:
    """What an inode is on a real volume: it outlives its name while a handle is open."""

    __slots__ = ("cached", "covered", "durable", "pending", "stale", "unreadable")

    def __init__(self, durable: bytes = b"", unreadable: frozenset[int] = frozenset()) -> None:
        self.durable = bytearray(durable)
        self.cached = bytearray(durable)
        self.pending: list[tuple[int, bytes]] = []
        self.stale = False
        # Sectors of the medium that give an error, and those of them that a pending write replaces.
        self.unreadable = set(unreadable)
        self.covered: set[int] = set()

    # --- the process's side ----------------------------------------------------------------------

    def write(self, position: int, data: bytes) -> None:
        paint(self.cached, position, data)
        self.pending.append((position, data))
        if self.unreadable:
            for sector in self.unreadable:
                start = sector * SECTOR_BYTES
                if position <= start and start + SECTOR_BYTES <= position + len(data):
                    self.covered.add(sector)

    def readable(self, start: int, end: int) -> bool:
        return all(
            end <= sector * SECTOR_BYTES or (sector + 1) * SECTOR_BYTES <= start
            for sector in self.unreadable - self.covered
        )

    def writable(self, position: int, end: int) -> bool:
        """A sector that is written in part must be read first, to keep the rest of it."""
        first, last = position // SECTOR_BYTES, (end - 1) // SECTOR_BYTES
        torn_off = {first} if position % SECTOR_BYTES else set()
        if end % SECTOR_BYTES:
            torn_off.add(last)
        return torn_off.isdisjoint(self.unreadable - self.covered)

    def sync(self) -> None:
        for position, data in self.pending:
            paint(self.durable, position, data)
        self.pending.clear()
        if self.covered:
            self.unreadable -= self.covered
            self.covered.clear()

    def settle(self) -> None:
        """What a failed sync dropped is not shown any more."""
        if self.stale:
            self.cached = bytearray(self.durable)
            self.stale = False

    # --- what a crash or a failed sync leaves ----------------------------------------------------

    def crash(self, random: Random, luck: float) -> None:
        """What landed is what there is."""
        if self.pending:
            self.land_some(random, luck)
        self.settle()

    def land_some(self, random: Random, luck: float) -> None:
        """Each sector, and the length, has the state after some first part of its writes.

        Sectors are independent of each other and of the length; what lies behind the length is
        lost, and what lies before it and did not land reads as zeros.  The cache goes on showing
        what did not land: it is for the caller to take that away, or to tell that a sync failed.
        """
        self.stale = True
        if luck >= 1.0:
            self.sync()
            return
        if luck > 0.0:
            length = self._length_after(_first_part(random, len(self.pending)))
            durable = self.durable
            durable.extend(bytes(max(0, len(self.cached) - len(durable))))
            for sector, writes in self._by_sector().items():
                landed = _first_part(random, len(writes))
                start = sector * SECTOR_BYTES
                for position, data in writes[:landed]:
                    low = max(start, position)
                    high = min(start + SECTOR_BYTES, position + len(data))
                    durable[low:high] = data[low - position : high - position]
                if landed and sector in self.covered:
                    self.unreadable.discard(sector)
            del durable[length:]
        self.pending.clear()
        self.covered.clear()

    def _length_after(self, writes: int) -> int:
        ends = [position + len(data) for position, data in self.pending[:writes]]
        return max([len(self.durable), *ends])

    def _by_sector(self) -> dict[int, list[tuple[int, bytes]]]:
        """The pending writes by the sectors they touch, in order."""
        touched: dict[int, list[tuple[int, bytes]]] = {}
        for write in self.pending:
            position, data = write
            if data:
                last = (position + len(data) - 1) // SECTOR_BYTES
                for sector in range(position // SECTOR_BYTES, last + 1):
                    touched.setdefault(sector, []).append(write)
        return touched

    # --- damage ----------------------------------------------------------------------------------

    def damage(self, start: int, end: int, alter: Alteration) -> None:
        """Alter a range wherever it is kept, so that neither a sync nor a crash undoes it."""
        for image in (self.durable, self.cached):
            stop = min(end, len(image))
            if start < stop:
                image[start:stop] = alter(0, bytes(image[start:stop]))
        for number, (position, data) in enumerate(self.pending):
            low = max(start, position) - position
            high = min(end, position + len(data)) - position
            if low < high:
                altered = alter(position + low - start, data[low:high])
                self.pending[number] = (position, data[:low] + altered + data[high:])


def paint(image: bytearray, position: int, data: bytes) -> None:
    """Write; a gap between the end and the position becomes zeros."""
    if len(image) < position:
        image.extend(bytes(position - len(image)))
    image[position : position + len(data)] = data


def _first_part(random: Random, count: int) -> int:
    """How many of `count` landed, each number as likely as the others."""
    return int(random.random() * (count + 1))
