"""What streams of the public service have in common: the wire under them, and who does their work.

A node's loop drives its replicas, so nothing that takes long is done on it: what grows with the
number of records is done in a thread.  Python's threads take turns, and the loop's turn comes soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from shardlog.protocol.failures import NoReplica, NotReady, Refusal
from shardlog.transport.generated import log_pb2
from shardlog_node.log_wire import AddressOf, failure_of

if TYPE_CHECKING:
    from shardlog_node.data_plane import DataPlane

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LogLimits:
    """Every bound of the public service that is not the data plane's.

    A reader that does not read holds one read and one answer: with `streams_max` of them, and
    entries that are not longer than `read_bytes`, at most 128 MiB.
    """

    streams_max: int = 256
    streams_per_peer_max: int = 64
    """Of one address, so that nobody alone takes them all."""
    first_ms: int = 10_000
    """So long a stream that is open may say nothing; health calls do not count as streams."""
    idle_ms: int = 300_000
    """So long an Append stream may say nothing while nothing of it is under way."""
    stall_ms: int = 60_000
    """So long an answer may wait until gRPC takes it."""
    waiting_max: int = 32
    """Streams that wait for a message: much of it may have come, and gRPC does not tell."""
    crowded_ms: int = 1_000
    """If more than these wait, those are ended that have waited for so long."""
    window_bytes: int = 256 << 10
    """Of a stream, received by gRPC and not read yet."""
    answers_max: int = 1024
    """Of a stream, not taken yet: beyond it no more requests are read."""
    read_bytes: int = 256 << 10
    """About so much is read at once, and sent at once; an entry that is longer comes alone."""
    plain_bytes_max: int = 16 << 20
    """What an entry may have when it is taken apart."""
    inflated_max: int = 4
    """Compressed entries that are taken apart at once, if they are longer than one answer."""
    inline_bytes: int = 16 << 10
    """What is longer is worked on in a thread."""
    threads: int = 2


class Gone(Exception):  # noqa: N818 - named after what happened
    """Nobody is at the other end any more."""


class Idle(Exception):  # noqa: N818 - as above
    """The other side has kept us waiting for too long."""


class Waiting:
    """How many streams wait for a message now."""

    def __init__(self, limits: LogLimits) -> None:
        self.streams = 0
        self.crowded_s = limits.crowded_ms / 1000
        self._streams_max = limits.waiting_max

    @property
    def crowded(self) -> bool:
        return self.streams > self._streams_max


class Wire:
    """One stream as gRPC has it.  `write` returns when there is room for more."""

    def __init__(self, context: Any, stall_ms: int, waiting: Waiting) -> None:
        self._context = context
        self._stall_s = stall_ms / 1000
        self._waiting = waiting
        # gRPC cannot take a question for the next message back.
        self._reading: asyncio.Future[Any] | None = None

    async def read(self, wait_ms: int) -> bytes | None:
        """The next message, None at the end.  Raises `Idle` if none comes; call it again then."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._context.read())
            self._reading.add_done_callback(lambda read: read.cancelled() or read.exception())
        self._waiting.streams += 1
        try:
            await self._until_read(self._reading, wait_ms)
        finally:
            self._waiting.streams -= 1
        read, self._reading = self._reading, None
        try:
            data = read.result()
        except grpc.aio.BaseError as failure:
            raise Gone from failure
        return None if data is grpc.aio.EOF else data

    async def _until_read(self, read: asyncio.Future[Any], wait_ms: int) -> None:
        left_s = wait_ms / 1000
        while left_s > 0:
            look_s = min(left_s, self._waiting.crowded_s)
            await asyncio.wait((read,), timeout=look_s)
            if read.done():
                return
            left_s -= look_s
            if self._waiting.crowded:
                raise Idle("too many streams are idle")
        raise Idle(f"nothing was asked for {wait_ms} ms")

    async def write(self, data: bytes) -> None:
        """Raises `Idle` if it is not taken; nothing more can be written then."""
        try:
            async with asyncio.timeout(self._stall_s):
                await self._context.write(data)
        except TimeoutError as failure:
            raise Idle("answers are not taken") from failure
        except grpc.aio.BaseError as failure:
            raise Gone from failure

    async def end(self, why: str) -> None:
        """Nothing is under way: whoever wants to go on opens another stream."""
        try:
            await self._context.abort(grpc.StatusCode.UNAVAILABLE, why)
        except grpc.aio.AbortError:
            raise  # gRPC wants to see it
        except grpc.aio.BaseError:
            return  # nobody is there to be told

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()


class Desk:
    """What every stream works with."""

    def __init__(self, plane: DataPlane, limits: LogLimits, address_of: AddressOf) -> None:
        self.plane = plane
        self.limits = limits
        self._address_of = address_of
        self._threads = ThreadPoolExecutor(limits.threads, "public")
        self.inflating = asyncio.Semaphore(limits.inflated_max)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def work(self, size: int, work: Callable[[], T]) -> T:
        """Here if `size` is small, else in a thread."""
        if size <= self.limits.inline_bytes:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def failure(self, shard: str, refusal: Refusal) -> log_pb2.Failure:
        if isinstance(refusal, NoReplica) and shard in self.plane.host.failed:
            refusal = NotReady(f"the replica of {shard} here has stopped")
        return failure_of(refusal, shard, self._address_of)
