"""The client for scripts: the same names, and calls that return when they are done.

An event loop runs in a thread of its own, and every call is handed to it.  Readers cross over once
for each batch, not for each record.  Objects may be used from several threads.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from shardlog.client import client as asynchronous
from shardlog.client import producer as producing
from shardlog.client.failures import Closed
from shardlog.client.limits import LIMITS, REQUESTS_MAX, ClientLimits
from shardlog.client.reading import EntryStream
from shardlog.client.records import EntryBatch, Range, Record, Start
from shardlog.transport.batch import Headers
from shardlog.transport.compression import Compression

T = TypeVar("T")
CALLS_MAX = 4096


class LoopThread:
    """An event loop that runs until it is ended.  Whatever was handed to it ends before it does."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._open = True
        self._lock = threading.Lock()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="shardlog client", daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        return self._open

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.run_until_complete(self._cancel_all())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    async def _cancel_all(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:
            if self._open:
                return asyncio.run_coroutine_threadsafe(self._told(work), self.loop)
        work.close()
        raise Closed("the client is closed")

    async def _told(self, work: Coroutine[Any, Any, T]) -> T:
        """Whoever waits when the loop ends hears of it."""
        try:
            return await work
        except asyncio.CancelledError:
            if self._stopping:
                raise Closed("the client is closed") from None
            raise

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """What it returns or raises; interrupted, it is cancelled."""
        return _result(self.submit(work))

    def call(self, function: Callable[[], T]) -> T:
        """A plain call, made within the loop."""

        async def within() -> T:
            return function()

        return self.wait(within())

    def end(self, last: Coroutine[Any, Any, None]) -> None:
        """Take no more work, do this behind what was taken, and stop; once."""
        with self._lock:
            if not self._open:
                last.close()
                return
            self._open = False
            future = asyncio.run_coroutine_threadsafe(last, self.loop)
        try:
            _result(future)
        finally:
            self._stopping = True
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()


def _result(future: Future[T]) -> T:
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


class Client:
    """`shardlog.client.Client` for scripts; a context manager."""

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        tls_name: str | None = None,
        limits: ClientLimits = LIMITS,
        name: str | None = None,
    ) -> None:
        self._thread = LoopThread()
        self._limits = limits
        self._producers: weakref.WeakSet[Producer] = weakref.WeakSet()
        try:
            self._client = self._thread.call(
                lambda: asynchronous.Client(
                    url, tls=tls, tls_name=tls_name, limits=limits, name=name
                )
            )
        except BaseException:
            self._thread.end(asyncio.sleep(0))
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Flush all producers, end all readers; raises what a producer has to tell."""
        self._thread.end(self._close())

    async def _close(self) -> None:
        closing = [producer.finish() for producer in self._producers]
        found = await asyncio.gather(*closing, return_exceptions=True)
        await self._client.close()
        for failure in found:
            if isinstance(failure, BaseException):
                raise failure

    def producer(
        self,
        shard: str,
        *,
        linger_ms: float = 2,
        batch_bytes: int = 256 << 10,
        compression: Compression = Compression.NONE,
        inflight_requests_max: int = REQUESTS_MAX,
        buffer_bytes_max: int = 32 << 20,
        deadline_ms: int | None = None,
    ) -> Producer:
        def make() -> Producer:
            made = self._client.producer(
                shard,
                linger_ms=linger_ms,
                batch_bytes=batch_bytes,
                compression=compression,
                inflight_requests_max=inflight_requests_max,
                buffer_bytes_max=buffer_bytes_max,
                deadline_ms=deadline_ms,
            )
            known_ms = self._limits.deadline_ms if deadline_ms is None else deadline_ms
            producer = Producer(self._thread, made, known_ms)
            self._producers.add(producer)
            return producer

        return self._thread.call(make)

    def batches(
        self,
        shard: str,
        start: Start = 0,
        end: int | None = None,
        *,
        deadline_ms: int | None = None,
        from_first_kept: bool = False,
    ) -> Iterator[EntryBatch]:
        return self._each(
            self._client.batches(
                shard, start, end, deadline_ms=deadline_ms, from_first_kept=from_first_kept
            )
        )

    def tail_batches(
        self,
        shard: str,
        start: Start = 0,
        *,
        deadline_ms: int | None = None,
        from_first_kept: bool = False,
    ) -> Iterator[EntryBatch]:
        return self._each(
            self._client.tail_batches(
                shard, start, deadline_ms=deadline_ms, from_first_kept=from_first_kept
            )
        )

    def read(
        self,
        shard: str,
        start: Start = 0,
        end: int | None = None,
        *,
        deadline_ms: int | None = None,
        from_first_kept: bool = False,
    ) -> Iterator[Record]:
        stream = self._client.batches(
            shard, start, end, deadline_ms=deadline_ms, from_first_kept=from_first_kept
        )
        return self._records(stream)

    def tail(
        self,
        shard: str,
        start: Start = 0,
        *,
        deadline_ms: int | None = None,
        from_first_kept: bool = False,
    ) -> Iterator[Record]:
        stream = self._client.tail_batches(
            shard, start, deadline_ms=deadline_ms, from_first_kept=from_first_kept
        )
        return self._records(stream)

    def locate(self, shard: str, timestamp_ms: int, *, deadline_ms: int | None = None) -> int:
        return self._thread.wait(self._client.locate(shard, timestamp_ms, deadline_ms=deadline_ms))

    def first(self, shard: str, *, deadline_ms: int | None = None) -> int:
        return self._thread.wait(self._client.first(shard, deadline_ms=deadline_ms))

    def end(self, shard: str, *, deadline_ms: int | None = None) -> int:
        return self._thread.wait(self._client.end(shard, deadline_ms=deadline_ms))

    def _each(self, stream: EntryStream) -> Iterator[EntryBatch]:
        try:
            while (batch := self._thread.wait(_next(stream))) is not None:
                yield batch
        finally:
            with suppress(Closed):
                self._thread.wait(stream.aclose())

    def _records(self, stream: EntryStream) -> Iterator[Record]:
        for batch in self._each(stream):
            yield from stream.records(batch)


async def _next(stream: EntryStream) -> EntryBatch | None:
    return await anext(stream, None)


class Producer:
    """`shardlog.client.Producer` for scripts.  `send` gives futures of `concurrent.futures`.

    What is sent is appended in the order of the calls; while `CALLS_MAX` of them are not answered
    the next one waits.
    """

    def __init__(self, thread: LoopThread, producer: producing.Producer, deadline_ms: int) -> None:
        self._thread = thread
        self._producer = producer
        self._deadline_ms = deadline_ms
        self._calls = threading.BoundedSemaphore(CALLS_MAX)
        self._order = asyncio.Lock()
        self.shard = producer.shard

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def send(
        self,
        value: bytes,
        key: bytes | None = None,
        *,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Future[int]:
        """The future has the offset, or what is wrong with the record."""
        return self._in_order(
            lambda: self._producer.send(value, key, headers=headers, timestamp_ms=timestamp_ms)
        )

    def send_many(self, values: Sequence[bytes]) -> Future[list[Range]]:
        """The future has the ranges of offsets."""
        return self._in_order(lambda: self._producer.send_many(values))

    def _in_order(self, send: Callable[[], asyncio.Future[T]]) -> Future[T]:
        self._calls.acquire()
        try:
            future = self._thread.submit(self._sent(send))
        except Closed:
            self._calls.release()
            raise
        future.add_done_callback(lambda _: self._calls.release())
        return future

    async def _sent(self, send: Callable[[], asyncio.Future[T]]) -> T:
        async with self._order:
            await self._producer.until_room()
            future = send()
        return await future

    def append(
        self,
        value: bytes,
        key: bytes | None = None,
        *,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> int:
        return _result(self.send(value, key, headers=headers, timestamp_ms=timestamp_ms))

    def append_many(self, values: Sequence[bytes]) -> list[Range]:
        return _result(self.send_many(values))

    def until_room(self) -> None:
        self._thread.wait(self._producer.until_room())

    def flush(self) -> None:
        """Wait for all answers; raises the first failure there was."""
        self._thread.wait(self._flush())

    async def _flush(self) -> None:
        async with self._order:
            await self._producer.flush()

    def close(self) -> None:
        """Flush, then end; what has found no room by the deadline is not appended."""
        if self._thread.is_open:
            self._thread.wait(self.finish())

    async def finish(self) -> None:
        """`close`, from within the loop: behind what was sent before."""
        try:
            async with asyncio.timeout(self._deadline_ms / 1000):
                await self._order.acquire()
        except TimeoutError:
            await self._producer.close()
            return
        try:
            await self._producer.close()
        finally:
            self._order.release()
