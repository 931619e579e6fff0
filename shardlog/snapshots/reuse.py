"""Which segments that are there already belong to the log, so that they need not be read again.

They follow each other by offsets and by checksums: each begins with an entry that names the last
one of the segment before as its parent.  So if the last of such a chain is an entry of the log, all
before it are.  Of several that begin alike the longest is taken; a short one at the end is read
again together with what follows it, lest many small snapshots leave many small segments.
What is short goes by how long a segment shall become.

A segment that a manifest names and that is not there, or not as long as it was, is made again as it
was if the log still has it: what is cut where it was cut has the same bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from shardlog.snapshots.archive import Archive, Piece
from shardlog.snapshots.failures import Damaged
from shardlog.snapshots.manifest import Manifest, SegmentInfo

SHORT_BYTES = 1 << 20


class Known:
    """The segments at a destination, by where they begin."""

    def __init__(self, archive: Archive, manifests: Sequence[Manifest], segment_bytes: int) -> None:
        self._archive = archive
        self._short_bytes = min(SHORT_BYTES, segment_bytes)
        self._described = {segment.name: segment for each in manifests for segment in each.segments}
        self.pieces: dict[str, Piece] = {}
        self._by_base: defaultdict[int, list[Piece]] = defaultdict(list)
        self._sizes: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for piece in archive.pieces():
            self.pieces[piece.name] = piece
            self._by_base[piece.base].append(piece)
            self._sizes[piece.base][piece.end] = piece.size
        for info in self._described.values():
            self._sizes[info.base][info.end] = info.size

    def chain(self, first: int, end: int) -> list[SegmentInfo]:
        """From the one that holds `first`, as far as they follow each other up to `end`."""
        found: list[SegmentInfo] = []
        fits = [piece for piece in self.pieces.values() if piece.base <= first < piece.end <= end]
        while (chosen := self._chosen(fits, found[-1] if found else None)) is not None:
            found.append(chosen)
            fits = [piece for piece in self._by_base[chosen.end] if piece.end <= end]
        while found and found[-1].end < end and found[-1].size < self._short_bytes:
            found.pop()
        return found

    def _chosen(self, fits: list[Piece], last: SegmentInfo | None) -> SegmentInfo | None:
        for piece in sorted(fits, key=lambda it: it.end, reverse=True):
            try:
                info = self._archive.described(piece, self._infos(piece))
            except Damaged:
                continue  # `verify` tells of it; it is read from the log anew
            if last is None or info.parent == last.head:
                return info
        return None

    def _infos(self, piece: Piece) -> list[SegmentInfo]:
        known = self._described.get(piece.name)
        return [known] if known is not None else []

    def cut(self, base: int, end: int) -> int | None:
        """Where the longest segment that begins at `base` ended, so that a new one can be the same.

        One that is to be followed by others is left out if it is short.
        """
        ends = [
            its
            for its, size in self._sizes.get(base, {}).items()
            if its <= end and (its == end or size >= self._short_bytes)
        ]
        return max(ends, default=None)
