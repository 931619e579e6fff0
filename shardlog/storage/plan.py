"""How large the next segment is made.

The first is small, so that an idle shard takes little room; each is twice as large as the one
before, up to a bound.  The share of slots follows from the mean size of the entries written last.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardlog.storage.layout import ENTRY_HEADER_BYTES, SLOT_BYTES, SLOTS_START
from shardlog.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class Plan:
    """Every bound of a replica's files.

    `zeroed_bytes` of a new segment's entries are written out in advance, so that their first sync
    moves no metadata.
    """

    size_min: int = 512 << 10
    size_max: int = 64 << 20
    slots_min: int = 512
    slots_max: int = 1 << 18
    zeroed_bytes: int = 256 << 10

    def next(self, last: Segment | None, length: int, lost: int = 0) -> tuple[int, int]:
        """Slots and size of a segment that follows `last` and takes a body of `length` first.

        It has more slots than the `lost` ones that it begins with.
        """
        if last is None:
            slots, size = self.slots_min, self.size_min
        else:
            size = min(max(last.head.size * 2, self.size_min), self.size_max)
            used = max(last.position - last.head.body_start, 1)
            mean = used // max(last.count, 1) + SLOT_BYTES
            slots = min(max(size // mean, self.slots_min), self.slots_max)
        slots = max(slots, lost + 1)
        least = SLOTS_START + slots * SLOT_BYTES + ENTRY_HEADER_BYTES + length
        return slots, max(size, least)
