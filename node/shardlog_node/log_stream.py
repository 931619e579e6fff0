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
    window_bytes: int = 1 << 20
    """Of a stream, received by gRPC and not read yet."""
    answers_max: int = 1024
    """Of a stream, not taken yet: beyond it no more requests are read."""
    read_bytes: int = 256 << 10
    """About so much is read at once, and sent at once; an entry that is longer comes alone."""
    plain_bytes_max: int = 16 << 20
    """What an entry may have when it is taken apart."""
    inline_bytes: int = 16 << 10
    """What is longer is worked on in a thread."""
    threads: int = 2


class Gone(Exception):  # noqa: N818 - named after what happened
    """Nobody is at the other end any more."""


class Wire:
    """One stream as gRPC has it.  `write` returns when there is room for more."""

    def __init__(self, context: Any) -> None:
        self._context = context

    async def read(self) -> bytes | None:
        """None at the end."""
        try:
            data = await self._context.read()
        except grpc.aio.BaseError as failure:
            raise Gone from failure
        return None if data is grpc.aio.EOF else data

    async def write(self, data: bytes) -> None:
        try:
            await self._context.write(data)
        except grpc.aio.BaseError as failure:
            raise Gone from failure


class Desk:
    """What every stream works with."""

    def __init__(self, plane: DataPlane, limits: LogLimits, address_of: AddressOf) -> None:
        self.plane = plane
        self.limits = limits
        self._address_of = address_of
        self._threads = ThreadPoolExecutor(limits.threads, "public")

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
