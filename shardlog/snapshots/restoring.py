"""A snapshot's records into a shard that is made for them.

Batches are appended as they are, in order, under one session: the first one that was ever opened
in the new log, with the number of the batch in the snapshot as the number of the request.  So a
restore that was interrupted, or that runs twice, appends every batch once: how far it got stands in
the last entry of the log.  Records without a time of their own are given their entry's, else they
would seem to be of today.

Where the old log had a control entry the new one gets one too, by opening a session that nobody
uses: so a log that was kept from its beginning has the same offsets again, as long as no election
comes in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from shardlog.client.failures import ClientFailure
from shardlog.client.verification import Fetched
from shardlog.protocol.entry import Kind
from shardlog.protocol.sessions import session_of
from shardlog.snapshots.archive import Archive
from shardlog.snapshots.failures import Damaged, NotPossible, SnapshotFailure
from shardlog.snapshots.manifest import Manifest
from shardlog.snapshots.reading import Wanted, given_up, read_entries
from shardlog.transport.batch import plain_content, with_timestamps
from shardlog.transport.compression import CompressionMissing
from shardlog.transport.failures import MalformedBatch

if TYPE_CHECKING:
    from shardlog.client.client import Client
    from shardlog.client.numbered import NumberedProducer
    from shardlog.client.raw import RawEntry, RawReader

PADS_MAX = 128
"""So many control entries in a row are made up for: half of the sessions that a leader keeps."""
LOOK_BACK = 64


@dataclass(slots=True)
class Restored:
    """`records` are restored, `skipped` of them by an earlier attempt; `moved` have new offsets.

    `given_up` offsets had records that were lost before the snapshot was taken.
    """

    records: int = 0
    skipped: int = 0
    moved: int = 0
    given_up: int = 0


async def restore(
    client: Client,
    archive: Archive,
    manifest: Manifest,
    shard: str,
    *,
    deadline_ms: int | None = None,
    on_progress: Callable[[Restored], None] = lambda restored: None,
) -> Restored:
    """Into `shard`, which must be there, with nothing in it but an earlier attempt at the same."""
    target = client.raw(shard, deadline_ms=deadline_ms)
    session = await _session(client, target, shard, deadline_ms)
    last, skipped = await _held(archive, manifest, target, session)
    restored = Restored(skipped, skipped)
    on_progress(restored)
    lost = await asyncio.to_thread(given_up, archive, manifest.segments, Wanted())
    restored.given_up = sum(each.end - each.first for each in lost)
    async with client.numbered(shard, session, last, deadline_ms=deadline_ms) as producer:
        work = _Restoring(client, target, producer, restored, await target.end())
        batches = _batches(archive, manifest, last)
        try:
            while (found := await asyncio.to_thread(next, batches, None)) is not None:
                await work.append(found)
                on_progress(restored)
        except SnapshotFailure:
            await producer.flush()  # what came before it is sound, and is counted
            raise
    await work.done()
    on_progress(restored)
    return restored


async def held(
    client: Client,
    archive: Archive,
    manifest: Manifest,
    shard: str,
    *,
    deadline_ms: int | None = None,
) -> int:
    """How many records of the snapshot `shard` has by now, which is left as it is."""
    target = client.raw(shard, deadline_ms=deadline_ms)
    session = await _first_session(target)
    return 0 if session is None else (await _held(archive, manifest, target, session))[1]


async def _held(
    archive: Archive, manifest: Manifest, target: RawReader, session: int
) -> tuple[int, int]:
    """How many batches an earlier attempt at the same appended, and records."""
    newest = await _newest(target, await target.first())
    if newest is None:
        return 0, 0
    if newest.header.session != session:
        raise NotPossible(f"{target.shard!r} has records that do not come from a restore")
    last = newest.header.request
    batches = _batches(archive, manifest, max(0, last - 1))
    await _check_same(target.shard, newest, await asyncio.to_thread(next, batches, None))
    return last, await asyncio.to_thread(_records_of, manifest, archive, last)


class _Batch:
    """A batch of the snapshot as it goes into the new log, and where it stood."""

    __slots__ = ("base", "body", "count")

    def __init__(self, name: str, fetched: Fetched) -> None:
        header = fetched.header
        self.base, self.count = header.base, header.count
        try:
            self.body = with_timestamps(fetched.body, header.timestamp_ms)
        except (MalformedBatch, CompressionMissing) as failure:
            raise Damaged(name, str(failure), header.base) from failure


class _Restoring:
    """Appends, and makes up for control entries."""

    def __init__(
        self,
        client: Client,
        target: RawReader,
        producer: NumberedProducer,
        restored: Restored,
        end: int,
    ) -> None:
        self._client = client
        self._target = target
        self._producer = producer
        self._restored = restored
        self._end = end
        """Where the next batch will stand, if nothing comes in between."""
        self._latest: asyncio.Future[int] | None = None
        self._latest_count = 0

    async def append(self, batch: _Batch) -> None:
        if batch.base > self._end:
            await self._pad(batch.base)
        told = await self._producer.append(batch.body, batch.count)
        told.add_done_callback(partial(self._settled, batch.base, batch.count))
        self._latest, self._latest_count = told, batch.count
        self._end += batch.count

    async def _pad(self, base: int) -> None:
        """Up to there, if it is not too far, and if nothing else has come in between."""
        await self.done()
        if base - self._end > PADS_MAX:
            return
        while self._end < base:
            await self._client.register(self._target.shard)
            self._end = await self._target.end()

    async def done(self) -> None:
        """All that was appended is acknowledged, and where it ended is known."""
        await self._producer.flush()
        if self._latest is not None:
            with suppress(ClientFailure):  # appended, but where is forgotten
                self._end = await self._latest + self._latest_count
            self._latest = None

    def _settled(self, base: int, count: int, told: asyncio.Future[int]) -> None:
        if told.cancelled() or told.exception() is not None:
            return
        self._restored.records += count
        if told.result() != base:
            self._restored.moved += count


# --- the snapshot --------------------------------------------------------------------------------


def _batches(archive: Archive, manifest: Manifest, skipped: int) -> Iterator[_Batch]:
    """Those with records, but the first so many; whole segments of these are not read."""
    for segment in manifest.segments:
        if segment.batches <= skipped:
            skipped -= segment.batches
            continue
        for entries in read_entries(archive, segment, Wanted()):
            for fetched in entries:
                if fetched.header.kind is not Kind.DATA:
                    continue
                if skipped:
                    skipped -= 1
                else:
                    yield _Batch(archive.segment_url(segment.name), fetched)


def _records_of(manifest: Manifest, archive: Archive, batches: int) -> int:
    """How many records the first so many batches have."""
    found = 0
    for segment in manifest.segments:
        if segment.batches <= batches:
            batches -= segment.batches
            found += segment.records
            continue
        if not batches:
            break  # the next one is not needed, and may be damaged
        for entries in read_entries(archive, segment, Wanted()):
            for fetched in entries:
                if batches and fetched.header.kind is Kind.DATA:
                    batches -= 1
                    found += fetched.header.count
        break
    return found


# --- the new log ---------------------------------------------------------------------------------


async def _session(client: Client, target: RawReader, shard: str, deadline_ms: int | None) -> int:
    """The first that was opened in the log, whoever opened it."""
    found = await _first_session(target)
    if found is None:
        await client.register(shard, deadline_ms=deadline_ms)
        found = await _first_session(target)
    if found is None:
        raise NotPossible(f"{shard!r} has lost the session of its restore")
    return found


async def _first_session(target: RawReader) -> int | None:
    first = await target.first()
    if first:
        raise NotPossible(f"{target.shard!r} has been trimmed up to {first}: it is no new shard")
    async for entries in target.entries(0, await target.end()):
        for entry in entries:
            if entry.header.kind is Kind.REGISTER:
                return session_of(entry.header)
            if entry.header.kind is Kind.DATA:
                raise NotPossible(f"{target.shard!r} has records that do not come from a restore")
    return None


async def _newest(target: RawReader, first: int) -> RawEntry | None:
    """The last entry with records."""
    end = await target.end()
    back = LOOK_BACK
    while True:
        start = max(first, end - back)
        newest: RawEntry | None = None
        async for entries in target.entries(start, end):
            for entry in entries:
                if entry.header.kind is Kind.DATA:
                    newest = entry
        if newest is not None or start == first:
            return newest
        back *= 4


async def _check_same(shard: str, newest: RawEntry, batch: _Batch | None) -> None:
    """What an earlier attempt appended last is the batch of that number."""
    if batch is None or batch.count != newest.header.count:
        same = False
    else:
        same = plain_content(newest.body) == plain_content(batch.body)
    if not same:
        raise NotPossible(f"{shard!r} has records that are not those of this snapshot")
