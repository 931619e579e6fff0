"""What a producer takes, how it makes batches, and what it refuses."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from client.cluster import SHARD, Story, story, until
from shardlog.client import ClientLimits, Compression, Range
from shardlog.client.failures import (
    BufferFull,
    Closed,
    DeadlineExceeded,
    FateUnknown,
    InvalidArgument,
    InvalidRecord,
    RecordTooLarge,
    Refused,
)
from shardlog.protocol.failures import Illegal
from shardlog.transport.batch import BatchBuilder
from shardlog_node.data_plane import PlaneLimits


async def counts(s: Story) -> list[int]:
    """How many records each entry of the log has."""
    return [each.batch.count async for each in s.client.batches(SHARD)]


def test_what_is_sent_in_one_turn_is_one_batch(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        async with s.client.producer(SHARD) as producer:
            futures = [producer.send(b"x") for _ in range(30)]
            await asyncio.gather(*futures)
            await producer.append(b"y")
        assert await counts(s) == [30, 1]


def test_batches_linger_while_others_are_under_way_and_are_cut_when_full(tmp_path: Path):
    @story(tmp_path, proxied=True)
    async def _(s: Story) -> None:
        async with s.client.producer(SHARD, linger_ms=60_000, batch_bytes=140) as producer:
            await producer.append(b"x")
            s.proxies[s.leader].to_client = False
            end = s.cluster.end(s.leader)
            futures = [producer.send(b"0123456789")]
            await until(lambda: s.cluster.end(s.leader) == end + 1)
            for _ in range(25):
                futures.append(producer.send(b"0123456789"))
                await asyncio.sleep(0)
            await until(lambda: s.cluster.end(s.leader) == end + 21)
            s.proxies[s.leader].to_client = True
            await asyncio.gather(*futures)
        assert await counts(s) == [1, 1, 10, 10, 5]


def test_a_batch_lingers_no_longer_than_it_may(tmp_path: Path):
    @story(tmp_path, proxied=True)
    async def _(s: Story) -> None:
        async with s.client.producer(SHARD, linger_ms=1) as producer:
            await producer.append(b"x")
            s.proxies[s.leader].to_client = False
            end = s.cluster.end(s.leader)
            first = producer.send(b"x")
            await until(lambda: s.cluster.end(s.leader) == end + 1)
            second = producer.send(b"x")
            await until(lambda: s.cluster.end(s.leader) == end + 2)
            assert not first.done()
            s.proxies[s.leader].to_client = True
            await asyncio.gather(first, second)


def test_a_batch_goes_on_filling_up_while_nothing_may_be_sent(tmp_path: Path):
    @story(tmp_path, proxied=True)
    async def _(s: Story) -> None:
        async with s.client.producer(SHARD, inflight_requests_max=1) as producer:
            await producer.append(b"x")
            s.proxies[s.leader].to_client = False
            end = s.cluster.end(s.leader)
            futures = [producer.send(b"x")]
            await until(lambda: s.cluster.end(s.leader) == end + 1)
            for _ in range(10):
                futures.append(producer.send(b"x"))
                await asyncio.sleep(0)
            s.proxies[s.leader].to_client = True
            await asyncio.gather(*futures)
        assert await counts(s) == [1, 1, 10]


def test_many_values_have_one_future(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        async with s.client.producer(SHARD, batch_bytes=1_000) as producer:
            single = producer.send(b"single")
            many = producer.send_many([b"%096d" % n for n in range(25)])
            base = await single
            ranges = await many
            assert await producer.send_many([]) == []
            assert await producer.append_many([b"a", b"b"]) == [Range(base + 26, 2)]
        assert ranges == [Range(base + 1, 9), Range(base + 10, 10), Range(base + 20, 6)]
        values = [record.value for record in await s.records()]
        assert values == [b"single", *[b"%096d" % n for n in range(25)], b"a", b"b"]
        assert producer.buffered_bytes == 0


def test_what_waits_is_bounded(tmp_path: Path):
    @story(tmp_path, proxied=True)
    async def _(s: Story) -> None:
        producer = s.client.producer(SHARD, buffer_bytes_max=1_000)
        await producer.append(b"x")
        s.proxies[s.leader].to_client = False
        futures = [producer.send(bytes(100)) for _ in range(10)]
        with pytest.raises(BufferFull):
            producer.send(b"")
        waiting = asyncio.create_task(producer.append(b"patient"))
        many = asyncio.create_task(producer.append_many([b"patient"] * 3))
        await asyncio.sleep(0)
        assert not waiting.done()
        s.proxies[s.leader].to_client = True
        offsets = [await future for future in futures]
        assert await waiting == offsets[-1] + 1
        assert await many == [Range(offsets[-1] + 2, 3)]
        await producer.close()
        assert producer.buffered_bytes == 0


def test_waiting_for_room_has_a_deadline(tmp_path: Path):
    @story(tmp_path, proxied=True)
    async def _(s: Story) -> None:
        producer = s.client.producer(SHARD, buffer_bytes_max=100, deadline_ms=60_000)
        await producer.append(b"x")
        for proxy in s.proxies.values():
            proxy.silence()
        lost = producer.send(bytes(200))
        producer._deadline_ms = 200
        with pytest.raises(DeadlineExceeded, match="finding room"):
            await producer.append(b"y")
        await producer._delivery.close()
        with pytest.raises(FateUnknown) as told:
            await lost
        assert isinstance(told.value.last, Closed)
        await producer.close()


def test_records_over_the_limit(tmp_path: Path):
    limits = ClientLimits(record_bytes_max=1_000)

    @story(tmp_path, client_limits=limits)
    async def _(s: Story) -> None:
        async with s.client.producer(SHARD, batch_bytes=1_000) as producer:
            with pytest.raises(RecordTooLarge, match="a record of 1001 bytes, more than 1000"):
                producer.send(bytes(997))
            with pytest.raises(RecordTooLarge):
                await producer.append(bytes(500), bytes(600))
            with pytest.raises(RecordTooLarge):
                producer.send_many([b"x", bytes(1_001)])
            await producer.append(bytes(996))
        assert await counts(s) == [1]


def test_a_batch_that_the_node_refuses_fails_alone(tmp_path: Path):
    @story(tmp_path, plane_limits=PlaneLimits(entry_bytes_max=1_000))
    async def _(s: Story) -> None:
        producer = s.client.producer(SHARD, batch_bytes=1)
        futures = [producer.send(bytes(n)) for n in (10, 2_000, 20, 30)]
        first = await futures[0]
        with pytest.raises(Refused) as told:
            await futures[1]
        assert isinstance(told.value.refusal, Illegal)
        assert not told.value.retriable
        assert [await future for future in futures[2:]] == [first + 2, first + 3]
        await producer.close()
        assert [len(record.value) for record in await s.records()] == [10, 20, 30]


def test_what_waited_behind_a_refused_batch_goes_on_under_a_new_session(tmp_path: Path):
    @story(tmp_path, plane_limits=PlaneLimits(entry_bytes_max=1_000))
    async def _(s: Story) -> None:
        producer = s.client.producer(SHARD, inflight_requests_max=1, deadline_ms=10_000)
        await producer.append(b"first")
        session = producer.session
        refused = producer.send(bytes(2_000))
        await asyncio.sleep(0)
        ripe = producer.send(b"ripe")
        await asyncio.sleep(0)
        assert not refused.done()
        with pytest.raises(Refused):
            await refused
        await ripe
        assert producer.session not in (0, session)
        await producer.append(b"last")
        await producer.close()
        assert [record.value for record in await s.records()] == [b"first", b"ripe", b"last"]


def test_what_can_be_no_record(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        producer = s.client.producer(SHARD)
        with pytest.raises(InvalidRecord):
            producer.send("text")  # type: ignore[arg-type]
        assert producer.buffered_bytes == 0
        await producer.append(b"fine")
        await producer.close()
        with pytest.raises(Closed):
            producer.send(b"late")


def test_B6_a_timestamp_in_another_unit_than_milliseconds_is_refused(tmp_path: Path):
    """Before it joins a batch, and the ends of what may be are taken."""

    @story(tmp_path)
    async def _(s: Story) -> None:
        first, last = -62_135_596_800_000, 253_402_300_799_999
        async with s.client.producer(SHARD) as producer:
            for ms in (first - 1, last + 1, 1_760_000_000 * 10**9, 1 << 70):
                with pytest.raises(InvalidRecord, match="outside the years 1 to 9999"):
                    producer.send(b"x", timestamp_ms=ms)
            await producer.append(b"first", timestamp_ms=first)
            await producer.append(b"last", timestamp_ms=last)
        assert [record.timestamp_ms for record in await s.records()] == [first, last]


def test_B4_a_numbered_request_that_is_refused_is_certainly_not_appended(tmp_path: Path):
    @story(tmp_path, plane_limits=PlaneLimits(entry_bytes_max=2_000))
    async def _(s: Story) -> None:
        session = await s.client.register(SHARD)
        body = BatchBuilder()
        body.append(bytes(3_000))
        with pytest.raises(Refused, match="more than 2000") as refused:
            async with s.client.numbered(SHARD, session) as producer:
                await producer.append(body.body(), 1)
        assert not refused.value.fate_unknown
        assert await s.records() == []


def test_settings_that_can_never_be_right(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        wrong: list[dict[str, Any]] = [
            {"inflight_requests_max": 0},
            {"inflight_requests_max": 33},
            {"batch_bytes": 0},
            {"batch_bytes": 1 << 30},
            {"linger_ms": -1},
            {"deadline_ms": 0},
        ]
        for settings in wrong:
            with pytest.raises(InvalidArgument):
                s.client.producer(SHARD, **settings)
        for shard in ("", "x" * 256):
            with pytest.raises(InvalidArgument):
                s.client.producer(shard)
        await s.client.close()
        with pytest.raises(Closed):
            s.client.producer(SHARD)


def test_a_future_that_nobody_waits_for_any_more(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        async with s.client.producer(SHARD) as producer:
            gone, kept = producer.send(b"gone"), producer.send(b"kept")
            gone.cancel()
            await kept
        assert [record.value for record in await s.records()] == [b"gone", b"kept"]


def test_compressed_batches_are_shorter(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        value = b"the same again and again " * 40
        for compression in Compression:
            async with s.client.producer(SHARD, compression=compression) as producer:
                await producer.append_many([value] * 20)
        assert await counts(s) == [20, 20, 20]
        assert {record.value for record in await s.records()} == {value}


BAD_RECORDS: dict[str, dict[str, Any]] = {
    "value": {"value": "text"},
    "key": {"value": b"", "key": "text"},
    "headers that are a dict": {"value": b"", "headers": {"name": b"x"}},
    "header that is text": {"value": b"", "headers": [("name", "text")]},
    "header with no name": {"value": b"", "headers": [(b"name", b"x")]},
    "header that is no pair": {"value": b"", "headers": ["name"]},
    "name that has no UTF-8": {"value": b"", "headers": [("\ud800", b"x")]},
    "time that is a float": {"value": b"", "timestamp_ms": 1.5},
    "time that is too large": {"value": b"", "timestamp_ms": 1 << 70},
}


@pytest.mark.parametrize("timestamp_ms", [None, 1_000])
@pytest.mark.parametrize("bad", BAD_RECORDS.values(), ids=BAD_RECORDS.keys())
def test_point_3_a_bad_record_fails_only_itself(
    tmp_path: Path, bad: dict[str, Any], timestamp_ms: int | None
):
    @story(tmp_path, names="a")
    async def _(s: Story) -> None:
        async with s.client.producer(SHARD) as producer:
            good = [producer.send(b"good 1", timestamp_ms=timestamp_ms)]
            with pytest.raises(InvalidRecord):
                producer.send(**bad)
            good.append(producer.send(b"good 2", timestamp_ms=timestamp_ms))
            first = await good[0]
            assert await good[1] == first + 1
        assert [record.value for record in await s.records()] == [b"good 1", b"good 2"]


def test_point_3_a_bulk_call_is_refused_as_a_whole(tmp_path: Path):
    @story(tmp_path, names="a")
    async def _(s: Story) -> None:
        async with s.client.producer(SHARD, batch_bytes=10) as producer:
            many: list[Any] = [b"0123456789", b"0123456789", "text"]
            with pytest.raises(InvalidRecord, match="value 2 is bytes, not str"):
                producer.send_many(many)
            with pytest.raises(InvalidRecord):
                await producer.append_many(b"bytes are no values")  # type: ignore[arg-type]
            assert producer.buffered_bytes == 0
            await producer.append(b"good")
        assert [record.value for record in await s.records()] == [b"good"]


def test_point_3_what_is_like_bytes_is_taken_as_it_is_at_the_call(tmp_path: Path):
    @story(tmp_path, names="a")
    async def _(s: Story) -> None:
        async with s.client.producer(SHARD) as producer:
            value = bytearray(b"value")
            headers: list[tuple[str, Any]] = [("name", bytearray(b"content"))]
            single = producer.send(value, memoryview(b"key"), headers=headers)
            many = producer.send_many(each for each in (value, memoryview(b"view")))
            value[:] = b"other"
            headers.clear()
            await single
            await many
        assert [(each.key, each.value, each.headers) for each in await s.records()] == [
            (b"key", b"value", (("name", b"content"),)),
            (None, b"value", ()),
            (None, b"view", ()),
        ]


def test_point_10_a_failure_is_raised_once(tmp_path: Path):
    @story(tmp_path, plane_limits=PlaneLimits(entry_bytes_max=1_000))
    async def _(s: Story) -> None:
        async with s.client.producer(SHARD, batch_bytes=1) as producer:
            with pytest.raises(Refused):
                await producer.append(bytes(2_000))
            seen, unseen = producer.send(bytes(2_000)), producer.send(bytes(2_001))
            with pytest.raises(Refused):
                await seen
            with pytest.raises(Refused):
                await producer.flush()
            assert unseen.done()
            await producer.append(b"last")


def test_point_15_many_records_with_keys_and_headers(tmp_path: Path):
    @story(tmp_path, names="a")
    async def _(s: Story) -> None:
        values = [b"%d" % n for n in range(30)]
        keys = [None if n % 3 else bytearray(b"key %d" % n) for n in range(30)]
        headers = [[("n", b"%d" % n)] if n % 2 else [] for n in range(30)]
        async with s.client.producer(SHARD, batch_bytes=100) as producer:
            single = producer.send(b"single")
            ranges = await producer.append_many(values, keys, headers)
            assert await single == ranges[0].base - 1
            await producer.append_many([b"plain"])
            await producer.append_many([b"keyed"], keys=[b"key"])
            for wrong in ({"keys": [b"key"]}, {"headers": [()]}, {"keys": ["text", b""]}):
                with pytest.raises(InvalidRecord):
                    producer.send_many([b"a", b"b"], **wrong)
            assert producer.buffered_bytes == 0
        records = await s.records()
        assert [each.value for each in records] == [b"single", *values, b"plain", b"keyed"]
        assert [each.key for each in records] == [
            None, *[key and bytes(key) for key in keys], None, b"key",
        ]  # fmt: skip
        assert [each.headers for each in records] == [(), *map(tuple, headers), (), ()]
        assert sum(each.count for each in ranges) == 30
        assert len(ranges) > 3


def test_point_15_a_record_over_the_limit_with_its_key(tmp_path: Path):
    @story(tmp_path, names="a", client_limits=ClientLimits(record_bytes_max=1_000))
    async def _(s: Story) -> None:
        async with s.client.producer(SHARD, batch_bytes=1_000) as producer:
            with pytest.raises(RecordTooLarge):
                producer.send_many([b"x", bytes(600)], [b"", bytes(600)])


def test_a_record_that_does_not_fit_begins_the_next_batch(tmp_path: Path):
    @story(tmp_path, names="a")
    async def _(s: Story) -> None:
        async with s.client.producer(SHARD, batch_bytes=1_000) as producer:
            for size in (600, 600, 300, 100):
                producer.send(bytes(size))
        counts = [each.batch.count async for each in s.client.batches(SHARD)]
        assert counts == [1, 2, 1]
