"""The public service (gRPC) against frames, in one run.

    python bench/public.py [DIR] [--seconds 3] [--turns 3]

Three nodes with a sync before every acknowledgement, a coordinator and one Python client, all on
the same cores and the same disk.  Both ways append to and read from the same shard with the same
window of 32 requests; in a turn each pattern is run over frames and then over gRPC.  A ratio is the
median of those of the turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import uvloop
from bench_key import KEY, key_file
from place import place

from shardlog.checksum import seal_body, sum_of
from shardlog.coordinator.calls import NodeControl
from shardlog.coordinator.host import CoordinatorHost
from shardlog.metadata.memory import Memory
from shardlog.protocol.coordination import CreateShard
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Status
from shardlog.transport import batch
from shardlog.transport.connection import Connection, ConnectionLimits
from shardlog.transport.control import ControlClient, ControlLimits
from shardlog.transport.endpoints import Inbox, connect
from shardlog.transport.entries import split_entries
from shardlog.transport.frames import (
    FIXED,
    FrameType,
    encode_append,
    encode_read,
    encode_register,
)
from shardlog.transport.generated import log_pb2
from shardlog.transport.handshake import Attach, Role, encode_attach

SHARD = "bench"
NAMES = ("a", "b", "c")
WINDOW = 32
RECORD = bytes(128)
RECORDS = 512
COMMAND = (sys.executable, "-m", "shardlog_node.main", "--plain", "--log-level", "error")
PORTS = ("data", "control", "http", "public")


class Load:
    """So many records, in every form in which they can be sent."""

    def __init__(self, count: int) -> None:
        builder = batch.BatchBuilder()
        builder.extend([RECORD] * count)
        self.count = count
        self.body = builder.body()
        self.seal = seal_body(self.body)
        self.encoded = log_pb2.EncodedBatch(count=count, crc32c=sum_of(self.body), body=self.body)
        self.records = log_pb2.Records(records=[log_pb2.Record(value=RECORD)] * count)


class OverFrames:
    def __init__(self, connection: Connection, inbox: Inbox) -> None:
        self._connection = connection
        self._inbox = inbox
        self._session = self._request = 0

    async def open(self) -> None:
        self._connection.send(encode_attach(1, Attach(SHARD)))
        await self._next(FrameType.ATTACHED)
        self._connection.send(encode_register(1, 1 + secrets.randbits(62)))
        payload = await self._next(FrameType.REGISTERED)
        _, self._session = FIXED[FrameType.REGISTERED].unpack(payload)

    async def send(self, load: Load, _: bool) -> None:
        self._request += 1
        await self._connection.send_when_writable(
            encode_append(1, self._session, self._request, load.count, load.seal, load.body)
        )

    async def answered(self) -> int:
        payload = await self._next(FrameType.APPENDED)
        base: int = FIXED[FrameType.APPENDED].unpack(payload)[2]
        return base

    async def read(self, start: int, end: int, encoded: bool) -> None:
        """Raw, or as a list of the records in each body."""
        fixed = FIXED[FrameType.READ_RESULT]
        while start < end:
            self._connection.send(encode_read(1, 1, start, 1024, tail=True))
            payload = await self._next(FrameType.READ_RESULT)
            start += fixed.unpack_from(payload)[2] * RECORDS
            if not encoded:
                for _, body in split_entries(payload[fixed.size :]):
                    list(batch.Batch(body))

    async def _next(self, kind: FrameType) -> memoryview:
        while (frame := await self._inbox.next()).type != kind:
            if frame.type == FrameType.REFUSED:
                raise RuntimeError("refused")
        return frame.payload


class OverGrpc:
    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._call: Any = None
        self._request = 0

    async def open(self) -> None:
        self._call = self._channel.stream_stream(
            "/shardlog.v1.Log/Append",
            request_serializer=log_pb2.AppendRequest.SerializeToString,
            response_deserializer=log_pb2.AppendResponse.FromString,
        )()
        await self._call.write(log_pb2.AppendRequest(version=1, shard=SHARD))
        await self._call.read()

    async def send(self, load: Load, encoded: bool) -> None:
        self._request += 1
        request = log_pb2.AppendRequest(request=self._request)
        if encoded:
            request.batch.CopyFrom(load.encoded)
        else:
            request.records.CopyFrom(load.records)
        await self._call.write(request)

    async def answered(self) -> int:
        answer = await self._call.read()
        if not answer.HasField("base_offset"):
            raise RuntimeError(str(answer))
        base: int = answer.base_offset
        return base

    async def read(self, start: int, end: int, encoded: bool) -> None:
        invoke = self._channel.unary_stream(
            "/shardlog.v1.Log/Read",
            request_serializer=log_pb2.ReadRequest.SerializeToString,
            response_deserializer=log_pb2.ReadResponse.FromString,
        )
        asked = log_pb2.ReadRequest(
            version=1, shard=SHARD, offset=start, end_offset=end, encoded=encoded
        )
        async for answer in invoke(asked):
            if answer.HasField("failure"):
                raise RuntimeError(str(answer))


Way = OverFrames | OverGrpc


async def appends_per_s(way: Way, load: Load, encoded: bool, seconds: float) -> float:
    began = time.perf_counter()
    sent = done = 0
    while time.perf_counter() - began < seconds:
        while sent - done < WINDOW:
            await way.send(load, encoded)
            sent += 1
        await way.answered()
        done += 1
    while done < sent:
        await way.answered()
        done += 1
    return done / (time.perf_counter() - began)


async def lone_per_s(way: Way, load: Load, encoded: bool, seconds: float) -> float:
    """As the inverse of the median time of one."""
    took: list[float] = []
    while sum(took) < seconds:
        began = time.perf_counter()
        await way.send(load, encoded)
        await way.answered()
        took.append(time.perf_counter() - began)
    return 1 / median(took)


async def read_per_s(way: Way, start: int, number: int, encoded: bool) -> float:
    began = time.perf_counter()
    await way.read(start, start + number * RECORDS, encoded)
    return number / (time.perf_counter() - began)


# --- the cluster ---------------------------------------------------------------------------------


def started(directory: Path, name: str) -> tuple[subprocess.Popen[str], dict[str, str]]:
    ports = [f"--{port}-port=0" for port in PORTS]
    process = subprocess.Popen(
        (
            *COMMAND,
            "--name",
            name,
            "--directory",
            str(directory / name),
            *ports,
            "--cluster-key-file",
            key_file(directory),
        ),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


@asynccontextmanager
async def leader(directory: Path) -> AsyncIterator[dict[str, str]]:
    """Addresses of the node that leads the shard."""
    nodes = {name: started(directory, name) for name in NAMES}
    client = ControlClient(ControlLimits(), None, KEY)
    control = NodeControl(
        client, lambda name: nodes[name][1]["control"], lambda name: nodes[name][1]["data"]
    )
    store = Memory().handle()
    host = CoordinatorHost("bench", store, control, lambda: time.monotonic_ns() // 1_000_000)
    coordinating = asyncio.create_task(host.run())
    try:
        await host.command(SHARD, CreateShard(NAMES, QuorumPolicy()))
        while (shard := host.shards[SHARD]).status is not Status.STEADY or shard.leader is None:
            await asyncio.sleep(0.01)
        yield nodes[shard.leader.node][1]
    finally:
        coordinating.cancel()
        await asyncio.wait([coordinating])
        await client.close()
        for process, _ in nodes.values():
            process.kill()
            process.wait()


@asynccontextmanager
async def both(addresses: dict[str, str]) -> AsyncIterator[tuple[OverFrames, OverGrpc]]:
    host, _, port = addresses["data"].rpartition(":")
    inbox = Inbox()
    connection = await connect(
        host, int(port), name="bench", role=Role.CLIENT, receiver=inbox,
        limits=ConnectionLimits(outgoing_bytes_max=16 << 20), wall_ns=time.time_ns, timeout_ms=5000,
    )  # fmt: skip
    async with grpc.aio.insecure_channel(addresses["public"]) as channel:
        ways = OverFrames(connection, inbox), OverGrpc(channel)
        for way in ways:
            await way.open()
        yield ways
    connection.close()
    await connection.closed()


# --- the table -----------------------------------------------------------------------------------

Pattern = Callable[[Way], Awaitable[float]]


async def measured(directory: Path, seconds: float, turns: int) -> None:
    small, large = Load(1), Load(RECORDS)
    async with leader(directory) as addresses, both(addresses) as (frames, over_grpc):
        patterns: dict[str, Pattern] = {
            "one append of 128 B at a time": lambda way: lone_per_s(way, small, False, seconds),
            "appends of 128 B, 32 in flight": lambda way: appends_per_s(way, small, False, seconds),
            "64 KiB bodies, 32 in flight": lambda way: appends_per_s(way, large, True, seconds),
            "the same, record by record": lambda way: appends_per_s(way, large, False, seconds),
        }
        print(f"{'per second':34} {'frames':>10} {'gRPC':>10} {'ratio':>7}")
        for name, pattern in patterns.items():
            await row(name, pattern, frames, over_grpc, turns)
        await frames.send(large, True)
        start = await frames.answered()
        number = 1000
        for at in range(number):
            await frames.send(large, True)
            if at >= WINDOW:
                await frames.answered()
        for _ in range(WINDOW):
            await frames.answered()
        for name, encoded in (("64 KiB bodies read", True), ("the same, record by record", False)):
            await row(name, lambda way, encoded=encoded: read_per_s(way, start, number, encoded),  # type: ignore[misc]
                      frames, over_grpc, turns)  # fmt: skip


async def row(
    name: str, pattern: Pattern, frames: OverFrames, over_grpc: OverGrpc, turns: int
) -> None:
    pairs = [(await pattern(frames), await pattern(over_grpc)) for _ in range(turns)]
    ratio = median(slow / fast for fast, slow in pairs)
    fast, slow = (median(each) for each in zip(*pairs, strict=True))
    print(f"{name:34} {fast:>10,.0f} {slow:>10,.0f} {ratio:>7.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", nargs="?", type=place, default=".", help="on the disk to use")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as within:
        uvloop.run(measured(Path(within), arguments.seconds, arguments.turns))


if __name__ == "__main__":
    main()
