"""The public service of nodes, over real gRPC."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from transport.http2 import UnfinishedCalls

from node.public import Appending, Log, PublicCluster, encoded, nobody_is_left, records, story
from shardlog.checksum import sum_of
from shardlog.transport.batch import BatchBuilder
from shardlog.transport.compression import Compression
from shardlog.transport.generated import log_pb2
from shardlog.transport.grpc_public_calls import CALLS_PER_PEER_MAX
from shardlog_node.data_plane import PlaneLimits
from shardlog_node.log_stream import LogLimits
from shardlog_node.log_wire import RECORDS_MAX, SERVICE

Failure = log_pb2.Failure


# --- append and read -----------------------------------------------------------------------------


def test_appended_and_read_back(tmp_path: Path):
    @story(tmp_path, "a b c")
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        appending = await log.open("orders")
        first = cluster.end(leader)
        for request in range(1, 33):
            await appending.send(request, b"%d" % request, b"and more")
        answers = [await appending.next() for _ in range(32)]
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
        first = cluster.end(leader)
        bodies = [builder.body(), builder.body(Compression.ZSTD), builder.body(Compression.LZ4)]
        for request, body in enumerate(bodies, 1):
            await appending.call.write(encoded(request, body, 2))
            assert (await appending.next()).WhichOneof("outcome") == "base_offset"
        found = [each async for each in log.read("orders", encoded=True)]
        assert [each.batch.body for each in found] == bodies
        assert {each.batch.count for each in found} == {2}
        assert all(each.batch.crc32c == sum_of(each.batch.body) for each in found)
        assert [each.base_offset for each in found] == [first, first + 2, first + 4]
        assert {each.commit_offset for each in found} == {first + 6}
        values = [each.value for each in await records(log.read("orders"))]
        assert values == [b"one" * 100, b"two" * 100] * 3


def test_where_a_read_begins_and_ends(tmp_path: Path):
    @story(tmp_path)
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        appending = await log.open("orders")
        first = cluster.end(leader)
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
    @story(tmp_path, log_limits=LogLimits(read_bytes=10_000))
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        appending = await log.open("orders")
        first = cluster.end(leader) + 500
        await appending.append(1, *[b"%0100d" % n for n in range(500)])
        answers = [each async for each in log.read("orders")]
        assert len(answers) > 4
        assert all(each.base_offset == each.records.records[0].offset for each in answers)
        values = [it.value for each in answers for it in each.records.records]
        assert values == [b"%0100d" % n for n in range(500)]
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


def test_S04_another_batch_under_a_used_number_is_refused(tmp_path: Path):
    @story(tmp_path)
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        appending = await log.open("orders")
        base = (await appending.append(1, b"one")).base_offset
        thief = await log.open("orders", appending.session)
        answer = await thief.append(1, b"another")
        assert answer.failure.code == Failure.CODE_DIFFERENT_REQUEST
        assert not answer.failure.retriable
        assert str(base) in answer.failure.message
        assert (await thief.append(1, b"one")).base_offset == base
        assert [it.value for it in await records(log.read("orders"))] == [b"one"]


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
        assert (answer.request, answer.base_offset) == (1, cluster.end(leader) - 1)


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


def test_a_record_that_is_longer_than_a_request_may_be_is_read(tmp_path: Path):
    """It came compressed."""
    value = bytes(9 << 20)

    @story(tmp_path)
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        builder = BatchBuilder()
        builder.append(value)
        stream = await log.open("orders")
        await stream.call.write(encoded(1, builder.body(Compression.ZSTD), 1))
        assert (await stream.next()).WhichOneof("outcome") == "base_offset"
        options = [("grpc.max_receive_message_length", 16 << 20)]
        async with grpc.aio.insecure_channel(cluster.public[leader], options) as channel:
            (record,) = await records(Log(channel).read("orders"))
        assert record.value == value


def test_S09_nobody_takes_all_streams_and_health_is_told_nevertheless(tmp_path: Path):
    limits = LogLimits(streams_max=4, streams_per_peer_max=2)

    @story(tmp_path, log_limits=limits)
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        streams = [await log.open("orders") for _ in range(2)]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await log.open("orders")
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "of one address" in (refused.value.details() or "")
        health = health_pb2_grpc.HealthStub(log.channel)
        answer = await health.Check(health_pb2.HealthCheckRequest(service=SERVICE))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        await streams[0].call.done_writing()
        assert await streams[0].call.read() is grpc.aio.EOF
        assert (await streams[1].append(1, b"x")).WhichOneof("outcome") == "base_offset"
        while True:
            try:
                await log.open("orders")
                return
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.01)


def test_S09_streams_that_say_nothing_are_ended(tmp_path: Path):
    @story(tmp_path, log_limits=LogLimits(streams_max=1, first_ms=100, idle_ms=60_000))
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        for open_one in (log.append, log.read_silent):
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await open_one().read()
            assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
            assert "nothing was asked for 100 ms" in (ended.value.details() or "")
        assert (await (await log.open("orders")).append(1, b"x")).base_offset
        assert cluster.services[leader].streams == 1


def test_S09_requests_that_never_end_fill_no_memory(tmp_path: Path):
    """gRPC does not tell of them, so streams that wait too long are ended when many do."""
    size, number = 1 << 20, 24
    limits = LogLimits(waiting_max=2, crowded_ms=500, window_bytes=64 << 10)

    @story(tmp_path, log_limits=limits)
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        stream = await log.open("orders")
        calls = await UnfinishedCalls.to(cluster.public[leader])
        for _ in range(number):
            calls.begin(f"/{SERVICE}/Append", size)
        request = 0
        async with asyncio.timeout(30):
            while len(calls.ended) < number - 2:
                request += 1
                appended = await stream.append(request, b"beside them")
                assert appended.WhichOneof("outcome") == "base_offset"
                await asyncio.sleep(0.01)
        assert calls.pending.total() <= 2 * size
        await calls.close()


def test_S09_streams_of_reflection_are_bounded(tmp_path: Path):
    @story(tmp_path, "a")
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        stub = reflection_pb2_grpc.ServerReflectionStub(log.channel)
        idle = [stub.ServerReflectionInfo() for _ in range(CALLS_PER_PEER_MAX + 1)]
        codes = [asyncio.create_task(each.code()) for each in idle]
        (first,), _ = await asyncio.wait(codes, return_when=asyncio.FIRST_COMPLETED)
        assert first.result() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for each in idle:
            each.cancel()
        await asyncio.wait(codes)


def test_S09_an_idle_stream_ends_when_nothing_is_under_way(tmp_path: Path):
    @story(tmp_path, log_limits=LogLimits(idle_ms=100))
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        stream = await log.open("orders")
        first = await stream.append(1, b"x")
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await stream.call.read()
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        again = await log.open("orders", stream.session)
        assert (await again.append(1, b"x")).base_offset == first.base_offset


def test_S09_a_reader_that_takes_nothing_is_ended(tmp_path: Path):
    @story(tmp_path, log_limits=LogLimits(stall_ms=3000, window_bytes=64 << 10))
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        stream = await log.open("orders")
        for request in range(1, 41):
            await stream.append(request, bytes(200_000))
        reading = log.read("orders")
        assert (await reading.read()).records.records
        while cluster.services[leader].streams > 1:
            await asyncio.sleep(0.01)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await read_to_end(reading)
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


async def read_to_end(reading: Any) -> None:
    while await reading.read() is not grpc.aio.EOF:
        pass


def test_S09_more_records_than_one_request_may_hold(tmp_path: Path):
    @story(tmp_path)
    async def _(cluster: PublicCluster, leader: str, log: Log) -> None:
        stream = await log.open("orders")
        await stream.send(1, *[b""] * RECORDS_MAX)
        assert (await stream.next()).WhichOneof("outcome") == "base_offset"
        for values in (RECORDS_MAX + 1, 3 * RECORDS_MAX):
            stream = await log.open("orders")
            await stream.send(1, *[b""] * values)
            refused = await stream.next()
            assert refused.failure.code == Failure.CODE_INVALID
            assert "more than" in refused.failure.message


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
