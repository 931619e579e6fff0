"""Readers as Spark uses them, piece by piece and without a JVM: planning, ranges, what is lost."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from client.cluster import SHARD, Story, story, until
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringContains,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from snapshots.logs import SEGMENT_BYTES, archive_at, fill, log_of

from shardlog.protocol.coordination import Promote, TrimShard
from shardlog.snapshots.creating import create
from shardlog.snapshots.restoring import restore
from shardlog_spark.failures import BadOption, CannotRead, DamagedSource, DataLost, OtherLog
from shardlog_spark.options import Options, read_options
from shardlog_spark.reading import Bounds, FilteringReader, ShardlogReader
from shardlog_spark.streaming import ShardlogStreamReader, _limited
from spark.made_snapshots import MADE_MS, Made


def live(url: str, **options: str) -> Options:
    return read_options({"shardlog.bootstrap.servers": url, "subscribe": SHARD, **options})


def rows_of(reader: Any, partitions: list[Any]) -> list[tuple[int, bytes]]:
    """Everything goes through pickle on its way to an executor."""
    reader, partitions = pickle.loads(pickle.dumps((reader, partitions)))
    return [
        (row["offset"], row["value"])
        for partition in partitions
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def read(reader: ShardlogReader) -> list[tuple[int, bytes]]:
    return rows_of(reader, reader.partitions())


async def in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.to_thread(work, *arguments)


async def wanted(s: Story) -> list[tuple[int, bytes]]:
    return [(each.offset, each.value) for each in await log_of(s.client)]


def test_a_snapshot_and_the_live_log_hold_the_same(tmp_path: Path):
    @story(tmp_path / "cluster")
    async def _(s: Story) -> None:
        await fill(s.client, 60)
        place = f"file://{tmp_path}/snapshots"
        await create(s.client, archive_at(place), segment_bytes=SEGMENT_BYTES)
        everything = await wanted(s)
        cases: tuple[dict[str, str], ...]
        cases = {"minPartitions": "7"}, {"startingOffsets": '{"orders": 101}'}, {}
        for case in cases:
            from_snapshot = read_options({"path": place, "subscribe": SHARD, **case})
            for options in (from_snapshot, live(s.cluster.url, **case)):
                reader = ShardlogReader(options)
                start = 101 if "startingOffsets" in case else 0
                assert await in_thread(read, reader) == [
                    each for each in everything if each[0] >= start
                ]
                if "minPartitions" in case:
                    assert len(await in_thread(reader.partitions)) >= 7


def test_filters_become_bounds(tmp_path: Path):
    def bounds(*filters: Filter) -> tuple[Bounds, list[Filter]]:
        reader = FilteringReader(live("http://127.0.0.1:1"))
        left = list(reader.pushFilters(list(filters)))
        return reader.bounds, left

    assert bounds(GreaterThan(("offset",), 5), LessThan(("offset",), 9)) == (Bounds(6, 9), [])
    assert bounds(GreaterThanOrEqual(("offset",), 5), LessThanOrEqual(("offset",), 9)) == (
        Bounds(5, 10),
        [],
    )
    assert bounds(EqualTo(("offset",), 5))[0] == Bounds(5, 6)
    when = datetime.fromtimestamp(7.5, UTC)
    found, left = bounds(GreaterThan(("timestamp",), when), StringContains(("shard",), "o"))
    assert found == Bounds(earliest_ms=7500)
    assert len(left) == 2  # Spark looks again
    found, left = bounds(EqualTo(("shard",), "a"), In(("shard",), ("a", "b")))
    assert (found.shards, left) == (frozenset({"a"}), [])


def test_B11_what_filters_exclude_is_not_passed_on(tmp_path: Path):
    """Records' own times too, which no index knows; and whole shards."""

    def found(options: Options, *filters: Filter) -> list[dict[str, Any]]:
        reader = FilteringReader(options)
        list(reader.pushFilters(list(filters)))
        return [
            row
            for partition in reader.partitions()
            for batch in reader.read(partition)
            for row in batch.to_pylist()
        ]

    @story(tmp_path / "cluster", names="a")
    async def _(s: Story) -> None:
        async with s.client.producer(SHARD) as producer:
            for number in range(100):
                await producer.append(b"%d" % number, timestamp_ms=1_000_000 + number)
        place = f"file://{tmp_path}/snapshots"
        await create(s.client, archive_at(place), segment_bytes=SEGMENT_BYTES)
        low, high = (datetime.fromtimestamp(seconds, UTC) for seconds in (1000.010, 1000.019))
        between = GreaterThanOrEqual(("timestamp",), low), LessThanOrEqual(("timestamp",), high)
        for options in (
            read_options({"path": place, "subscribe": SHARD}),
            live(s.cluster.url),
        ):
            rows = await in_thread(found, options, *between)
            assert [row["value"] for row in rows] == [b"%d" % number for number in range(10, 20)]
            assert await in_thread(found, options, EqualTo(("shard",), "other")) == []


def test_B16_a_missing_segment_is_told_before_tasks_start(tmp_path: Path):
    place = f"file://{tmp_path}"
    manifest = Made(SHARD).append(1, [b"a"] * 3).put(place, "one")
    reader = ShardlogReader(read_options({"path": place, "subscribe": SHARD}))
    file = tmp_path / SHARD / "segments" / manifest.segments[0].name
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(DamagedSource, match=f"{file.name} is damaged: it has {len(whole) - 1}"):
        reader.partitions()
    file.unlink()
    with pytest.raises(DamagedSource, match=f"{file.name} is damaged: it is missing"):
        reader.partitions()


def test_the_leader_changes_while_a_task_reads(tmp_path: Path):
    @story(tmp_path / "cluster")
    async def _(s: Story) -> None:
        await fill(s.client, 100)
        everything = await wanted(s)
        reader = ShardlogReader(live(s.cluster.url))
        (partition,) = await in_thread(reader.partitions)
        batches = reader.read(partition)
        found = await in_thread(next, batches, None)
        other = next(name for name in s.cluster.names if name != s.leader)
        await s.cluster.coordinator.command(SHARD, Promote(other))
        await s.cluster.leader(SHARD, s.leader)
        rows = []
        while found is not None:
            rows += [(row["offset"], row["value"]) for row in found.to_pylist()]
            found = await in_thread(next, batches, None)
        assert rows == everything


def test_a_stream_goes_on_where_it_was(tmp_path: Path):
    @story(tmp_path / "cluster")
    async def _(s: Story) -> None:
        await fill(s.client, 30)
        options = live(s.cluster.url, startingOffsets="earliest", maxOffsetsPerTrigger="100")
        reader = ShardlogStreamReader(options)
        assert reader.getDefaultReadLimit() == ReadMaxRows(100)
        at = await in_thread(reader.initialOffset)
        assert places(at) == {SHARD: 0}
        await in_thread(reader.prepareForTriggerAvailableNow)
        end = await s.client.end(SHARD)
        everything = await wanted(s)
        await fill(s.client, 5)  # what comes now is left to the next one
        rows: list[tuple[int, bytes]] = []
        rounds = 0
        while True:
            to = await in_thread(reader.latestOffset, at, ReadMaxRows(100))
            if to == at:
                break
            rows += await in_thread(rows_of, reader, await in_thread(reader.partitions, at, to))
            at, rounds = to, rounds + 1
        assert places(at) == {SHARD: end}
        assert rounds > 3
        assert rows == everything
        fresh = ShardlogStreamReader(live(s.cluster.url))
        newest = await s.client.end(SHARD)
        assert places(await in_thread(fresh.initialOffset)) == {SHARD: newest}
        assert places(await in_thread(fresh.latestOffset, at, ReadAllAvailable())) == {
            SHARD: newest
        }
        assert await in_thread(fresh.latestOffset, {SHARD: end}, ReadMaxRows(1)) == await in_thread(
            fresh.latestOffset, at, ReadMaxRows(1)
        )  # an offset alone is enough
        with pytest.raises(CannotRead, match="the checkpoint is of the shards other"):
            fresh.partitions({"other": 1}, {"other": 2})


def places(offset: dict[str, Any]) -> dict[str, int]:
    return {shard: each["offset"] for shard, each in offset.items()}


@pytest.mark.parametrize("restored", [False, True])
def test_B1_another_shard_under_the_same_name_fails_the_stream(tmp_path: Path, restored: bool):
    """Deleted and made again, or restored; with fewer records than before, and with more."""
    earlier: list[dict[str, Any]] = []
    archive = archive_at(f"file://{tmp_path}/snapshots")

    @story(tmp_path / "first", names="a")
    async def _(s: Story) -> None:
        reader = ShardlogStreamReader(live(s.cluster.url, startingOffsets="earliest"))
        await fill(s.client, 10)
        await create(s.client, archive, segment_bytes=SEGMENT_BYTES)
        start = await in_thread(reader.initialOffset)
        earlier.append(await in_thread(reader.latestOffset, start, ReadMaxRows(50)))
        earlier.append(await in_thread(reader.latestOffset, start, ReadAllAvailable()))
        for each in earlier:
            await in_thread(reader.partitions, start, each)

    @story(tmp_path / "second", names="a")
    async def _(s: Story) -> None:
        if restored:
            await restore(s.client, archive, archive.newest(), SHARD)
        for _ in range(2):
            reader = ShardlogStreamReader(live(s.cluster.url, failOnDataLoss="false"))
            for each in earlier:
                with pytest.raises(OtherLog, match="another"):
                    await in_thread(reader.latestOffset, each, ReadAllAvailable())
                with pytest.raises(OtherLog, match="another"):
                    await in_thread(reader.partitions, each, each)
            await fill(s.client, 20)


def test_B1_a_log_that_was_trimmed_up_to_the_checkpoint_is_the_same(tmp_path: Path):
    @story(tmp_path, names="a")
    async def _(s: Story) -> None:
        await fill(s.client, 10)
        reader = ShardlogStreamReader(live(s.cluster.url, startingOffsets="earliest"))
        replica = s.cluster.nodes["a"].replicas[SHARD].replica
        cut = replica.log.covering(replica.log.end // 2)
        assert cut is not None
        start = await in_thread(reader.initialOffset)
        at = await in_thread(reader.latestOffset, start, ReadMaxRows(cut.base))
        assert places(at) == {SHARD: cut.base}
        while replica.log.first != cut.base:
            await s.cluster.coordinator.command(SHARD, TrimShard(cut.base))
            await asyncio.sleep(0.01)
        again = await in_thread(reader.latestOffset, at, ReadMaxRows(1))
        assert places(again) == {SHARD: cut.base + 1}
        spoilt = {SHARD: {**at[SHARD], "chain": "0" * 16}}
        with pytest.raises(OtherLog, match=f"differ before offset {cut.base}"):
            await in_thread(reader.latestOffset, spoilt, ReadMaxRows(1))


def test_a_limit_is_shared():
    start, newest = {"a": 0, "b": 0, "c": 5}, {"a": 900, "b": 100, "c": 5}
    assert _limited(start, newest, 100) == {"a": 90, "b": 10, "c": 5}
    assert _limited(start, newest, 5000) == newest
    assert _limited({"a": 0, "b": 0}, {"a": 10, "b": 10}, 1) == {"a": 1, "b": 0}


def test_what_was_trimmed_is_told_or_skipped(tmp_path: Path):
    @story(tmp_path / "cluster", names="a")
    async def _(s: Story) -> None:
        await fill(s.client, 30)
        replica = s.cluster.nodes["a"].replicas[SHARD].replica
        cut = replica.log.covering(replica.log.end // 2)
        assert cut is not None
        planned = await in_thread(ShardlogReader(live(s.cluster.url)).partitions)
        while replica.log.first != cut.base:
            await s.cluster.coordinator.command(SHARD, TrimShard(cut.base))
            await asyncio.sleep(0.01)
        await until(lambda: replica.log.first == cut.base)
        kept = [(each.offset, each.value) async for each in s.client.read(SHARD, cut.base)]
        strict = ShardlogReader(live(s.cluster.url))
        with pytest.raises(DataLost, match=f"it starts at {cut.base}"):
            await in_thread(rows_of, strict, planned)
        lenient = ShardlogReader(live(s.cluster.url, failOnDataLoss="false"))
        assert await in_thread(rows_of, lenient, planned) == kept
        options = live(s.cluster.url, startingOffsets='{"orders": 1}')
        with pytest.raises(DataLost, match="offsets from 1 of 'orders' are gone"):
            await in_thread(ShardlogReader(options).partitions)


def test_what_was_given_up_is_told_or_skipped(tmp_path: Path):
    place = f"file://{tmp_path}"
    Made(SHARD).append(1, [b"a"] * 3).lose(2, 4).append(3, [b"b"] * 2).put(place, "one")

    def reader(**options: str) -> ShardlogReader:
        return ShardlogReader(read_options({"path": place, "subscribe": SHARD, **options}))

    with pytest.raises(DataLost, match=r"offsets \[3, 7\) of 'orders' were given up"):
        reader().partitions()  # before a task starts
    around = [(offset, b"a") for offset in range(3)] + [(7, b"b"), (8, b"b")]
    assert read(reader(failOnDataLoss="false")) == around
    assert read(reader(startingOffsets='{"orders": 7}')) == around[3:]
    assert read(reader(endingOffsets='{"orders": 3}')) == around[:3]
    planned = reader(failOnDataLoss="false").partitions()
    with pytest.raises(DataLost, match="nobody has them"):
        rows_of(reader(), planned)


def test_shards_by_a_pattern(tmp_path: Path):
    """From snapshots and live; a stream finds shards that are made while it runs."""

    @story(tmp_path / "cluster", names="a")
    async def _(s: Story) -> None:
        place = f"file://{tmp_path}/snapshots"
        await s.cluster.create("orders-2")
        for name in (SHARD, "orders-2"):
            await fill(s.client, 2, shard=name)
            await create(s.client, archive_at(place, name), segment_bytes=SEGMENT_BYTES)
        pattern = {"subscribePattern": "orders(-.*)?"}
        at = {"shardlog.bootstrap.servers": s.cluster.url}
        one = await wanted(s)
        for options in (read_options({"path": place, **pattern}), read_options({**at, **pattern})):
            assert await in_thread(read, ShardlogReader(options)) == one * 2
        earliest = {"startingOffsets": "earliest"}
        reader = ShardlogStreamReader(read_options({**at, **pattern, **earliest}))
        start = await in_thread(reader.initialOffset)
        then = await in_thread(reader.latestOffset, start, ReadAllAvailable())
        assert set(then) == {SHARD, "orders-2"}
        await s.cluster.create("orders-3")
        await fill(s.client, 1, shard="orders-3")
        end = await in_thread(reader.latestOffset, then, ReadAllAvailable())
        assert set(end) == {SHARD, "orders-2", "orders-3"}
        found = await in_thread(rows_of, reader, await in_thread(reader.partitions, then, end))
        assert len(found) == 21
        for lost, told in (("true", "shards gone of the checkpoint are gone"), ("false", None)):
            options = read_options({**at, **pattern, "failOnDataLoss": lost})
            reader = ShardlogStreamReader(options)
            before = {**end, "gone": {"offset": 5}}
            if told is None:
                after = await in_thread(reader.latestOffset, before, ReadAllAvailable())
                assert set(after) == set(end)
            else:
                with pytest.raises(DataLost, match=told):
                    await in_thread(reader.latestOffset, before, ReadAllAvailable())
        nothing = read_options({**at, "subscribePattern": "none.*"})
        with pytest.raises(CannotRead, match="matches 'none"):
            await in_thread(ShardlogReader(nothing).partitions)


def test_times_of_each_shard(tmp_path: Path):
    """By the leader's clock, from snapshots and live: the start is in, and the end is not."""
    place = f"file://{tmp_path}"
    made = Made(SHARD)
    for request in range(1, 6):
        made.append(request, [b"%d" % request])
    made.put(place, "one")

    def found(**options: str) -> list[bytes]:
        given = {"path": place, "subscribe": SHARD, **options}
        return [value for _, value in read(ShardlogReader(read_options(given)))]

    first, last = MADE_MS + 2, MADE_MS + 4
    assert found(startingTimestamp=str(first), endingTimestamp=str(last)) == [b"2", b"3"]
    by_shard = json.dumps({SHARD: last})
    assert found(startingOffsetsByTimestamp=by_shard) == [b"4", b"5"]
    assert found(endingOffsetsByTimestamp=by_shard) == [b"1", b"2", b"3"]

    @story(tmp_path / "cluster", names="a")
    async def _(s: Story) -> None:
        await fill(s.client, 3)
        far = str(4_000_000_000_000)
        everything = await wanted(s)
        options = live(s.cluster.url, startingTimestamp="0", endingTimestamp=far)
        assert await in_thread(read, ShardlogReader(options)) == everything
        for nothing in ({"startingTimestamp": far}, {"endingTimestamp": "0"}):
            options = live(s.cluster.url, **nothing)
            assert await in_thread(read, ShardlogReader(options)) == []


def test_what_cannot_be_streamed():
    with pytest.raises(BadOption, match="a snapshot never changes"):
        ShardlogStreamReader(read_options({"path": "file:///x", "subscribe": SHARD}))
    with pytest.raises(BadOption, match="'endingOffsets' and 'endingTimestamp' are for batch"):
        ShardlogStreamReader(live("http://127.0.0.1:1", endingOffsets="latest"))
