"""How much of a log may go: by bytes and by age, in whole segments.

The leader asks its own files, trims, and replicates the first offset; followers drop what they can.
"""

from __future__ import annotations

from itertools import pairwise

from shardlog.storage.segments import Segments


def trim_to(segments: Segments, bytes_max: int | None, oldest_ms: int | None) -> int:
    """The first offset to keep, so that what is left is small and young enough.

    A segment goes as a whole, when all of it is too old or the others alone are large enough; the
    last one stays.
    """
    items = segments.items
    total = sum(segment.head.size for segment in items)
    first = items[0].first if items else segments.end
    for segment, following in pairwise(items):
        segment.load_count()
        last = segment.last_readable()
        latest_ms = last.header.timestamp_ms if last else 0
        too_large = bytes_max is not None and total - segment.head.size >= bytes_max
        if not too_large and (oldest_ms is None or latest_ms >= oldest_ms):
            break
        total -= segment.head.size
        first = following.first
    return first
