"""Appending: records become batches, batches become requests of an exactly-once session.

A batch leaves at once if no other is under way.  Else it leaves when they are all answered, when it
is full, or when its oldest record has lingered; if as many requests are unanswered as may be, it
goes on filling up.  So a busy producer makes larger batches by itself, and a lone record waits for
nothing.  All that waits is bounded by `buffer_bytes_max`, which one call may exceed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

from shardlog.client.background import typed
from shardlog.client.batching import (
    OVERHEAD_BYTES,
    Gathering,
    Group,
    Octets,
    Request,
    check_record,
    checked_columns,
    fail,
    futures_of,
    pieces,
    record_bytes,
)
from shardlog.client.delivery import Delivery
from shardlog.client.exchange import Exchange
from shardlog.client.failures import (
    BufferFull,
    ClientFailure,
    Closed,
    DeadlineExceeded,
    InvalidArgument,
    RecordTooLarge,
)
from shardlog.client.limits import REQUESTS_MAX
from shardlog.client.records import Range
from shardlog.client.unseen import UnseenFailures
from shardlog.transport.batch import Headers
from shardlog.transport.compression import Compression, CompressionMissing, compress


class Producer:
    """Appends to one shard, in the order of the calls; made by `Client.producer`.

    A future that is dropped loses nothing: `flush` and `close` raise the first failure since the
    last `flush` that nobody has seen in its future.
    """

    def __init__(
        self,
        exchange: Exchange,
        *,
        linger_ms: float,
        batch_bytes: int,
        compression: Compression,
        inflight_requests_max: int,
        buffer_bytes_max: int,
        deadline_ms: int,
        on_closed: Callable[[Producer], None],
    ) -> None:
        if not 1 <= inflight_requests_max <= REQUESTS_MAX:
            raise InvalidArgument(f"inflight_requests_max is between 1 and {REQUESTS_MAX}")
        if batch_bytes < 1 or buffer_bytes_max < 1 or deadline_ms < 1 or linger_ms < 0:
            raise InvalidArgument("sizes and times of a producer are positive")
        if batch_bytes > exchange.limits.record_bytes_max:
            raise InvalidArgument(f"batch_bytes is {exchange.limits.record_bytes_max} at most")
        if compression is not Compression.NONE:
            try:
                compress(compression, b"")
            except CompressionMissing as failure:
                raise InvalidArgument(str(failure)) from failure
        self.shard = exchange.route.shard
        self.buffered_bytes = 0
        """What has not been settled yet."""
        self._record_bytes_max = exchange.limits.record_bytes_max
        self._linger_s = linger_ms / 1000
        self._batch_bytes = batch_bytes
        self._compression = compression
        self._buffer_bytes_max = buffer_bytes_max
        self._deadline_ms = deadline_ms
        self._on_closed = on_closed
        self._delivery = Delivery(exchange, inflight_requests_max, deadline_ms, self._settled)
        self._loop = asyncio.get_running_loop()
        self._gathering: Gathering | None = None
        self._lingering: asyncio.Handle | None = None
        self._lingers = False  # while others are under way
        self._ripe = False  # has lingered, and waits for an answer to others
        self._unseen: UnseenFailures[asyncio.Future[Any]] = UnseenFailures(_is_seen)
        self._closed = False
        self._change: asyncio.Future[None] | None = None

    @property
    def session(self) -> int:
        """The session in use; 0 while there is none."""
        return self._delivery.session

    @property
    def has_room(self) -> bool:
        """Whether `until_room` would return at once."""
        return self._closed or self.buffered_bytes < self._buffer_bytes_max

    # --- appending -------------------------------------------------------------------------------

    def send(
        self,
        value: Octets,
        key: Octets | None = None,
        *,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[int]:
        """Append a record; the future has its offset.

        Raises `InvalidRecord` if it cannot be appended, and `BufferFull` if there is no room.
        """
        if (
            type(value) is not bytes
            or (key is not None and type(key) is not bytes)
            or headers != ()
            or timestamp_ms is not None
        ):
            value, key, headers = check_record(value, key, headers, timestamp_ms)
        size = record_bytes(value, key, headers)
        if size > self._record_bytes_max:
            raise RecordTooLarge(size, self._record_bytes_max)
        self._check_room()
        gathering = self._gathering
        if gathering is not None and not (
            gathering.takes(timestamp_ms) and gathering.gathered_bytes + size <= self._batch_bytes
        ):
            self._seal()
            gathering = None
        if gathering is None:
            gathering = self._begin()
        before = gathering.gathered_bytes
        future: asyncio.Future[int] = self._loop.create_future()
        gathering.add(value, key, timestamp_ms, headers, future)
        after = gathering.gathered_bytes
        self.buffered_bytes += after - before
        if after >= self._batch_bytes:
            self._seal()
        return future

    def send_many(
        self,
        values: Iterable[Octets],
        keys: Iterable[Octets | None] | None = None,
        headers: Iterable[Headers] | None = None,
    ) -> asyncio.Future[list[Range]]:
        """Append many records, with one future for all: `keys` and `headers` are one for each.

        It has the ranges of offsets that they got, in the order of the values.  Raises as `send`
        does, and then none of them is appended; a future that fails says nothing of the others.
        """
        whole = checked_columns(values, keys, headers)
        self._check_room()
        future: asyncio.Future[list[Range]] = self._loop.create_future()
        if not whole.values:
            future.set_result([])
            return future
        total = whole.content_bytes
        if total > self._record_bytes_max:
            longest = max(whole.sizes())
            if longest > self._record_bytes_max:
                raise RecordTooLarge(longest, self._record_bytes_max)
        gathering = self._gathering
        if gathering is not None and not gathering.takes(None):
            self._seal()
            gathering = None
        room = self._batch_bytes - (gathering.gathered_bytes if gathering else 0)
        if total + OVERHEAD_BYTES * len(whole.values) <= room:
            parts = [whole]
        else:
            parts = pieces(whole, room, self._batch_bytes)
        group = Group(future, len(parts))
        for part in parts:
            gathering = self._gathering or self._begin()
            before = gathering.gathered_bytes
            gathering.add_many(part, group)
            self.buffered_bytes += gathering.gathered_bytes - before
            if len(parts) > 1 and part is not parts[-1]:
                self._seal()
        gathering = self._gathering
        if gathering is not None and gathering.gathered_bytes >= self._batch_bytes:
            self._seal()
        return future

    async def append(
        self,
        value: Octets,
        key: Octets | None = None,
        *,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> int:
        """Append a record, waiting for room if need be, and return its offset."""
        if self.buffered_bytes >= self._buffer_bytes_max:
            await self.until_room()
        return await self.send(value, key, headers=headers, timestamp_ms=timestamp_ms)

    async def append_many(
        self,
        values: Iterable[Octets],
        keys: Iterable[Octets | None] | None = None,
        headers: Iterable[Headers] | None = None,
    ) -> list[Range]:
        """Append many records, waiting for room if need be, and return their offsets."""
        await self.until_room()
        return await self.send_many(values, keys, headers)

    async def until_room(self) -> None:
        """Return when `send` and `send_many` take more; `DeadlineExceeded` if it takes too long."""
        if self.has_room:
            return
        try:
            async with asyncio.timeout(self._deadline_ms / 1000):
                while not self.has_room:
                    await self._changed()
        except TimeoutError as failure:
            what = f"finding room for {self.shard!r}"
            raise DeadlineExceeded(what, self._deadline_ms) from failure

    async def flush(self) -> None:
        """Send what is gathered, wait for all answers; raises the first failure nobody has seen."""
        if self._gathering is not None:
            self._seal()
        for request in self._delivery.unsettled:
            while not request.settled:
                await self._changed()
        failure = self._unseen.take()
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Flush, then end; the session is left to be forgotten."""
        if self._closed:
            return
        try:
            await self.flush()
        finally:
            self._closed = True
            self._on_closed(self)
            if self._gathering is not None:
                self._seal()
            await self._delivery.close()
            self._unseen.take()  # they fail because it is closed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """What went wrong inside matters more than what `close` has to tell."""
        try:
            await self.close()
        except ClientFailure:
            if value is None:
                raise

    # --- batches ---------------------------------------------------------------------------------

    def _check_room(self) -> None:
        if self._closed:
            raise Closed("the producer is closed")
        if self.buffered_bytes >= self._buffer_bytes_max:
            raise BufferFull(f"{self.buffered_bytes} bytes wait to be appended to {self.shard!r}")

    def _begin(self) -> Gathering:
        made = Gathering(self._loop.time() + self._deadline_ms / 1000)
        self._gathering = made
        self._lingers = self._linger_s > 0 and not self._delivery.is_idle
        if self._lingers:
            self._lingering = self._loop.call_later(self._linger_s, self._lingered)
        else:
            self._lingering = self._loop.call_soon(self._lingered)
        return made

    def _lingered(self) -> None:
        self._lingering = None
        if self._delivery.is_free:
            self._seal()
        else:
            self._ripe = True

    def _seal(self) -> None:
        gathering, self._gathering = self._gathering, None
        self._lingers = self._ripe = False
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        if gathering is None:
            return
        try:
            request = gathering.sealed(self._compression)
        except Exception as failure:
            fail(gathering.told, typed(failure))
            self.buffered_bytes -= gathering.gathered_bytes
            self._unseen.add(typed(failure), futures_of(gathering.told))
            return
        self.buffered_bytes += len(request.body) - gathering.gathered_bytes
        self._delivery.put(request)

    def _settled(self, request: Request, failure: ClientFailure | None) -> None:
        self.buffered_bytes -= len(request.body)
        if failure is not None:
            self._unseen.add(failure, futures_of(request.told))
        if (self._ripe and (failure is not None or self._delivery.is_free)) or (
            self._lingers and self._delivery.is_idle
        ):
            self._seal()
        if self._change is not None:
            change, self._change = self._change, None
            change.set_result(None)

    async def _changed(self) -> None:
        """Return when a request has been settled."""
        if self._change is None:
            self._change = self._loop.create_future()
        await asyncio.shield(self._change)


def _is_seen(future: asyncio.Future[Any]) -> bool:
    """Whether its exception has been retrieved: what asyncio keeps to log those that were not."""
    return not future.cancelled() and not future._log_traceback
