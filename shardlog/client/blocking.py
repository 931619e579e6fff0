"""The client for scripts: the same names, and calls that return when they are done.

An event loop runs in a thread of its own, and every call is handed to it.  Readers cross over once
for each batch, and producers once for all that is sent while the loop is busy, not for each record.
Objects may be used from several threads.  A client that is still open when the program ends is
closed then, as `close` does.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401 - registers before us, so it ends after us
import logging
import os
import ssl
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from shardlog.client import background
from shardlog.client import client as asynchronous
from shardlog.client import producer as producing
from shardlog.client.batching import Octets, check_record, checked_columns
from shardlog.client.failures import BufferFull, ClientFailure, Closed, InvalidArgument
from shardlog.client.limits import LIMITS, REQUESTS_MAX, ClientLimits
from shardlog.client.reading import EntryStream
from shardlog.client.records import FIRST, EntryBatch, Range, Record, Start
from shardlog.client.unseen import UnseenFailures
from shardlog.transport.batch import Headers
from shardlog.transport.compression import Compression

T = TypeVar("T")
CALLS_MAX = 4096
_log = logging.getLogger("shardlog.client")


class LoopThread:
    """An event loop that runs until it is ended.  Whatever was handed to it ends before it does."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.lock = threading.RLock()
        """Held while work is handed over.  A destructor that runs meanwhile may hand over more."""
        self.is_open = True
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="shardlog client", daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller is the loop itself, which must never be waited for here."""
        return threading.current_thread() is self._thread

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
        with self.lock:
            if self.is_open:
                return asyncio.run_coroutine_threadsafe(self._typed(work), self.loop)
        work.close()
        raise Closed("the client is closed")

    async def _typed(self, work: Coroutine[Any, Any, T]) -> T:
        """Whoever waits when the loop ends is told why."""
        try:
            return await work
        except asyncio.CancelledError:
            if self._stopping:
                raise Closed("the client is closed") from None
            raise

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """What it returns or raises; interrupted, it is cancelled."""
        return self.result(self.submit(work))

    def result(self, future: Future[T]) -> T:
        """What the future has; interrupted, it is cancelled."""
        try:
            if self.is_current and not future.done():
                raise InvalidArgument(
                    "a call that blocks, made in the client's own thread (by a callback of a "
                    "future or a destructor), would wait for itself"
                )
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """A plain call, made within the loop."""

        async def within() -> T:
            return function()

        return self.wait(within())

    def abandon(self, stream: EntryStream) -> None:
        """Close a reader and don't wait: the garbage collector may call this in any thread."""
        with suppress(RuntimeError):  # the loop has ended, and with it all readers
            self.loop.call_soon_threadsafe(lambda: background.start(stream.aclose()))

    def end(self, last: Coroutine[Any, Any, None]) -> None:
        """Take no more work, do this behind what was taken, and stop; once."""
        with self.lock:
            if not self.is_open or self.is_current:
                last.close()
                if self.is_open:
                    raise InvalidArgument("a client cannot be closed in its own thread")
                return
            self.is_open = False
            future = asyncio.run_coroutine_threadsafe(last, self.loop)
        try:
            self.result(future)
        finally:
            self._stopping = True
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()


class Client:
    """`shardlog.client.Client` for scripts; a context manager."""

    def __init__(
        self,
        url: str | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        tls_name: str | None = None,
        limits: ClientLimits = LIMITS,
        name: str | None = None,
    ) -> None:
        """Arguments are those of `shardlog.client.Client`: without `url` it is `SHARDLOG_CLUSTER`
        of the environment, or the cluster that `shardlog local up` has started on this machine.
        """
        self._thread = LoopThread()
        self._limits = limits
        self._producers: set[Producer] = set()
        self._process = os.getpid()
        try:
            self._client = self._thread.call(
                lambda: asynchronous.Client(
                    url, tls=tls, tls_name=tls_name, limits=limits, name=name
                )
            )
        except BaseException:
            self._thread.end(asyncio.sleep(0))
            raise
        _open.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """What went wrong inside matters more than what `close` has to raise."""
        try:
            self.close()
        except ClientFailure:
            if value is None:
                raise

    def close(self) -> None:
        """Flush all producers, end all readers.

        Raises the first failure that nobody has seen: neither in a future nor from `flush`.
        """
        _open.discard(self)
        self._thread.end(self._close())

    def close_at_exit(self) -> None:
        """`close`, at the end of a program that did not; what is not appended is logged."""
        if self._process != os.getpid():
            return  # a fork has no thread
        try:
            self.close()
        except ClientFailure as failure:
            _log.error("a client was not closed before the program ended: %s", failure)

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
        """Something that appends to a shard, under a session of its own.

        A batch waits `linger_ms` for more records while others are under way; at `batch_bytes` it
        is full.  `deadline_ms` counts for each batch from its first record on.
        """

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
            producer = Producer(self._thread, made, known_ms, self._producers.discard)
            self._producers.add(producer)
            return producer

        return self._thread.call(make)

    def batches(
        self,
        shard: str,
        start: Start = FIRST,
        end: int | None = None,
        *,
        deadline_ms: int | None = None,
        from_first_kept: bool = False,
    ) -> Batches:
        """Whole batches, up to where the log ends as a quorum confirms it now, or to `end`.

        The first batch may begin before `start` and the last end behind `end`: a batch is never
        cut.
        """
        stream = self._client.batches(
            shard, start, end, deadline_ms=deadline_ms, from_first_kept=from_first_kept
        )
        return Batches(self._thread, stream)

    def tail_batches(
        self,
        shard: str,
        start: Start = FIRST,
        *,
        deadline_ms: int | None = None,
        from_first_kept: bool = False,
    ) -> Batches:
        """Whole batches, and the next ones as they are committed, without end."""
        stream = self._client.tail_batches(
            shard, start, deadline_ms=deadline_ms, from_first_kept=from_first_kept
        )
        return Batches(self._thread, stream)

    def read(
        self,
        shard: str,
        start: Start = FIRST,
        end: int | None = None,
        *,
        deadline_ms: int | None = None,
        from_first_kept: bool = False,
    ) -> Records:
        """Records with offsets in `[start, end)`, as far as the log reaches now."""
        stream = self._client.batches(
            shard, start, end, deadline_ms=deadline_ms, from_first_kept=from_first_kept
        )
        return Records(self._thread, stream)

    def tail(
        self,
        shard: str,
        start: Start = FIRST,
        *,
        deadline_ms: int | None = None,
        from_first_kept: bool = False,
    ) -> Records:
        """Records from `start` on, and the next ones as they are committed, without end."""
        stream = self._client.tail_batches(
            shard, start, deadline_ms=deadline_ms, from_first_kept=from_first_kept
        )
        return Records(self._thread, stream)

    def locate(self, shard: str, timestamp_ms: int, *, deadline_ms: int | None = None) -> int:
        """The offset of the first committed entry not older than that; the end if there is none."""
        return self._thread.wait(self._client.locate(shard, timestamp_ms, deadline_ms=deadline_ms))

    def first(self, shard: str, *, deadline_ms: int | None = None) -> int:
        """The first offset that is kept."""
        return self._thread.wait(self._client.first(shard, deadline_ms=deadline_ms))

    def end(self, shard: str, *, deadline_ms: int | None = None) -> int:
        """The offset behind all that is committed, as a quorum confirms it now."""
        return self._thread.wait(self._client.end(shard, deadline_ms=deadline_ms))


class _Reader(Generic[T]):
    """An iterator that is also a context manager; one that is dropped is closed."""

    def __init__(self, thread: LoopThread, stream: EntryStream) -> None:
        self._thread = thread
        self._stream = stream

    def _next(self, timeout_s: float | None = None) -> EntryBatch | None:
        """The next batch; None at the end.  `TimeoutError` if it takes too long."""
        return self._thread.wait(_next(self._stream, timeout_s))

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
        """Fetch no more; what is asked for later is `Closed`."""
        self._thread.abandon(self._stream)

    def __del__(self) -> None:
        self._thread.abandon(self._stream)


async def _next(stream: EntryStream, timeout_s: float | None) -> EntryBatch | None:
    async with asyncio.timeout(timeout_s):
        return await anext(stream, None)


class Batches(_Reader[EntryBatch]):
    """What `Client.batches` and `Client.tail_batches` return."""

    def __iter__(self) -> Iterator[EntryBatch]:
        return self

    def __next__(self) -> EntryBatch:
        batch = self._next()
        if batch is None:
            raise StopIteration
        return batch


class Records(_Reader[Record]):
    """What `Client.read` and `Client.tail` return."""

    def __init__(self, thread: LoopThread, stream: EntryStream) -> None:
        super().__init__(thread, stream)
        self._records: Iterator[Record] = iter(())

    def __iter__(self) -> Iterator[Record]:
        while True:
            for record in self._records:  # noqa: UP028 - left early, the rest is still there
                yield record
            if (batch := self._next()) is None:
                return
            self._records = self._stream.records(batch)

    def __next__(self) -> Record:
        while (record := next(self._records, None)) is None:
            if (batch := self._next()) is None:
                raise StopIteration
            self._records = self._stream.records(batch)
        return record

    def poll(self, timeout_ms: float = 0, max_records: int = 500) -> list[Record]:
        """Up to so many records, waiting at most so long for the first of them.

        Empty if there is none in time, or at the end of a `read`.
        """
        found = list(islice(self._records, max_records))
        try:
            while len(found) < max_records:
                batch = self._next(0 if found else timeout_ms / 1000)
                if batch is None:
                    break
                self._records = self._stream.records(batch)
                found += islice(self._records, max_records - len(found))
        except TimeoutError:
            pass
        return found


class SendFuture(Future[T]):
    """Remembers whether anybody has looked at what became of it."""

    seen = False

    def result(self, timeout: float | None = None) -> T:
        """The offset, or the ranges of offsets, that were got; raises what failed."""
        try:
            return super().result(timeout)
        finally:
            self.seen = self.done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What failed, or None."""
        try:
            return super().exception(timeout)
        finally:
            self.seen = self.done()


class Producer:
    """`shardlog.client.Producer` for scripts.  `send` gives futures of `concurrent.futures`.

    What is sent is appended in the order of the calls; while `CALLS_MAX` of them are not answered
    the next one waits.
    """

    def __init__(
        self,
        thread: LoopThread,
        producer: producing.Producer,
        deadline_ms: int,
        on_closed: Callable[[Producer], None],
    ) -> None:
        self._thread = thread
        self._producer = producer
        self._deadline_ms = deadline_ms
        self._on_closed = on_closed
        self._calls = threading.BoundedSemaphore(CALLS_MAX)
        # Handed over with the thread's lock held, taken by the loop.
        self._waiting: deque[tuple[SendFuture[Any], Callable[[], asyncio.Future[Any]]]] = deque()
        self._handed = 0
        self._taken = 0
        self._scheduled = False  # the loop will look at what waits
        self._making_room: asyncio.Task[None] | None = None
        self._change: asyncio.Future[None] | None = None  # something is taken
        self._unseen: UnseenFailures[SendFuture[Any]] = UnseenFailures(lambda each: each.seen)
        self.shard = producer.shard

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """What went wrong inside matters more than what `close` has to raise."""
        try:
            self.close()
        except ClientFailure:
            if value is None:
                raise

    def send(
        self,
        value: Octets,
        key: Octets | None = None,
        *,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Future[int]:
        """Append a record; the future has its offset.  Raises `InvalidRecord` if it cannot be.

        Waits while `CALLS_MAX` calls are not answered.
        """
        value, key, headers = check_record(value, key, headers, timestamp_ms)
        return self._hand_over(
            lambda: self._producer.send(value, key, headers=headers, timestamp_ms=timestamp_ms)
        )

    def send_many(
        self,
        values: Iterable[Octets],
        keys: Iterable[Octets | None] | None = None,
        headers: Iterable[Headers] | None = None,
    ) -> Future[list[Range]]:
        """Append many records; the future has the ranges of offsets that they got, in order.

        `keys` and `headers` are one for each.  Raises `InvalidRecord` if any of them cannot be
        appended, and then none is.
        """
        made, _, made_keys, made_headers = checked_columns(values, keys, headers)
        copied, copied_keys = tuple(made), made_keys and tuple(made_keys)
        return self._hand_over(lambda: self._producer.send_many(copied, copied_keys, made_headers))

    def append(
        self,
        value: Octets,
        key: Octets | None = None,
        *,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> int:
        """Append a record and return its offset."""
        future = self.send(value, key, headers=headers, timestamp_ms=timestamp_ms)
        return self._thread.result(future)

    def append_many(
        self,
        values: Iterable[Octets],
        keys: Iterable[Octets | None] | None = None,
        headers: Iterable[Headers] | None = None,
    ) -> list[Range]:
        """Append many records and return the ranges of offsets that they got, in order."""
        return self._thread.result(self.send_many(values, keys, headers))

    def until_room(self) -> None:
        """Return when there is room for more; `DeadlineExceeded` if it takes too long."""
        self._thread.wait(self._producer.until_room())

    def flush(self) -> None:
        """Wait until all that was sent is answered; raises the first failure nobody has seen."""
        self._thread.wait(self._flush())

    async def _flush(self) -> None:
        await self._until_taken()
        with suppress(ClientFailure):  # the futures have it too
            await self._producer.flush()
        await self._raise_unseen()

    def close(self) -> None:
        """Flush, then end; what has found no room by the deadline is not appended."""
        if self._thread.is_open:
            self._thread.wait(self.finish())

    async def finish(self) -> None:
        """`close`, from within the loop: behind what was sent before."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._deadline_ms / 1000):
                await self._until_taken()
        with suppress(ClientFailure):  # the futures have it too
            await self._producer.close()
        if self._making_room is not None:
            self._making_room.cancel()
            self._making_room = None
        self._take()
        self._on_closed(self)
        await self._raise_unseen()

    async def _raise_unseen(self) -> None:
        await asyncio.sleep(0)  # answers that are there reach their futures first
        if failure := self._unseen.take():
            raise failure

    async def _until_taken(self) -> None:
        goal = self._handed
        while self._taken < goal:
            if self._change is None:
                self._change = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._change)

    def _hand_over(self, send: Callable[[], asyncio.Future[T]]) -> Future[T]:
        """To the loop, which is woken once for all that waits."""
        thread = self._thread
        if not self._calls.acquire(blocking=not thread.is_current):
            raise BufferFull(f"{CALLS_MAX} calls for {self.shard!r} are not answered")
        future: SendFuture[T] = SendFuture()
        with thread.lock:
            if thread.is_open:
                self._waiting.append((future, send))
                self._handed += 1
                if not self._scheduled:
                    self._scheduled = True
                    thread.loop.call_soon_threadsafe(self._take)
                return future
        self._calls.release()
        raise Closed("the client is closed")

    # --- within the loop -------------------------------------------------------------------------

    def _take(self) -> None:
        """Append what waits, in order, while there is room."""
        self._scheduled = False
        while self._waiting and self._making_room is None:
            if not self._producer.has_room:
                self._making_room = background.start(self._make_room())
                self._making_room.add_done_callback(self._room_made)
                break
            self._append_first()
        if self._change is not None:
            change, self._change = self._change, None
            change.set_result(None)

    def _append_first(self, failure: ClientFailure | None = None) -> None:
        """Append the first of what waits, or fail it."""
        future, send = self._waiting.popleft()
        self._taken += 1
        if not future.set_running_or_notify_cancel():
            self._calls.release()
            return
        try:
            if failure is not None:
                raise failure
            answer = send()
        except Exception as failed:
            self._settle(future, background.typed(failed))
        else:
            answer.add_done_callback(partial(self._answered, future))

    async def _make_room(self) -> None:
        await self._producer.until_room()

    def _room_made(self, task: asyncio.Task[None]) -> None:
        if task is not self._making_room:
            return
        self._making_room = None
        failure = background.death_of(task)
        if failure is not None and self._waiting:
            self._append_first(failure)
        self._take()

    def _answered(self, future: SendFuture[T], answer: asyncio.Future[T]) -> None:
        failure = background.death_of(answer)
        if failure is None:
            future.set_result(answer.result())
            self._calls.release()
        else:
            self._settle(future, failure)

    def _settle(self, future: SendFuture[T], failure: ClientFailure) -> None:
        future.set_exception(failure)
        self._unseen.add(failure, [future])
        self._calls.release()


_open: set[Client] = set()
"""Clients that are not closed."""


def _close_all() -> None:
    for client in list(_open):
        client.close_at_exit()


# Runs before threads end, while names can still be resolved; `atexit` runs behind that.
threading._register_atexit(_close_all)  # type: ignore[attr-defined]
