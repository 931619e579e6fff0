"""Entries of a snapshot, each verified, as the blocks that were asked for hold them.

Everything that is read is checked against the chain, so a reader never sees a changed, missing or
foreign entry, wherever in the snapshot it begins.  Only some blocks are in memory at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shardlog.client.verification import Continuity, Fetched, Mismatch
from shardlog.protocol.entry import Kind
from shardlog.snapshots.archive import Archive
from shardlog.snapshots.failures import Damaged, ObjectMissing
from shardlog.snapshots.manifest import SegmentInfo
from shardlog.snapshots.segment_bytes import GIVEN_UP, OWN_TIMES, Block, Index

READ_BYTES = 4 << 20
"""So much is asked for at once, or one block if that is longer."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Offsets in `[start, end)`, and times that records may have; None is without a bound."""

    start: int = 0
    end: int | None = None
    earliest_ms: int | None = None
    latest_ms: int | None = None

    def has(self, base: int, end: int) -> bool:
        return end > self.start and (self.end is None or base < self.end)

    def has_times(self, earliest_ms: int, latest_ms: int, own_times: bool) -> bool:
        """Whether records of entries with such times may be wanted."""
        if own_times:
            return True
        if self.earliest_ms is not None and latest_ms < self.earliest_ms:
            return False
        return self.latest_ms is None or earliest_ms <= self.latest_ms

    def segment(self, info: SegmentInfo) -> bool:
        return self.has(info.base, info.end) and self.has_times(
            info.earliest_ms, info.latest_ms, info.own_times
        )


class GivenUp(NamedTuple):
    """Offsets whose records nobody has any more, by `shardlog ops accept-loss`."""

    first: int
    end: int

    def __str__(self) -> str:
        return f"[{self.first}, {self.end})"


def given_up(archive: Archive, segments: Iterable[SegmentInfo], wanted: Wanted) -> list[GivenUp]:
    """Those among what is wanted; only blocks that have some are read."""
    found: list[GivenUp] = []
    for info in segments:
        if not info.given_up or not wanted.has(info.base, info.end):
            continue
        blocks = [each for each in _index(archive, info).blocks if each.flags & GIVEN_UP]
        for group in _groups(blocks):
            for entries in _read(archive, info, group):
                found += lost_among(entries)
    return [each for each in found if wanted.has(each.first, each.end)]


def lost_among(entries: Iterable[Fetched]) -> list[GivenUp]:
    return [GivenUp(header.base, header.end) for header, _ in entries if header.kind is Kind.LOST]


def wanted_blocks(index: Index, wanted: Wanted) -> list[Block]:
    ends = [*(block.base for block in index.blocks[1:]), index.end]
    return [
        block
        for block, end in zip(index.blocks, ends, strict=True)
        if wanted.has(block.base, end)
        and wanted.has_times(block.earliest_ms, block.latest_ms, bool(block.flags & OWN_TIMES))
    ]


def read_entries(archive: Archive, info: SegmentInfo, wanted: Wanted) -> Iterator[list[Fetched]]:
    """Whole entries of all kinds; those at the edges may reach over what is wanted."""
    for blocks in _groups(wanted_blocks(_index(archive, info), wanted)):
        yield from _read(archive, info, blocks)


def _index(archive: Archive, info: SegmentInfo) -> Index:
    index = archive.index(info.name, info.size)
    if (index.base, index.end, index.head) != (info.base, info.end, info.head):
        raise Damaged(archive.segment_url(info.name), "it is another than the manifest says")
    return index


def _groups(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Neighbours that are read at once."""
    group: list[Block] = []
    for block in blocks:
        if group and (
            group[-1].position + group[-1].length != block.position
            or block.position + block.length - group[0].position > READ_BYTES
        ):
            yield group
            group = []
        group.append(block)
    if group:
        yield group


def _read(archive: Archive, info: SegmentInfo, blocks: list[Block]) -> Iterator[list[Fetched]]:
    start = blocks[0].position
    end = blocks[-1].position + blocks[-1].length
    try:
        data = archive.destination.get_range(archive.segment_path(info.name), start, end)
    except ObjectMissing as failure:
        raise Damaged(archive.segment_url(info.name), "it is missing") from failure
    for block in blocks:
        at = block.position - start
        yield block_entries(archive, info, block, data[at : at + block.length])


def block_entries(
    archive: Archive, info: SegmentInfo, block: Block, data: memoryview
) -> list[Fetched]:
    """All of a block, or `Damaged`."""
    if len(data) != block.length:
        raise Damaged(archive.segment_url(info.name), "it is shorter than it was", block.base)
    at = Continuity(block.base, block.parent)
    try:
        found = at.take_all(data, block.entries)
    except Mismatch as mismatch:
        raise Damaged(archive.segment_url(info.name), str(mismatch), mismatch.offset) from mismatch
    if len(found) != block.entries:
        raise Damaged(archive.segment_url(info.name), "an entry is damaged", at.next)
    return found
