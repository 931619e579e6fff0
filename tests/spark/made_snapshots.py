"""Snapshots of nodes that no cluster would leave behind, made entry by entry."""

from __future__ import annotations

from collections.abc import Sequence

from shardlog.checksum import seal, seal_body
from shardlog.protocol.entry import GENESIS_CHECKSUM, Header, Kind, marker, sealed
from shardlog.protocol.header_bytes import pack_header
from shardlog.snapshots.archive import Archive, segment_name
from shardlog.snapshots.destination import Destination
from shardlog.snapshots.digest import digest_of
from shardlog.snapshots.gathering import Gathering
from shardlog.snapshots.manifest import Manifest, SegmentInfo, history_of
from shardlog.snapshots.rooms import Rooms
from shardlog.transport.batch import BatchBuilder

MADE_MS = 1_700_000_000_000
SESSION = 1


def body_of(values: Sequence[bytes]) -> bytes:
    builder = BatchBuilder()
    builder.extend(list(values))
    return bytes(builder.body())


class Made:
    """A log of one epoch that grows entry by entry, and becomes a snapshot."""

    def __init__(self, shard: str) -> None:
        self.shard = shard
        self._parent = GENESIS_CHECKSUM
        self._base = 0
        self._gathering = Gathering(0, GENESIS_CHECKSUM, Rooms())

    def append(self, request: int, values: Sequence[bytes]) -> Made:
        body = body_of(values)
        header = self._sealed(request, len(values), body)
        return self._add(header, body)

    def lose(self, request: int, count: int) -> Made:
        """An entry that was appended, and given up later."""
        lost = self._sealed(request, count, body_of([b"gone"] * count))
        return self._add(marker(seal, lost, self._parent, MADE_MS), b"")

    def _sealed(self, request: int, count: int, body: bytes) -> Header:
        return sealed(seal, 1, self._base, count, Kind.DATA, SESSION, request, MADE_MS + request,
                      self._parent, seal_body(body))  # fmt: skip

    def _add(self, header: Header, body: bytes) -> Made:
        self._gathering.add(header, memoryview(pack_header(header, len(body)) + body))
        self._parent, self._base = header.checksum, header.end
        return self

    def put(self, url: str, id_: str, node: str | None = None) -> Manifest:
        archive = Archive(Destination(url, make=True), self.shard)
        index = self._gathering.made()
        data = b"".join(self._gathering.taken())
        digest = digest_of(data)
        name = segment_name(index.base, index.end, digest)
        archive.destination.put(archive.segment_path(name), data)
        segments = (SegmentInfo.of(name, len(data), digest, index),)
        manifest = Manifest(
            id_, self.shard, node, MADE_MS, 0, self._base, self._base, history_of(segments), (),
            segments,
        )  # fmt: skip
        archive.destination.put(archive.manifest_name(id_), manifest.to_bytes())
        return manifest
