"""What a task reads: a range of offsets of one shard, from a snapshot or from the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from shardlog.snapshots.manifest import SegmentInfo

LIVE_OFFSETS = 1_000_000
"""So many offsets of a live log make a task, unless more tasks are asked for."""


@dataclass
class SnapshotRange(InputPartition):
    """`[start, end)` of a segment."""

    shard: str
    segment: SegmentInfo
    start: int
    end: int


@dataclass
class LiveRange(InputPartition):
    """`[start, end)` of a live log."""

    shard: str
    start: int
    end: int


def cut(start: int, end: int, parts: int) -> list[tuple[int, int]]:
    """About equal pieces, none of them empty."""
    parts = max(1, min(parts, end - start))
    edges = [start + (end - start) * number // parts for number in range(parts + 1)]
    return [(one, other) for one, other in pairwise(edges) if one < other]


def live_ranges(shard: str, start: int, end: int, least: int | None) -> list[LiveRange]:
    if start >= end:
        return []
    parts = max(least or 1, -(-(end - start) // LIVE_OFFSETS))
    return [LiveRange(shard, *each) for each in cut(start, end, parts)]


def snapshot_ranges(
    shard: str, segments: list[SegmentInfo], start: int, end: int, least: int | None
) -> list[SnapshotRange]:
    """One for each segment, or for parts of them if more are asked for."""
    found = [each for each in segments if each.end > start and each.base < end]
    parts = 1 if not found else -(-(least or 1) // len(found))
    return [
        SnapshotRange(shard, each, *piece)
        for each in found
        for piece in cut(max(start, each.base), min(end, each.end), parts)
    ]
