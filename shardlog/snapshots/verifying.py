"""Whether a snapshot is as it was written: every byte of it, and that it is one chain.

A marker for records that were given up is as it was written, and no damage; but whoever verifies
wants to know what is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from shardlog.snapshots.archive import Archive
from shardlog.snapshots.digest import is_digest_of
from shardlog.snapshots.failures import Damaged, ObjectMissing
from shardlog.snapshots.manifest import Manifest, SegmentInfo
from shardlog.snapshots.reading import GivenUp, block_entries, lost_among
from shardlog.snapshots.segment_bytes import HEAD, tail_bytes, unpack_index


def verify(
    archive: Archive, manifest: Manifest, on_read: Callable[[int], None] = lambda size: None
) -> Iterator[Damaged | GivenUp]:
    """All that is wrong, and what was given up.

    That segments follow each other the manifest was checked for.
    """
    for segment in manifest.segments:
        try:
            yield from verify_segment(archive, segment)
        except Damaged as failure:
            yield failure
        on_read(segment.size)


def require_there(archive: Archive, manifest: Manifest) -> None:
    """`Damaged` unless every segment is there with its size: one listing, nothing is read."""
    sizes = {piece.name: piece.size for piece in archive.pieces()}
    for info in manifest.segments:
        size = sizes.get(info.name)
        if size != info.size:
            how = "it is missing" if size is None else f"it has {size} bytes, not {info.size}"
            raise Damaged(archive.segment_url(info.name), how, info.base)


def verify_segment(archive: Archive, info: SegmentInfo) -> list[GivenUp]:
    """What was given up in it; `Damaged` unless it is as it was written."""
    url = archive.segment_url(info.name)
    try:
        data = archive.destination.get(archive.segment_path(info.name))
    except ObjectMissing as failure:
        raise Damaged(url, "it is missing", info.base) from failure
    if len(data) != info.size:
        raise Damaged(url, f"it has {len(data)} bytes, not {info.size}", info.base)
    sound = is_digest_of(info.digest, data)
    try:
        lost = _verify_entries(archive, info, data)
    except Damaged as failure:
        raise (
            failure if failure.offset is not None else Damaged(url, failure.reason, info.base)
        ) from failure
    if not sound:
        raise Damaged(url, "its digest is another", info.base)
    return lost


def _verify_entries(archive: Archive, info: SegmentInfo, data: bytes) -> list[GivenUp]:
    """The bytes' own checksums and the chain, which say where the damage is."""
    url = archive.segment_url(info.name)
    length = tail_bytes(url, data)
    if length > len(data) - HEAD.size:
        raise Damaged(url, "its index does not fit")
    whole = memoryview(data)
    index = unpack_index(url, data, whole[len(data) - length :], len(data))
    if SegmentInfo.of(info.name, len(data), info.digest, index) != info:
        raise Damaged(url, "it is another than the manifest says")
    parent = index.parent
    at = index.base
    records = 0
    lost: list[GivenUp] = []
    for block in index.blocks:
        if block.base != at or block.parent != parent:
            raise Damaged(url, "a block does not follow the one before", block.base)
        part = whole[block.position : block.position + block.length]
        found = block_entries(archive, info, block, part)
        at, parent = found[-1].header.end, found[-1].header.checksum
        records += block.records
        lost += lost_among(found)
    if at != index.end or parent != index.head or records != index.records:
        raise Damaged(url, "its entries are not those of its index", at)
    return lost
