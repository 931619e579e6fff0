"""Nodes in one process with the public service on each, and a client of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from node.planes import PlaneCluster
from shardlog.checksum import sum_of
from shardlog.transport.generated import log_pb2
from shardlog_node.data_plane import PlaneLimits
from shardlog_node.host import NodeHost
from shardlog_node.log_service import LogService
from shardlog_node.log_stream import LogLimits
from shardlog_node.log_wire import SERVICE


class PublicCluster(PlaneCluster):
    """Addresses of the public services are in `public`."""

    def __init__(
        self,
        directory: Path,
        names: str,
        limits: PlaneLimits | None = None,
        log_limits: LogLimits | None = None,
    ) -> None:
        super().__init__(directory, names, limits)
        self.log_limits = log_limits
        self.services: dict[str, LogService] = {}
        self.public: dict[str, str] = {}

    def end(self, node: str, shard: str = "orders") -> int:
        return self.nodes[node].replicas[shard].replica.log.end

    async def begin(self, name: str) -> NodeHost:
        node = await super().begin(name)
        service = LogService(self.planes[name], None, "{node}.example:7403", self.log_limits)
        self.services[name] = service
        self.public[name] = f"127.0.0.1:{await service.start('127.0.0.1', 0)}"
        return node

    async def stop(self, name: str) -> None:
        await self.services.pop(name).stop(0)
        await super().stop(name)

    @asynccontextmanager
    async def log(self, name: str) -> AsyncIterator[Log]:
        options = [("grpc.http2.bdp_probe", 0)]  # the window of a stream stays small
        async with grpc.aio.insecure_channel(self.public[name], options) as channel:
            yield Log(channel)


class Log:
    """Streams of one channel."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel

    def append(self) -> Any:
        invoke = self.channel.stream_stream(
            f"/{SERVICE}/Append",
            request_serializer=_bytes,
            response_deserializer=log_pb2.AppendResponse.FromString,
        )
        return invoke()

    async def open(self, shard: str, session: int = 0) -> Appending:
        appending = Appending(self.append())
        await appending.call.write(log_pb2.AppendRequest(version=1, shard=shard, session=session))
        first = await appending.next()
        assert first.WhichOneof("outcome") is None, first
        appending.session = first.session
        return appending

    def read_silent(self) -> Any:
        """A Read that is open and has not been asked anything."""
        invoke = self.channel.stream_stream(
            f"/{SERVICE}/Read",
            request_serializer=_bytes,
            response_deserializer=log_pb2.ReadResponse.FromString,
        )
        return invoke()

    def read(self, shard: str, **asked: Any) -> Any:
        return self.read_raw(log_pb2.ReadRequest(version=1, shard=shard, **asked))

    def read_raw(self, request: Any) -> Any:
        invoke = self.channel.unary_stream(
            f"/{SERVICE}/Read",
            request_serializer=_bytes,
            response_deserializer=log_pb2.ReadResponse.FromString,
        )
        return invoke(request)


class Appending:
    """An Append stream that is open."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.session = 0

    async def next(self) -> log_pb2.AppendResponse:
        answer = await self.call.read()
        assert answer is not grpc.aio.EOF, "the stream has ended"
        found: log_pb2.AppendResponse = answer
        return found

    async def send(self, request: int, *values: bytes) -> None:
        records = log_pb2.Records(records=[log_pb2.Record(value=value) for value in values])
        await self.call.write(log_pb2.AppendRequest(request=request, records=records))

    async def append(self, request: int, *values: bytes) -> log_pb2.AppendResponse:
        await self.send(request, *values)
        return await self.next()


def _bytes(request: Any) -> bytes:
    data: bytes = request if isinstance(request, bytes) else request.SerializeToString()
    return data


async def records(call: Any) -> list[log_pb2.Record]:
    """All of a stream that ends."""
    found = []
    async for response in call:
        assert response.WhichOneof("content") == "records", response
        found += response.records.records
    return found


async def failure(call: Any) -> log_pb2.Failure:
    """What a stream ends with."""
    last = None
    while (response := await call.read()) is not grpc.aio.EOF:
        last = response
    assert last is not None
    assert last.HasField("failure"), last
    found: log_pb2.Failure = last.failure
    return found


def story(
    tmp_path: Path,
    names: str = "a",
    limits: PlaneLimits | None = None,
    log_limits: LogLimits | None = None,
) -> Callable[[Callable[[PublicCluster, str, Log], Awaitable[None]]], None]:
    """Runs a coroutine function with a cluster, its leader of `orders`, and a client there."""

    def run(told: Callable[[PublicCluster, str, Log], Awaitable[None]]) -> None:
        async def whole() -> None:
            cluster = PublicCluster(tmp_path, names, limits, log_limits)
            async with cluster.running():
                leader = await cluster.create("orders")
                async with cluster.log(leader) as log:
                    await told(cluster, leader, log)

        asyncio.run(whole())

    return run


def encoded(request: int, body: bytes, count: int, crc32c: int | None = None) -> Any:
    checksum = sum_of(body) if crc32c is None else crc32c
    batch = log_pb2.EncodedBatch(count=count, crc32c=checksum, body=body)
    return log_pb2.AppendRequest(request=request, batch=batch)


async def nobody_is_left(cluster: PublicCluster, name: str) -> None:
    plane = cluster.planes[name]
    while (
        plane._clients
        or plane.budget.bytes
        or plane.answers.bytes
        or any(plane.tails.waiting.values())
    ):
        await asyncio.sleep(0.01)
