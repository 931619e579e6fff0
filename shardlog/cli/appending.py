"""How `shardlog append` goes: one thread reads, the event loop appends, a tally keeps count.

Reading may wait for a person or a slow program for as long as it likes, so it has a thread of its
own, which is left behind when the command ends.  Blocks wait in a queue of bounded length.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import rich_click as click

from shardlog.cli.client import BadInput, command_failure
from shardlog.cli.record_format import Input
from shardlog.cli.tls import tls_of_environment
from shardlog.client import Client, ClientFailure, Compression, Producer, Range
from shardlog.client.directory import directory_of
from shardlog.client.limits import LIMITS

Block = list[bytes] | list[Input]
Blocks = Iterator[list[bytes]] | Iterator[list[Input]]
BLOCKS_MAX = 4
BUFFER_BYTES_MAX = 8 << 20


class Appending:
    """What is to be done, and what has been acknowledged so far."""

    def __init__(
        self,
        shard: str,
        url: str,
        timeout_ms: int,
        batch_bytes: int,
        linger_ms: float,
        compression: str,
        *,
        key: bytes | None,
        each: bool,
    ) -> None:
        self.shard = shard
        self.url = url
        self.timeout_ms = timeout_ms
        self.batch_bytes = min(batch_bytes, LIMITS.record_bytes_max)
        self.linger_ms = linger_ms
        self.compression = Compression[compression.upper()]
        self.key = key
        self.each = each
        """Whether each offset is printed."""
        self.record_bytes_max = LIMITS.record_bytes_max
        self.sent = 0
        self.count = 0
        self.value_bytes = 0
        self.first: int | None = None
        self.last: int | None = None
        self.on_progress: Callable[[], None] = lambda: None

    def acknowledged(self, found: Range, value_bytes: int) -> None:
        self.count += found.count
        self.value_bytes += value_bytes
        self.first = found.base if self.first is None else min(self.first, found.base)
        self.last = max(self.last or 0, found.end - 1)
        self.on_progress()

    def done_so_far(self) -> str:
        if not self.count:
            return "no records appended"
        plural = "s" * (self.count != 1)
        told = f"{self.count:,} record{plural} appended, offset{plural} {self.first:,}"
        if self.last != self.first:
            told += f" to {self.last:,}"
        return told

    def with_doubts(self) -> str:
        """The same where it ended before all was answered."""
        doubtful = self.sent - self.count
        return self.done_so_far() + (f", up to {doubtful:,} more may be" if doubtful else "")


async def append_all(work: Appending, blocks: Blocks) -> None:
    """Raises a `CommandFailed` that tells also what was appended."""
    try:
        await _append_all(work, blocks)
    except BadInput as failure:
        raise BadInput(f"{failure.message} ({work.done_so_far()})") from failure
    except ClientFailure as failure:
        done = work.with_doubts() if failure.fate_unknown else work.done_so_far()
        told = f" ({done})" if work.count or failure.fate_unknown else ""
        raise command_failure(failure, told) from failure


async def _append_all(work: Appending, blocks: Blocks) -> None:
    tls = tls_of_environment()
    directory = directory_of(work.url, LIMITS.directory_ms, tls)
    client = Client(work.url, tls=tls, directory=directory)
    try:
        await _Run(work, client).all(Feed(blocks))
    except asyncio.CancelledError:
        # Ctrl-C: what is under way is not waited for.
        await directory.close()
        raise
    except (BadInput, ClientFailure, BrokenPipeError):
        with suppress(ClientFailure):
            await client.close()
        raise
    await client.close()


class _Run:
    """One producer, until the input ends or an append fails."""

    def __init__(self, work: Appending, client: Client) -> None:
        self._work = work
        self._producer: Producer = client.producer(
            work.shard,
            linger_ms=work.linger_ms,
            batch_bytes=work.batch_bytes,
            compression=work.compression,
            buffer_bytes_max=BUFFER_BYTES_MAX,
            deadline_ms=work.timeout_ms,
        )
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unprinted: list[Range] = []
        self._open: set[asyncio.Future[Any]] = set()

    async def all(self, feed: Feed) -> None:
        while (block := await self._next(feed)) is not None:
            await self._producer.until_room()
            self._send(block)
        await self._flush()

    async def _next(self, feed: Feed) -> Block | None:
        """Whichever comes first: more input, or a failure of what was sent before."""
        getting = asyncio.ensure_future(feed.next())
        either: list[asyncio.Future[Any]] = [getting, self._failed]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self._failed.done():
            try:
                return await getting
            except BadInput:
                await self._flush()
                raise
        getting.cancel()
        self._failed.result()
        return None

    async def _flush(self) -> None:
        await self._producer.flush()
        if self._open:
            await asyncio.wait(self._open)
        self._print()
        if self._failed.done():
            self._failed.result()

    def _send(self, block: Block) -> None:
        work, producer = self._work, self._producer
        work.sent += len(block)
        if block and isinstance(block[0], bytes) and work.key is None:
            values = [each for each in block if isinstance(each, bytes)]
            size = sum(map(len, values))
            many = producer.send_many(values)
            many.add_done_callback(partial(self._many, size))
            self._open.add(many)
            return
        for each in block:
            record = each if isinstance(each, Input) else Input(each, work.key)
            value, key, headers, time_ms = record
            future = producer.send(value, key, headers=headers, timestamp_ms=time_ms)
            future.add_done_callback(partial(self._one, len(value)))
            self._open.add(future)

    def _many(self, size: int, future: asyncio.Future[list[Range]]) -> None:
        if not self._has_failed(future):
            for index, found in enumerate(future.result()):
                self._acknowledge(found, 0 if index else size)

    def _one(self, size: int, future: asyncio.Future[int]) -> None:
        if not self._has_failed(future):
            self._acknowledge(Range(future.result(), 1), size)

    def _acknowledge(self, found: Range, size: int) -> None:
        self._work.acknowledged(found, size)
        if self._work.each:
            if not self._unprinted:
                asyncio.get_running_loop().call_soon(self._print)
            self._unprinted.append(found)

    def _has_failed(self, future: asyncio.Future[Any]) -> bool:
        self._open.discard(future)
        if future.cancelled():
            return True
        failure = future.exception()
        if failure is not None:
            self._fail(failure)
        return failure is not None

    def _fail(self, failure: BaseException) -> None:
        """The first one ends it all."""
        if not self._failed.done():
            self._failed.set_exception(failure)
            self._failed.exception()  # told by `_next` or `_flush`

    def _print(self) -> None:
        """Soon after they are acknowledged: somebody may be waiting for that."""
        found, self._unprinted = self._unprinted, []
        offsets = [str(offset) for each in found for offset in range(each.base, each.end)]
        if offsets:
            try:
                click.echo("\n".join(offsets))
            except BrokenPipeError as failure:
                self._fail(failure)


class Feed:
    """Blocks on their way from the thread that reads to the loop."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Block | Exception | None] = asyncio.Queue()
        self._room = threading.Semaphore(BLOCKS_MAX)
        threading.Thread(target=self._read, name="input", daemon=True).start()

    async def next(self) -> Block | None:
        """None at the end; raises what is wrong with the input."""
        found = await self._queue.get()
        self._room.release()
        if isinstance(found, Exception):
            raise found
        return found

    def _read(self) -> None:
        try:
            for block in self._blocks:
                self._put(block)
            self._put(None)
        except BadInput as failure:
            self._put(failure)
        except (RuntimeError, ValueError):
            return  # nobody takes it any more: the loop has ended, or the file is closed

    def _put(self, what: Block | Exception | None) -> None:
        """Waits for room; for ever when the loop has ended, as a daemon may."""
        self._room.acquire()
        self._loop.call_soon_threadsafe(self._queue.put_nowait, what)
