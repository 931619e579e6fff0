"""Reading again what is at rest, to find what has decayed.

Two things can be bad about an entry.  Its body or header: then only another replica can help.  Or
the copy of its header in the slot: the entry itself is whole then and can be found, but if it
decayed later too it would look as if it had never been written, so the slot is to be written anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shardlog.protocol.entry import Header
from shardlog.storage.segments import Place, Segments


@dataclass(slots=True)
class Scrubbed:
    """What was read up to `end`.

    `bad` are offsets `[start, end)` of an entry, or of a stretch that cannot be read; `slotless`
    are headers of whole entries.
    """

    end: int
    entries: int = 0
    bytes: int = 0
    bad: list[tuple[int, int]] = field(default_factory=list)
    slotless: list[Header] = field(default_factory=list)


def scrub(segments: Segments, start: int, end: int, most: int, bytes_max: int) -> Scrubbed:
    """Up to `most` durable entries from `start` on; may be called in any thread.

    Those behind the first only as long as fewer than `bytes_max` were read.
    """
    found = Scrubbed(start)
    for each in segments.from_offset(start, end):
        if found.entries and (found.entries >= most or found.bytes >= bytes_max):
            return found
        found.entries += 1
        if not isinstance(each, Place):
            found.bad.append(each)
            found.end = each[1]
            continue
        slot = each.slot
        found.end = slot.header.end
        found.bytes += slot.length
        # At rest between pieces: what the kernel read in advance would hold up syncs for nothing.
        if each.segment.entry(slot.header, slot.position, slot.length, alone=True) is None:
            found.bad.append((slot.header.base, slot.header.end))
        elif not each.slotted:
            found.slotless.append(slot.header)
    found.end = max(found.end, end)
    return found
