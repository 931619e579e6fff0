"""What the public service will not do, and how it says so."""

import asyncio
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest

from node.public import Log, PublicCluster, encoded, failure, nobody_is_left, records, story
from shardlog.protocol.coordination import TrimShard
from shardlog.transport.batch import BatchBuilder
from shardlog.transport.compression import Compression
from shardlog.transport.generated import log_pb2
from shardlog_node.data_plane import PlaneLimits
from shardlog_node.host import HostLimits
from shardlog_node.log_stream import LogLimits

Failure = log_pb2.Failure


def test_those_who_cannot_help_say_so(tmp_path: Path):
    @story(tmp_path, "a b c")
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        other = next(name for name in cluster.names if name != leader)
        async with cluster.log(other) as elsewhere:
            while not (refused := await failure(elsewhere.read("orders"))).leader_node:
                await asyncio.sleep(0.01)
            expected = Failure(
                code=Failure.CODE_NOT_LEADER,
                message=f"{leader} leads orders",
                retriable=True,
                leader=f"{leader}.example:7403",
                leader_node=leader,
            )
            assert refused == expected
            call = elsewhere.append()
            await call.write(log_pb2.AppendRequest(version=1, shard="orders"))
            assert await failure(call) == expected
            resumed = await elsewhere.open("orders", 5)
            assert (await resumed.append(1, b"x")).failure == expected
            assert (await resumed.append(2, b"x")).failure == expected
        refused = await failure(log.read("missing"))
        assert (refused.code, refused.retriable) == (Failure.CODE_NO_SHARD, False)
        call = log.append()
        await call.write(log_pb2.AppendRequest(version=1, shard="missing"))
        assert (await failure(call)).code == Failure.CODE_NO_SHARD


def test_a_replica_that_has_stopped_may_come_back(tmp_path: Path):
    @story(tmp_path)
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        cluster.nodes[leader].host_limits = HostLimits(reopen_ms=60_000)
        hosted = cluster.nodes[leader].replicas["orders"]
        following = log.read("orders", follow=True)
        appending = await log.open("orders")
        await appending.append(1, b"x")
        await following.read()
        hosted.stop(RuntimeError("for the test"))
        assert (await failure(following)).code == Failure.CODE_NOT_LEADER
        refused = (await appending.append(2, b"x")).failure
        assert (refused.code, refused.retriable) == (Failure.CODE_TRY_AGAIN, True)


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (b"\xff garbage", Failure.CODE_INVALID),
        (log_pb2.AppendRequest(shard="orders"), Failure.CODE_VERSION),
        (log_pb2.AppendRequest(version=2, shard="orders"), Failure.CODE_VERSION),
        (log_pb2.AppendRequest(version=1), Failure.CODE_INVALID),
        (encoded(0, b"x", 1), Failure.CODE_VERSION),
    ],
)
def test_streams_that_do_not_begin_well(tmp_path: Path, first: Any, code: int):
    @story(tmp_path)
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        call = log.append()
        await call.write(first)
        answer = await call.read()
        assert (answer.version, answer.session, answer.request) == (1, 0, 0)
        assert (answer.failure.code, answer.failure.retriable) == (code, False)
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
        if isinstance(first, bytes) or first.WhichOneof("content") is None:
            asked = first
            if not isinstance(first, bytes):
                asked = log_pb2.ReadRequest(version=first.version, shard=first.shard)
            assert (await failure(log.read_raw(asked))).code == code
        await nobody_is_left(cluster, leader)


@pytest.mark.parametrize(
    "later",
    [
        b"\xff garbage",
        log_pb2.AppendRequest(request=2, shard="another"),
        log_pb2.AppendRequest(request=2, session=1 << 40),
        log_pb2.AppendRequest(request=2, version=2),
        encoded(0, b"x", 1),
        log_pb2.AppendRequest(),
    ],
)
def test_streams_that_do_not_go_on_well(tmp_path: Path, later: Any):
    @story(tmp_path)
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        appending = await log.open("orders")
        await appending.append(1, b"x")
        await appending.call.write(later)
        answer = await appending.next()
        assert (answer.request, answer.failure.code) == (0, Failure.CODE_INVALID)
        assert answer.session == appending.session
        assert await appending.call.read() is grpc.aio.EOF
        await nobody_is_left(cluster, leader)


def test_requests_that_make_no_sense_leave_the_stream_open(tmp_path: Path):
    mixed = log_pb2.Records(
        records=[log_pb2.Record(value=b"a", timestamp_ms=1), log_pb2.Record(value=b"b")]
    )
    named = log_pb2.Record(value=b"a")
    named.headers.add(name="n" * 65536)
    builder = BatchBuilder()
    builder.extend([b"one", b"two"])
    body = builder.body()
    senseless = [
        log_pb2.AppendRequest(request=1),
        log_pb2.AppendRequest(request=1, records=log_pb2.Records()),
        log_pb2.AppendRequest(request=1, records=mixed),
        log_pb2.AppendRequest(request=1, records=log_pb2.Records(records=[named])),
        encoded(1, body, 3),
        encoded(1, body, 0),
        encoded(1, body, 2, crc32c=1),
        encoded(1, body[:-8], 2),
        encoded(1, b"", 2),
        encoded(1, bytes(300_000), 2),
    ]

    @story(tmp_path, limits=PlaneLimits(entry_bytes_max=256 << 10))
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        appending = await log.open("orders")
        for request in senseless:
            await appending.call.write(request)
            answer = await appending.next()
            assert answer.request == 1
            assert (answer.failure.code, answer.failure.retriable) == (Failure.CODE_INVALID, False)
        too_long = (await appending.append(1, bytes(300_000))).failure
        assert too_long.code == Failure.CODE_INVALID
        assert "300032 bytes" in too_long.message
        assert (await appending.append(1, b"fine")).WhichOneof("outcome") == "base_offset"
        await appending.send(2, bytes(600_000))
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await appending.next()
        assert ended.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert [it.value for it in await records(log.read("orders"))] == [b"fine"]


def test_trimmed_offsets_are_told(tmp_path: Path):
    @story(tmp_path)
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        appending = await log.open("orders")
        first = cluster.end(leader) + 4
        for request in range(1, 9):
            await appending.append(request, b"%d" % request)
        await cluster.coordinator.command("orders", TrimShard(first))
        while (refused := await ended_with(log.read("orders", offset=1))) is None:
            await asyncio.sleep(0.01)
        assert (refused.code, refused.first_offset) == (Failure.CODE_OFFSET_TRIMMED, first)
        assert not refused.retriable
        found = await records(log.read("orders"))
        assert [it.value for it in found] == [b"5", b"6", b"7", b"8"]


async def ended_with(call: Any) -> Any:
    """The failure that it ends with, if any."""
    last = [each async for each in call][-1]
    return last.failure if last.HasField("failure") else None


def test_entries_that_cannot_be_taken_apart(tmp_path: Path):
    builder = BatchBuilder()
    builder.append(bytes(100_000))

    @story(tmp_path, log_limits=LogLimits(plain_bytes_max=50_000))
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        appending = await log.open("orders")
        bodies = [builder.body(Compression.ZSTD), b"\x01\x01\x00\x00\x40\x00\x00\x00 no zstd"]
        for request, body in enumerate(bodies, 1):
            await appending.call.write(encoded(request, body, 1))
            base = (await appending.next()).base_offset
            refused = await failure(log.read("orders", offset=base))
            assert refused.code == Failure.CODE_INVALID
            assert refused.message.endswith(f"read it `encoded`, or go on at {base + 1}")
        found = [each async for each in log.read("orders", encoded=True)]
        assert [each.batch.body for each in found] == bodies


def test_a_damaged_copy_is_not_delivered(tmp_path: Path):
    @story(tmp_path, "a b c")
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        appending = await log.open("orders")
        values = [b"record number %d" % request for request in range(1, 6)]
        for request, value in enumerate(values, 1):
            await appending.append(request, value)
        damaged = 0
        for path in (tmp_path / leader).rglob("*"):
            if path.is_file() and values[2] in (data := path.read_bytes()):
                with path.open("r+b") as file:
                    file.seek(data.index(values[2]))
                    file.write(b"R")
                damaged += 1
        assert damaged == 1
        while (found := await taken(log.read("orders"))) is None:
            await asyncio.sleep(0.01)
        assert found == values


async def taken(call: Any) -> list[bytes] | None:
    """The values, unless the stream ends with the request to try again."""
    found: list[bytes] = []
    async for each in call:
        if each.HasField("failure"):
            assert (each.failure.code, each.failure.retriable) == (Failure.CODE_TRY_AGAIN, True)
            return None
        found += [it.value for it in each.records.records]
    return found


def test_mutated_requests(tmp_path: Path):
    """Each is answered, or ends its stream; nothing is left of it, and the next one is served."""
    random = Random(7)
    request = log_pb2.AppendRequest(
        version=1,
        shard="orders",
        request=1,
        records=log_pb2.Records(records=[log_pb2.Record(key=b"k", value=b"v", timestamp_ms=1)]),
    )

    def mutated() -> bytes:
        data = bytearray(request.SerializeToString())
        for _ in range(random.randint(1, 4)):
            data[random.randrange(len(data))] = random.getrandbits(8)
        return bytes(data[: random.randint(1, len(data))])

    @story(tmp_path)
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        for _ in range(300):
            call = log.append()
            await call.write(mutated())
            with suppress(asyncio.InvalidStateError):  # it may have ended by now
                await call.write(mutated())
                await call.done_writing()
            while await call.read() is not grpc.aio.EOF:
                pass
            assert await call.code() is grpc.StatusCode.OK
        await nobody_is_left(cluster, leader)
        appending = await log.open("orders")
        assert (await appending.append(1, b"x")).WhichOneof("outcome") == "base_offset"
