"""How much of a log may go: by bytes and by age, in whole segments.

The leader asks its own files, trims, and replicates the first offset; followers drop what they can.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardlog.storage.segment import Segment
from shardlog.storage.segments import Segments


def trim_to(segments: Segments, bytes_max: int | None, oldest_ms: int | None) -> int:
    """The first offset to keep, so that what is left is small and young enough.

    A segment goes as a whole, when all of it is too old or the others alone are large enough; the
    last one stays.  What is not committed must stay too: that is for the caller to know.
    """
    items = segments.items
    total = sum(segment.head.size for segment in items)
    first = items[0].first if items else segments.end
    for at, following in enumerate(items[1:], 1):
        size = items[at - 1].head.size
        too_large = bytes_max is not None and total - size >= bytes_max
        if not too_large and not (oldest_ms is not None and _all_before(items, at - 1, oldest_ms)):
            break
        total -= size
        first = following.first
    return first


def _all_before(items: Sequence[Segment], at: int, oldest_ms: int) -> bool:
    """Whether everything in a segment is older.

    If its last entry cannot be read, the next one that can is not older than that was.
    """
    items[at].load_count()
    if not items[at].count:
        return True
    last = items[at].slot(items[at].count - 1)
    for behind in items[at + 1 :]:
        if last is not None:
            break
        behind.load_count()
        last = behind.slot_from(0)
    return last is not None and last.header.timestamp_ms < oldest_ms
