"""The public service of nodes, over real gRPC."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from node.public import Appending, Log, PublicCluster, failure, records
from shardlog.checksum import sum_of
from shardlog.protocol.coordination import TrimShard
from shardlog.transport.batch import BatchBuilder
from shardlog.transport.compression import Compression
from shardlog.transport.generated import log_pb2
from shardlog_node.data_plane import PlaneLimits
from shardlog_node.log_stream import LogLimits
from shardlog_node.log_wire import SERVICE

Failure = log_pb2.Failure


def story(
    tmp_path: Path,
    names: str = "a",
    limits: PlaneLimits | None = None,
    log_limits: LogLimits | None = None,
):
    """Runs a coroutine function with a cluster, its leader of `orders`, and a client there."""

    def run(told) -> None:
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


# --- append and read -----------------------------------------------------------------------------


def test_appended_and_read_back(tmp_path: Path):
    @story(tmp_path, "a b c")
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        appending = await log.open("orders")
        for request in range(1, 33):
            await appending.send(request, b"%d" % request, b"and more")
        answers = [await appending.next() for _ in range(32)]
        first = appending.session + 1
        assert [(it.request, it.base_offset) for it in answers] == [
            (n, first + 2 * (n - 1)) for n in range(1, 33)
        ]
        assert {it.session for it in answers} == {appending.session}
        found = await records(log.read("orders"))
        assert [it.value for it in found[::2]] == [b"%d" % n for n in range(1, 33)]
        assert [it.offset for it in found] == list(range(first, first + 64))


def test_everything_that_a_record_has(tmp_path: Path):
    given = [
        log_pb2.Record(key=b"k", value=b"v", timestamp_ms=-5),
        log_pb2.Record(key=b"", value=b"", timestamp_ms=7),
        log_pb2.Record(value=b"alone", timestamp_ms=7),
    ]
    given[2].headers.add(name="trace", value=b"\x00\xff")
    given[2].headers.add(name="trace", value=b"")

    @story(tmp_path)
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        appending = await log.open("orders")
        await appending.call.write(
            log_pb2.AppendRequest(request=1, records=log_pb2.Records(records=given))
        )
        base = (await appending.next()).base_offset
        found = await records(log.read("orders"))
        for offset, each in enumerate(given, base):
            each.offset = offset
        assert found == given
        assert not found[2].HasField("key")
        assert found[1].HasField("key")


def test_bodies_as_they_are(tmp_path: Path):
    builder = BatchBuilder()
    builder.extend([b"one" * 100, b"two" * 100])

    @story(tmp_path)
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        appending = await log.open("orders")
        bodies = [builder.body(), builder.body(Compression.ZSTD), builder.body(Compression.LZ4)]
        for request, body in enumerate(bodies, 1):
            await appending.call.write(encoded(request, body, 2))
            assert (await appending.next()).WhichOneof("outcome") == "base_offset"
        found = [each async for each in log.read("orders", encoded=True)]
        assert [each.batch.body for each in found] == bodies
        assert {each.batch.count for each in found} == {2}
        assert all(each.batch.crc32c == sum_of(each.batch.body) for each in found)
        first = appending.session + 1
        assert [each.base_offset for each in found] == [first, first + 2, first + 4]
        assert {each.commit_offset for each in found} == {first + 6}
        values = [each.value for each in await records(log.read("orders"))]
        assert values == [b"one" * 100, b"two" * 100] * 3


def test_where_a_read_begins_and_ends(tmp_path: Path):
    @story(tmp_path)
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        appending = await log.open("orders")
        first = appending.session + 1
        for request in range(1, 4):
            await appending.append(request, b"a", b"b", b"c")

        async def offsets(**asked: Any) -> list[int]:
            return [each.offset - first for each in await records(log.read("orders", **asked))]

        assert await offsets() == list(range(9))
        assert await offsets(offset=0) == list(range(9))
        assert await offsets(offset=first + 4) == [4, 5, 6, 7, 8]
        assert await offsets(offset=first + 1, end_offset=first + 5) == [1, 2, 3, 4]
        assert await offsets(offset=first + 1, end_offset=first + 1) == []
        assert await offsets(offset=1 << 63) == []
        assert await offsets(timestamp_ms=-1) == list(range(9))
        assert await offsets(timestamp_ms=1 << 62) == []
        assert await offsets(follow=True, end_offset=first + 2) == [0, 1]
        whole = [each async for each in log.read("orders", offset=first + 4, encoded=True)]
        assert [each.base_offset - first for each in whole] == [3, 6]
        late = [each.timestamp_ms async for each in log.read("orders", encoded=True)][-1]
        assert (await offsets(timestamp_ms=late))[-1] == 8


def test_large_entries_come_in_several_answers_and_small_ones_together(tmp_path: Path):
    @story(tmp_path, log_limits=LogLimits(records_bytes=10_000))
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        appending = await log.open("orders")
        await appending.append(1, *[b"%0100d" % n for n in range(500)])
        answers = [each async for each in log.read("orders")]
        assert len(answers) > 4
        assert all(each.base_offset == each.records.records[0].offset for each in answers)
        values = [it.value for each in answers for it in each.records.records]
        assert values == [b"%0100d" % n for n in range(500)]
        first = appending.session + 501
        for request in range(2, 10):
            await appending.send(request, b"small")
        for _ in range(2, 10):
            await appending.next()
        found = [each async for each in log.read("orders", offset=first)]
        together = {(each.epoch, each.timestamp_ms) for each in found}
        assert len(found) == len(together)
        assert sum(len(each.records.records) for each in found) == 8


def test_following(tmp_path: Path):
    @story(tmp_path, "a b c", PlaneLimits(tail_wait_ms=200))
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        appending = await log.open("orders")
        following = log.read("orders", follow=True, end_offset=(1 << 64) - 1)
        for request in range(1, 6):
            base = (await appending.append(request, b"%d" % request)).base_offset
            answer = await following.read()
            assert [it.value for it in answer.records.records] == [b"%d" % request]
            assert answer.base_offset == base
        following.cancel()
        await appending.call.done_writing()
        assert await appending.call.read() is grpc.aio.EOF
        assert await appending.call.code() is grpc.StatusCode.OK
        await nobody_is_left(cluster, leader)


async def nobody_is_left(cluster: PublicCluster, name: str) -> None:
    plane = cluster.planes[name]
    while plane._clients or plane.budget.bytes or any(plane.tails.waiting.values()):
        await asyncio.sleep(0.01)


# --- sessions ------------------------------------------------------------------------------------


def test_a_retry_on_another_stream_is_appended_once(tmp_path: Path):
    @story(tmp_path)
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        lost = await log.open("orders")
        first = await lost.append(1, b"one")
        lost.call.cancel()
        again = await log.open("orders", lost.session)
        assert again.session == lost.session
        assert await again.append(1, b"one") == first
        assert (await again.append(2, b"two")).base_offset == first.base_offset + 1
        assert [it.value for it in await records(log.read("orders"))] == [b"one", b"two"]


def test_gaps_forgotten_answers_and_unknown_sessions(tmp_path: Path):
    @story(tmp_path)
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        appending = await log.open("orders")
        gap = (await appending.append(3, b"x")).failure
        assert (gap.code, gap.expected_request, gap.retriable) == (
            Failure.CODE_REQUEST_GAP,
            1,
            True,
        )
        kept = cluster.nodes[leader].limits.replies_max
        for request in range(1, kept + 2):
            assert (await appending.append(request, b"x")).WhichOneof("outcome") == "base_offset"
        forgotten = (await appending.append(1, b"x")).failure
        assert (forgotten.code, forgotten.retriable) == (Failure.CODE_REPLY_FORGOTTEN, False)
        unknown = await log.open("orders", 12345)
        answer = await unknown.append(1, b"x")
        assert (answer.request, answer.session) == (1, 12345)
        assert answer.failure.code == Failure.CODE_SESSION_UNKNOWN
        assert not answer.failure.retriable


def test_the_first_request_may_hold_records(tmp_path: Path):
    @story(tmp_path)
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        call = log.append()
        records_ = log_pb2.Records(records=[log_pb2.Record(value=b"x")])
        await call.write(
            log_pb2.AppendRequest(version=1, shard="orders", request=1, records=records_)
        )
        opened, answer = await call.read(), await call.read()
        assert (opened.request, opened.WhichOneof("outcome")) == (0, None)
        assert (answer.request, answer.base_offset) == (1, opened.session + 1)


# --- refused -------------------------------------------------------------------------------------


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
        for request in range(1, 9):
            await appending.append(request, b"%d" % request)
        first = appending.session + 5
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
        bodies = [builder.body(Compression.ZSTD), b"\x01\x01\x00\x00\x09\x00\x00\x00 no zstd"]
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


# --- bounds --------------------------------------------------------------------------------------


def test_one_that_does_not_take_its_answers_is_not_read_from(tmp_path: Path):
    """All of them are gaps: the answers are longer than the requests, and gRPC's buffers fill."""
    number = 5_000

    @story(tmp_path, log_limits=LogLimits(answers_max=16))
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        appending = await log.open("orders")

        async def send_all() -> None:
            for request in range(2, number + 2):
                await appending.send(request, b"x")

        sending = asyncio.create_task(send_all())
        refusals = cluster.planes[leader].refusals
        seen, same = 0, 0
        while same < 20:
            await asyncio.sleep(0.05)
            same = same + 1 if refusals["RequestGap"] == seen else 0
            seen = refusals["RequestGap"]
        assert 0 < seen < number
        for request in range(2, number + 2):
            assert (await appending.next()).request == request
        await sending


def test_more_than_the_node_will_hold_is_refused_for_now(tmp_path: Path):
    limits = PlaneLimits(inflight_bytes_max=100_000)

    @story(tmp_path, "a b c", limits)
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        streams = [await log.open("orders") for _ in range(8)]
        for stream in streams:
            await stream.send(1, bytes(60_000))
        answers = [await stream.next() for stream in streams]
        refused = [it for it in answers if it.HasField("failure")]
        assert all(it.failure.code == Failure.CODE_TRY_AGAIN for it in refused)
        assert all(it.failure.retriable for it in refused)
        for stream in streams:
            await until_appended(stream)
        assert len(await records(log.read("orders"))) == 8


async def until_appended(stream: Appending) -> None:
    while (await stream.append(1, bytes(60_000))).HasField("failure"):
        await asyncio.sleep(0.01)


def test_a_stream_too_many(tmp_path: Path):
    @story(tmp_path, log_limits=LogLimits(streams_max=2))
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        streams = [await log.open("orders") for _ in range(2)]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await log.open("orders")
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await streams[0].append(1, b"x")).WhichOneof("outcome") == "base_offset"


# --- beside it -----------------------------------------------------------------------------------


def test_health_and_reflection(tmp_path: Path):
    @story(tmp_path)
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        stub = health_pb2_grpc.HealthStub(log.channel)
        for name in ("", SERVICE):
            request = health_pb2.HealthCheckRequest(service=name)
            assert (await stub.Check(request)).status == health_pb2.HealthCheckResponse.SERVING
        await cluster.services[leader].set_serving(False)
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=SERVICE))
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
        listing = reflection_pb2_grpc.ServerReflectionStub(log.channel)
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        stream = listing.ServerReflectionInfo(iter([asked]), timeout=30)
        names = {each.name for each in (await stream.read()).list_services_response.service}
        assert {SERVICE, "grpc.health.v1.Health"} <= names
        assert "shardlog.v1.Control" not in names
        stream.cancel()
