"""What the tests of snapshots do with shards, and how they look into snapshots."""

from __future__ import annotations

from client.cluster import SHARD

from shardlog.client import Client, Record
from shardlog.client.records import EntryBatch
from shardlog.protocol.entry import Kind
from shardlog.snapshots.archive import Archive
from shardlog.snapshots.destination import Destination
from shardlog.snapshots.manifest import Manifest
from shardlog.snapshots.reading import Wanted, read_entries
from shardlog.snapshots.verifying import verify
from shardlog.transport.batch import Batch

SEGMENT_BYTES = 64 << 10


def archive_at(place: str, shard: str = SHARD) -> Archive:
    return Archive(Destination(place, make=True), shard)


async def fill(client: Client, batches: int, *, shard: str = SHARD, each: int = 20) -> None:
    """Batches of records of about 200 bytes."""
    async with client.producer(shard, batch_bytes=4096) as producer:
        for number in range(batches):
            await producer.append_many([b"%06d." % n + b"v" * 200 for n in range(each)])
            await producer.append(
                b"with all", b"key %d" % number, headers=(("name", b"x"),), timestamp_ms=number
            )


def records_of(archive: Archive, manifest: Manifest, wanted: Wanted | None = None) -> list[Record]:
    found: list[Record] = []
    for segment in manifest.segments:
        for entries in read_entries(archive, segment, wanted or Wanted()):
            for header, body in entries:
                if header.kind is Kind.DATA:
                    batch = Batch(body, header.count)
                    entry = EntryBatch(header.base, header.epoch, header.timestamp_ms, batch)
                    found += entry.records()
    return found


async def log_of(client: Client, shard: str = SHARD, end: int | None = None) -> list[Record]:
    return [record async for record in client.read(shard, end=end)]


def assert_sound(archive: Archive, manifest: Manifest) -> None:
    assert list(verify(archive, manifest)) == []
    assert archive.manifest(manifest.id) == manifest
