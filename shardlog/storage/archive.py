"""Headers at rest, for a replica that keeps only the latest in memory.

A stretch that cannot be read is told as the protocol wants it: from the end of the last entry that
can be read, in one piece for each epoch, since an epoch is all that is known of what stood there.
What is being repaired right now counts as repaired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shardlog.protocol.entry import Entry, Header, unreadable
from shardlog.protocol.history import History, epoch_at
from shardlog.storage.segments import Place, Segments


class StoredHeaders:
    """One look at a replica's files; `fresh` are entries on their way to them."""

    def __init__(
        self, segments: Segments, first: int, history: History, fresh: Mapping[int, Entry]
    ) -> None:
        self.segments = segments
        self.first = first
        self.history = history
        self.fresh = fresh

    def headers(self, start: int, end: int, most: int) -> list[Header]:
        """Up to `most` headers with a base in `[start, end)`, in order."""
        start = max(start, self.first)
        found = more = self.segments.headers_on(start, end, most)
        while more and len(found) < most:
            more = self.segments.headers_on(found[-1].end, end, most - len(found))
            found += more
        if len(found) == most:
            return found
        for header in self._from(found[-1].end if found else start, end):
            if len(found) == most:
                break
            if header.base >= start:
                found.append(header)
        return found

    def covering(self, offset: int) -> Header | None:
        """The header, or the unreadable stretch, whose range holds `offset`."""
        if not self.first <= offset < self.segments.end:
            return None
        place = self.segments.covering(offset)
        if place is not None:
            return place.slot.header
        for header in self._stretch(offset):
            if header.base <= offset < header.end:
                return header
        return None

    def _from(self, start: int, end: int) -> Iterator[Header]:
        at = start
        if start < end and self.segments.covering(start) is None:
            for header in self._stretch(start):
                if header.end > start:
                    yield header
                    at = header.end
        for each in self.segments.from_offset(at, end):
            if isinstance(each, Place):
                yield each.slot.header
            else:
                yield from self._pieces(*each)

    def _stretch(self, offset: int) -> Iterator[Header]:
        """The unreadable stretch around an offset, in its pieces."""
        segments = self.segments
        if segments.holding(offset) is None:
            return
        base = max(segments.readable_before(offset), self.first)
        yield from self._pieces(base, segments.readable_after(offset))

    def _pieces(self, base: int, end: int) -> Iterator[Header]:
        """`[base, end)`, split where an epoch begins and where a repair is under way."""
        cuts = sorted(span.first for span in self.history if base < span.first < end)
        for upto in (*cuts, end):
            while base < upto and base in self.fresh:
                yield self.fresh[base].header
                base = self.fresh[base].header.end
            if base < upto:
                yield unreadable(epoch_at(self.history, base), base, upto - base)
                base = upto
