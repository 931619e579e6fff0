"""Readers and tails, by record and by batch, from offsets and times."""

import asyncio
from pathlib import Path

import pytest
from node.cluster import now_ms

from client.cluster import SHARD, Story, story, until
from shardlog.checksum import seal_body
from shardlog.client import END, FIRST, ClientLimits, Compression, Record, Timestamp
from shardlog.client.failures import Closed, InvalidArgument, OffsetTrimmed, UnreadableBatch
from shardlog.protocol.coordination import TrimShard
from shardlog.protocol.messages import Append, Appended
from shardlog.transport.batch import BatchBuilder
from shardlog_node.data_plane import PlaneLimits

SMALL_READS = ClientLimits(read_bytes=4_000, long_read_bytes=4_000, prefetch_bytes_max=10_000)


async def fill(s: Story, count: int, batch_bytes: int = 100) -> list[int]:
    async with s.client.producer(SHARD, batch_bytes=batch_bytes) as producer:
        futures = [producer.send(b"%05d" % n) for n in range(count)]
        return [await future for future in futures]


async def taken(records: object, count: int) -> list[Record]:
    """So many of a tail, and then no more."""
    found: list[Record] = []
    async for record in records:  # type: ignore[attr-defined]
        found.append(record)
        if len(found) == count:
            break
    await records.aclose()  # type: ignore[attr-defined]
    return found


def test_a_part_of_the_log(tmp_path: Path):
    """Offsets within a batch cut it, for records."""

    @story(tmp_path)
    async def _(s: Story) -> None:
        offsets = await fill(s, 100)
        start, end = offsets[17], offsets[58]
        read = [record async for record in s.client.read(SHARD, start, end)]
        assert [record.offset for record in read] == offsets[17:58]
        assert [record.value for record in read] == [b"%05d" % n for n in range(17, 58)]
        assert [record async for record in s.client.read(SHARD, end, start)] == []
        assert [record async for record in s.client.read(SHARD, END)] == []
        beyond = [record async for record in s.client.read(SHARD, offsets[98], 1 << 40)]
        assert [record.offset for record in beyond] == offsets[98:]
        with pytest.raises(InvalidArgument):
            s.client.read(SHARD, -1)


def test_by_columnar_batch(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        offsets = await fill(s, 100)
        found = [each async for each in s.client.batches(SHARD)]
        assert found[0].base_offset == offsets[0]
        assert [each.end for each in found[:-1]] == [each.base_offset for each in found[1:]]
        values = [value for each in found for value in each.batch.values.all()]
        assert values == [b"%05d" % n for n in range(100)]
        assert all(each.epoch == found[0].epoch for each in found)
        assert all(each.timestamp_ms > 0 for each in found)
        async with s.client.batches(SHARD, offsets[50], offsets[51]) as some:
            (one,) = [each async for each in some]
        assert one.base_offset <= offsets[50] < one.end
        assert [r.offset for r in one.records(offsets[50], offsets[51])] == [offsets[50]]


def test_what_is_fetched_ahead_is_bounded(tmp_path: Path):
    @story(tmp_path, client_limits=SMALL_READS)
    async def _(s: Story) -> None:
        await fill(s, 10_000, batch_bytes=1_000)
        async with s.client.batches(SHARD) as stream:
            first = await anext(stream)
            held = [len(fetched.body) for fetched in stream._ready]
            await until(lambda: stream._ready_bytes >= 10_000)
            for _ in range(20):
                await asyncio.sleep(0)
            held = [len(fetched.body) for fetched in stream._ready]
            assert sum(held) == stream._ready_bytes < 10_000 + 4_000
            rest = [each async for each in stream]
        values = [value for each in (first, *rest) for value in each.batch.values.all()]
        assert values == [b"%05d" % n for n in range(10_000)]


def test_a_tail_keeps_up_with_a_writer(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        tail = asyncio.create_task(taken(s.client.tail(SHARD), 5_000))
        offsets = await fill(s, 5_000)
        records = await tail
        assert [record.offset for record in records] == offsets
        from_the_end = asyncio.create_task(taken(s.client.tail(SHARD, END), 1))
        async with s.client.producer(SHARD) as producer:
            while not from_the_end.done():
                last = await producer.append(b"news")
        (record,) = await from_the_end
        assert record.value == b"news"
        assert offsets[-1] < record.offset <= last


def test_an_idle_tail_waits(tmp_path: Path):
    @story(tmp_path, plane_limits=PlaneLimits(tail_wait_ms=50))
    async def _(s: Story) -> None:
        tail = asyncio.create_task(taken(s.client.tail(SHARD), 1))
        reads = s.cluster.planes[s.leader].tails
        for _ in range(3):
            await until(lambda: bool(reads.waiting))
            await until(lambda: not reads.waiting)
        await fill(s, 1)
        assert [record.value for record in await tail] == [b"00000"]


def test_from_a_time(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        offsets = await fill(s, 10, batch_bytes=1)
        times = [record.timestamp_ms for record in await s.records()]
        assert times == sorted(times)
        await asyncio.sleep(0.02)
        later = await fill(s, 10, batch_bytes=1)
        moment = (await s.records())[10].timestamp_ms
        assert moment > times[-1]
        while await s.client.locate(SHARD, 1 << 60) != await s.client.end(SHARD):
            await asyncio.sleep(0.01)  # the leader's own disk may lag behind the others'
        found = [record.offset async for record in s.client.read(SHARD, Timestamp(moment))]
        assert found == later
        assert offsets[-1] < await s.client.locate(SHARD, moment) <= later[0]
        assert await s.client.locate(SHARD, 0) == await s.client.first(SHARD) == 0


def test_what_has_been_trimmed(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        offsets = await fill(s, 20, batch_bytes=1)
        first = offsets[7]
        log = s.cluster.nodes[s.leader].replicas[SHARD].replica.log
        while log.first != first:  # only what is applied is dropped
            await s.cluster.coordinator.command(SHARD, TrimShard(first))
            await asyncio.sleep(0.01)
        for reading in (s.client.read(SHARD, 0), s.client.tail(SHARD, offsets[0])):
            with pytest.raises(OffsetTrimmed) as told:
                await anext(reading)
            assert told.value.first == first
        for reading in (s.client.read(SHARD), s.client.read(SHARD, FIRST), s.client.tail(SHARD)):
            assert (await anext(reading)).offset == first  # point 12
        async for entry in s.client.batches(SHARD):
            assert entry.base_offset == first
            break
        kept = [record.offset async for record in s.client.read(SHARD)]
        assert kept == offsets[7:]
        kept = [record.offset async for record in s.client.read(SHARD, 0, from_first_kept=True)]
        assert kept == offsets[7:]
        assert await s.client.first(SHARD) == first
        assert await s.client.end(SHARD) == offsets[-1] + 1


@pytest.mark.parametrize("compression", list(Compression))
def test_keys_headers_and_timestamps_of_their_own(tmp_path: Path, compression: Compression):
    @story(tmp_path)
    async def _(s: Story) -> None:
        began_ms = now_ms()
        async with s.client.producer(SHARD, compression=compression) as producer:
            futures = []
            for n in range(50):
                key = b"k%d" % n if n % 3 else None
                headers = [("trace", b"%d" % n)] if n % 2 else []
                value = b"value " * 20
                futures.append(
                    producer.send(value, key, headers=headers, timestamp_ms=1_000 * n or None)
                )
            offsets = [await future for future in futures]
        records = await s.records()
        assert [record.offset for record in records] == offsets
        assert [record.key for record in records] == [
            b"k%d" % n if n % 3 else None for n in range(50)
        ]
        assert [record.timestamp_ms for record in records[1:]] == [1_000 * n for n in range(1, 50)]
        assert began_ms <= records[0].timestamp_ms <= now_ms()
        assert records[1].headers == (("trace", b"1"),)
        assert records[2].headers == ()


def test_a_body_that_is_no_batch_is_told_and_can_be_passed_over(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        (before,) = await fill(s, 1)
        session = await s.cluster.session(s.leader, SHARD)
        bad = await s.cluster.append(s.leader, SHARD, session, 1)
        (after,) = await fill(s, 1)
        reading = s.client.read(SHARD)
        assert (await anext(reading)).offset == before
        with pytest.raises(UnreadableBatch) as told:
            await anext(reading)
        assert (told.value.offset, told.value.next) == (bad, bad + 1)
        assert str(told.value).endswith(f"the next entry begins at {bad + 1}")
        rest = [record.offset async for record in s.client.read(SHARD, told.value.next)]
        assert rest == [after]


def test_headers_that_are_none_are_told_when_their_record_comes(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        builder = BatchBuilder()
        builder.append(b"fine", headers=[("name", b"content")])
        builder.append(b"bad", headers=[("other", b"content")])
        body = bytearray(builder.body())
        at = body.index(b"other") - 6
        body[at : at + 2] = b"\xff\xff"
        session = await s.cluster.session(s.leader, SHARD)
        append = Append(session, 1, 2, bytes(body), seal_body(body))
        assert isinstance(await s.cluster.ask(s.leader, SHARD, append), Appended)
        reading = s.client.read(SHARD)
        assert (await anext(reading)).value == b"fine"
        with pytest.raises(UnreadableBatch, match="a header is cut"):
            await anext(reading)


def test_a_damaged_copy_is_repaired_before_it_is_read(tmp_path: Path):
    """The leader sends what stands in its file; the client notices, and the followers help."""

    @story(tmp_path)
    async def _(s: Story) -> None:
        offsets = await fill(s, 200)
        damaged = 0
        for path in (tmp_path / s.leader).rglob("*"):
            if path.is_file() and b"00100" in (content := path.read_bytes()):
                with path.open("r+b") as file:
                    file.seek(content.index(b"00100"))
                    file.write(b"99999")
                damaged += 1
        assert damaged == 1
        records = await s.records()
        assert [record.offset for record in records] == offsets
        assert [record.value for record in records] == [b"%05d" % n for n in range(200)]


def test_a_closed_reader_says_so(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        stream = s.client.tail_batches(SHARD)
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        await stream.aclose()
        with pytest.raises(Closed):
            await waiting
        with pytest.raises(Closed):
            await anext(stream)


def test_more_tails_than_a_node_answers_at_once(tmp_path: Path):
    """All get their turn, and so do others who ask."""

    @story(tmp_path, plane_limits=PlaneLimits(reads_max=2, tail_wait_ms=100),
           client_limits=ClientLimits(reads_max=2))  # fmt: skip
    async def _(s: Story) -> None:
        await fill(s, 1)
        tails = [asyncio.create_task(taken(s.client.tail(SHARD), 2)) for _ in range(6)]
        reads = s.cluster.planes[s.leader].tails
        await until(lambda: bool(reads.waiting))
        end = await s.client.end(SHARD)
        (offset,) = await fill(s, 1)
        assert offset >= end
        for tail in tails:
            assert [record.value for record in await tail] == [b"00000", b"00000"]


def test_tails_that_wait_keep_nobody_else_waiting(tmp_path: Path):
    """Neither other reads, which are few at a time, nor each other."""
    a_minute = 60_000

    @story(tmp_path, plane_limits=PlaneLimits(reads_max=2, tail_wait_ms=a_minute),
           client_limits=ClientLimits(reads_max=2, tail_wait_ms=a_minute))  # fmt: skip
    async def _(s: Story) -> None:
        first, last = await fill(s, 2)
        tails = [asyncio.create_task(taken(s.client.tail(SHARD, last + 1), 1)) for _ in range(40)]
        reads = s.cluster.planes[s.leader].tails
        await until(lambda: len(reads.waiting.get(SHARD, ())) == len(tails))
        assert await s.client.end(SHARD) == last + 1
        assert [record.offset for record in await s.records()] == [first, last]
        assert len(reads.waiting[SHARD]) == len(tails)
        await fill(s, 1)
        for tail in tails:
            (record,) = await tail
            assert record.offset > last
