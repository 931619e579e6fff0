"""Deleting snapshots, and then the segments that no snapshot names any more.

Manifests go first: a snapshot whose manifest is gone is gone.  Segments are collected only while
nobody creates (see `marks`); what is left then is collected the next time.  If any manifest cannot
be read nobody knows what it names, and nothing is collected.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from shardlog.snapshots import marks
from shardlog.snapshots.archive import Archive
from shardlog.snapshots.failures import Damaged
from shardlog.snapshots.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Collected:
    """`why_not` says why segments were left that nobody names, if any may be."""

    snapshots: tuple[str, ...]
    segments: int = 0
    size: int = 0
    why_not: str | None = None


def delete(archive: Archive, ids: Sequence[str]) -> Collected:
    """Those snapshots, and what only they named."""
    for each in ids:
        archive.delete_manifest(each)
    return collect(archive, tuple(ids))


def surplus(
    manifests: Sequence[Manifest], keep: int, older_than_ms: int | None = None
) -> list[str]:
    """All but the last `keep`, counted apart for each node and for those of what led.

    With `older_than_ms`, a time since 1970, only those of them that were made before it.
    """
    seen: dict[str | None, int] = {}
    found = []
    for manifest in sorted(manifests, key=lambda it: (it.created_ms, it.id), reverse=True):
        seen[manifest.node] = seen.get(manifest.node, 0) + 1
        is_old = older_than_ms is None or manifest.created_ms < older_than_ms
        if seen[manifest.node] > keep and is_old:
            found.append(manifest.id)
    return found[::-1]


def collect(archive: Archive, deleted: tuple[str, ...] = ()) -> Collected:
    with marks.collecting(archive, secrets.token_hex(8)) as mark:
        if mark is None:
            return Collected(deleted, why_not="a snapshot is being created")
        try:
            manifests = archive.manifests()
        except Damaged as failure:
            return Collected(deleted, why_not=f"{failure}; delete that one by its ID first")
        named = {segment.name for each in manifests for segment in each.segments}
        count = size = 0
        for piece in archive.pieces():
            if piece.name not in named:
                if not mark.is_fresh:
                    return Collected(deleted, count, size, "it took too long to go on safely")
                archive.destination.delete(archive.segment_path(piece.name))
                count, size = count + 1, size + piece.size
        return Collected(deleted, count, size)
