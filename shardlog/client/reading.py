"""Reading a log: entries are fetched ahead of whoever consumes them, up to a bound.

A task asks for the next entries as soon as the last ones have been verified, so the node works
while the consumer does.  What is asked for is raw and committed; where the log ends a node waits
a while before it answers with nothing.  An entry that is not as it should be is asked for
again: the leader then verifies its copy first, and repairs it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from functools import partial
from types import TracebackType
from typing import Self

from shardlog.client.background import death_of, start
from shardlog.client.exchange import Exchange
from shardlog.client.failures import (
    Closed,
    CorruptLog,
    DeadlineExceeded,
    EntryLost,
    OffsetTrimmed,
    UnreadableBatch,
)
from shardlog.client.lookup import Lookup
from shardlog.client.patience import Deadline
from shardlog.client.portion import Portion
from shardlog.client.records import EntryBatch, FirstKept, LogEnd, Record, Start, Timestamp
from shardlog.client.verification import Continuity, Fetched, Lost, Mismatch
from shardlog.transport.batch import Batch
from shardlog.transport.compression import CompressionMissing
from shardlog.transport.failures import MalformedBatch
from shardlog.transport.frames import FIXED, Frame, FrameType, encode_read

_RESULT = FIXED[FrameType.READ_RESULT]
VERIFIED_READS_MAX = 5
"""So often an entry is asked for again that is not as it should be."""


class EntryStream:
    """Entries with records, in order: an async iterator that fetches from the first `next` on.

    `follow`: never ends.  Otherwise it ends where the log ended, by a quorum's word, when the
    reading began, or at `end` if that comes first.  `start` and `end` are offsets of records: the
    first entry may begin before the one, and the last end behind the other.
    """

    def __init__(
        self,
        exchange: Exchange,
        start: Start,
        end: int | None,
        deadline_ms: int,
        *,
        follow: bool,
        from_first_kept: bool,
        running: set[EntryStream],
    ) -> None:
        self.shard = exchange.route.shard
        self.start = 0
        """The offset that reading began with; known from the first item on."""
        self.end = end
        """Where it ends; known from the first item on."""
        self._exchange = exchange
        self._limits = exchange.limits
        self._lookup = Lookup(exchange)
        self._from = start
        self._deadline_ms = deadline_ms
        self._follow = follow
        # A trim may overtake who looked up where the log begins.
        self._from_first_kept = from_first_kept or isinstance(start, FirstKept)
        self._running = running
        self._at = Continuity(0)
        self._portion = Portion(exchange.limits)
        self._ready: deque[Fetched] = deque()
        self._ready_bytes = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._fetching: asyncio.Task[None] | None = None
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EntryBatch:
        while not self._ready:
            if self._closed:
                raise Closed("the reader is closed")
            if self._fetching is None:
                self._fetching = start(self._fetch())
                self._fetching.add_done_callback(self._fetched)
                self._running.add(self)
            if self._fetching.done():
                raise death_of(self._fetching) or StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        header, body = self._ready.popleft()
        self._ready_bytes -= len(body)
        self._room.set()
        try:
            batch = Batch(body, header.count, self._limits.plain_bytes_max)
        except (MalformedBatch, CompressionMissing) as failure:
            raise self._unreadable(header.base, header.end, failure) from failure
        return EntryBatch(header.base, header.epoch, header.timestamp_ms, batch)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop fetching.  Whoever waits for an entry is told that the stream is closed."""
        self._closed = True
        self._ready.clear()
        self._ready_bytes = 0
        self._news.set()
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)

    def _fetched(self, task: asyncio.Task[None]) -> None:
        self._running.discard(self)
        self._news.set()

    def records(self, entry: EntryBatch) -> Iterator[Record]:
        """Those of an entry that lie within the bounds of the stream."""
        found = entry.records(self.start, self.end)
        return self._checked(entry, found) if entry.batch.has_headers else found

    def _checked(self, entry: EntryBatch, records: Iterator[Record]) -> Iterator[Record]:
        """Headers are looked into only when their record is delivered."""
        try:
            yield from records
        except MalformedBatch as failure:
            raise self._unreadable(entry.base_offset, entry.end, failure) from failure

    def _unreadable(self, base: int, end: int, failure: Exception) -> UnreadableBatch:
        return UnreadableBatch(self.shard, base, end, str(failure))

    # --- the task --------------------------------------------------------------------------------

    async def _fetch(self) -> None:
        await self._begin()
        deadline = self._deadline()
        while self.end is None or self._at.next < self.end:
            await self._until_room()
            if await self._fetch_some():
                deadline = self._deadline()
            elif not self._follow and deadline.passed:
                raise DeadlineExceeded(f"reading {self.shard!r} to {self.end}", deadline.ms)

    async def _begin(self) -> None:
        deadline = self._deadline()
        where = self._from
        if not self._follow:
            confirmed = await self._lookup.end(deadline)
            self.end = confirmed if self.end is None else min(self.end, confirmed)
        if isinstance(where, Timestamp):
            where = (await self._lookup.locate(where.ms, deadline)).offset
        elif isinstance(where, FirstKept):
            where = (await self._lookup.locate(0, deadline)).first
        elif isinstance(where, LogEnd):
            where = self.end if self.end is not None else await self._lookup.end(deadline)
        self.start = where
        self._at = Continuity(where)

    async def _until_room(self) -> None:
        while self._ready_bytes >= self._limits.prefetch_bytes_max:
            self._room.clear()
            await self._room.wait()

    async def _fetch_some(self) -> int:
        """Ask once; how many entries came, control entries included."""
        try:
            frame = await self._read(self._at.next)
        except OffsetTrimmed as trimmed:
            if not self._from_first_kept or self._at.started:
                raise
            self.start = trimmed.first
            self._at = Continuity(trimmed.first)
            return 1
        try:
            return self._take(frame)
        except Mismatch as mismatch:
            await self._take_verified(mismatch)
            return 1

    def _take(self, frame: Frame) -> int:
        _, _, count, _ = _RESULT.unpack_from(frame.payload)
        try:
            found = self._at.take(frame.payload[_RESULT.size :], count)
        except Lost as lost:
            raise EntryLost(self.shard, lost.first, lost.end) from lost
        for fetched in found:
            if self.end is None or fetched.header.base < self.end:
                self._ready.append(fetched)
                self._ready_bytes += len(fetched.body)
                self._news.set()
        return int(count)

    async def _take_verified(self, mismatch: Mismatch) -> None:
        """One entry that the leader has read and verified; a repair may take it a moment."""
        backoff = self._exchange.backoff()
        for _ in range(VERIFIED_READS_MAX):
            try:
                self._take(await self._lookup.verified(self._at.next, self._deadline()))
                return
            except Mismatch as again:
                mismatch = again
            await asyncio.sleep(backoff.next_ms() / 1000)
        raise CorruptLog(self.shard, mismatch.offset, str(mismatch)) from mismatch

    async def _read(self, start: int) -> Frame:
        limits = self._limits
        request = partial(
            encode_read,
            start=start,
            entries_max=limits.read_entries_max,
            bytes_max=self._portion.bytes,
            tail=True,
        )
        what = f"reading {self.shard!r} at {start}"
        now = asyncio.get_running_loop().time
        begun = now()
        frame = await self._exchange.ask(what, request, self._deadline(), limits.tail_wait_ms)
        self._portion.answered(1000 * (now() - begun), len(frame.payload))
        return frame

    def _deadline(self) -> Deadline:
        return Deadline(self._deadline_ms, asyncio.get_running_loop().time)
