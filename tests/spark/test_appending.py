"""Partitions as tasks append them, without a JVM: attempts that fail, repeat and run at once."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from client.cluster import LIMITS, SHARD, Story, story
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, StructField, StructType

from shardlog.client import Client, ClientLimits
from shardlog.protocol.coordination import TrimShard
from shardlog.transport.batch import BatchBuilder
from shardlog_spark.failures import BadOption, CannotWrite, OtherRows
from shardlog_spark.options import read_options
from shardlog_spark.row_counts import RowCounts, digests_of
from shardlog_spark.writing import ShardlogStreamWriter, ShardlogWriter

HISTORIES, PARTS = 1000, 50
VALUES = StructType([StructField("value", BinaryType())])


class ExecutorLost(Exception):  # noqa: N818 - what Spark would see
    """An attempt ends here."""


def options(url: str, **given: str) -> Any:
    return read_options({"shardlog.bootstrap.servers": url, "shard": SHARD, **given})


async def writer_for(s: Story, **given: str) -> ShardlogWriter:
    chosen = options(s.cluster.url, **given)
    return await asyncio.to_thread(ShardlogWriter.to, chosen, VALUES, False)


def batches_of(values: Sequence[bytes], rows: int) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(values), rows):
        yield pa.RecordBatch.from_pydict({"value": pa.array(values[at : at + rows], pa.binary())})


def failing(batches: Iterator[pa.RecordBatch], after: int) -> Iterator[pa.RecordBatch]:
    for number, batch in enumerate(batches):
        if number == after:
            raise ExecutorLost
        yield batch


async def open_sessions(s: Story, count: int) -> None:
    """Of others, on a connection of their own: one connection may not open many."""
    async with Client(s.cluster.url) as client:
        for _ in range(count):
            await client.register(SHARD)


async def values_of(s: Story) -> list[bytes]:
    return [record.value for record in await s.records()]


def test_B3_a_retry_with_its_rows_in_another_order_loses_and_doubles_nothing(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        writer = await writer_for(s)
        rows = [b"%d" % (number % 4000) for number in range(10_000)]
        with pytest.raises(ExecutorLost):
            await writer.append_partition(0, failing(batches_of(rows, 500), 14))
        assert len(await values_of(s)) == 7000
        rows.reverse()
        assert await writer.append_partition(0, batches_of(rows, 300)) == 10_000
        assert await writer.append_partition(1, batches_of(rows[:10], 3)) == 10
        assert Counter(await values_of(s)) == Counter(rows) + Counter(rows[:10])


def test_B3_a_retry_in_the_same_order_appends_what_is_missing(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        writer = await writer_for(s)
        rows = [b"%d" % number for number in range(1000)]
        with pytest.raises(ExecutorLost):
            await writer.append_partition(0, failing(batches_of(rows, 10), 60))
        for _ in range(2):
            assert await writer.append_partition(0, batches_of(rows, 10)) == 1000
        assert await values_of(s) == rows


def test_B3_other_rows_are_told_and_none_is_missing(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        writer = await writer_for(s)
        with pytest.raises(ExecutorLost):
            await writer.append_partition(0, failing(batches_of([b"a", b"b", b"c"], 1), 2))
        other = [b"a", b"x", b"y"]
        for _ in range(2):
            with pytest.raises(OtherRows, match="appended 1 rows that this one does not have"):
                await writer.append_partition(0, batches_of(other, 1))
        assert sorted(await values_of(s)) == [b"a", b"b", b"x", b"y"]


def test_B3_at_least_once_by_option(tmp_path: Path):
    @story(tmp_path)
    async def _(s: Story) -> None:
        writer = await writer_for(s, delivery="at-least-once")
        assert writer.job is None
        rows = [b"%d" % number for number in range(100)]
        assert await writer.append_partition(500, batches_of(rows, 10)) == 100
        assert await writer.append_partition(500, batches_of(rows[::-1], 10)) == 100
        assert Counter(await values_of(s)) == Counter(rows * 2)


def test_B3_what_was_trimmed_meanwhile_cannot_be_told(tmp_path: Path):
    """A row that is gone may have been one of these."""

    @story(tmp_path, names="a")
    async def _(s: Story) -> None:
        writer = await writer_for(s)
        rows = [b"%d" % number for number in range(100)]
        with pytest.raises(ExecutorLost):
            await writer.append_partition(0, failing(batches_of(rows, 10), 5))
        replica = s.cluster.nodes["a"].replicas[SHARD].replica
        cut = replica.log.covering(replica.log.end - 1)
        assert cut is not None
        while replica.log.first != cut.base:
            await s.cluster.coordinator.command(SHARD, TrimShard(cut.base))
            await asyncio.sleep(0.01)
        with pytest.raises(CannotWrite, match="has been trimmed up to offset"):
            await writer.append_partition(0, batches_of(rows[::-1], 10))


def test_B5_any_number_of_partitions(tmp_path: Path):
    """More than a leader keeps sessions for, each tried twice, and twice at once."""

    @story(tmp_path, names="a", limits=replace(LIMITS, sessions_max=8))
    async def _(s: Story) -> None:
        writer, other = await writer_for(s), await writer_for(s)
        rows = {part: [b"%d.%d" % (part, number) for number in range(6)] for part in range(20)}
        for part, values in rows.items():
            with pytest.raises(ExecutorLost):
                await writer.append_partition(part, failing(batches_of(values, 2), 2))
        for part, values in rows.items():
            again = [writer.append_partition(part, batches_of(values[::-1], 4)) for _ in range(2)]
            assert await asyncio.gather(*again) == [6, 6]
        assert await other.append_partition(0, batches_of(rows[0], 3)) == 6
        wanted = [value for values in rows.values() for value in values] + rows[0]
        assert Counter(await values_of(s)) == Counter(wanted)


def test_B5_a_write_costs_the_sessions_it_needs(tmp_path: Path):
    """One for the write, and one for each partition that has rows, however often it is tried."""

    @story(tmp_path, names="a")
    async def _(s: Story) -> None:
        before = await s.client.end(SHARD)
        writer = await writer_for(s)
        for _ in range(2):
            for part in range(3):
                assert await writer.append_partition(part, batches_of([b"a"], 1)) == 1
        assert await s.client.end(SHARD) - before == 1 + 3 + 3


def test_an_attempt_whose_session_was_forgotten_reads_what_others_appended(tmp_path: Path):
    @story(tmp_path, names="a", limits=replace(LIMITS, sessions_max=4))
    async def _(s: Story) -> None:
        writer = await writer_for(s)
        going = threading.Event()

        def slow() -> Iterator[pa.RecordBatch]:
            yield from batches_of([b"a", b"b"], 1)
            assert going.wait(60)
            yield from batches_of([b"c", b"d"], 1)

        attempt = asyncio.create_task(writer.append_partition(0, slow()))
        while len(await values_of(s)) < 2:
            await asyncio.sleep(0.01)
        await open_sessions(s, 6)
        assert await writer.append_partition(0, batches_of([b"d", b"c", b"b", b"a"], 3)) == 4
        await open_sessions(s, 6)
        going.set()
        assert await attempt == 4
        assert sorted(await values_of(s)) == [b"a", b"b", b"c", b"d"]


def test_a_write_with_a_name_is_the_same_after_its_driver_died(tmp_path: Path):
    """`foreachBatch` and streams: what is tried again has another driver, and later offsets."""

    @story(tmp_path, names="a")
    async def _(s: Story) -> None:
        await s.cluster.create("journal")
        named = {"journal": "journal", "txnAppId": "app", "txnVersion": "7"}
        rows = [b"%d" % number for number in range(1000)]
        first = await writer_for(s, **named)
        with pytest.raises(ExecutorLost):
            await first.append_partition(0, failing(batches_of(rows, 100), 7))
        again = await writer_for(s, **named)
        assert await again.append_partition(0, batches_of(rows[::-1], 300)) == 1000
        assert await again.append_partition(0, batches_of(rows, 100)) == 1000
        assert Counter(await values_of(s)) == Counter(rows)
        later = await writer_for(s, **{**named, "txnVersion": "8"})
        assert await later.append_partition(0, batches_of(rows, 100)) == 1000
        assert Counter(await values_of(s)) == Counter(rows * 2)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"txnAppId": "app", "journal": "j"}, "'txnAppId' and 'txnVersion' go together"),
        ({"txnAppId": "app", "txnVersion": "1"}, "'txnAppId' needs option 'journal'"),
        ({"journal": SHARD}, "'journal' is 'orders'"),
        ({"delivery": "twice"}, "'delivery' is 'twice'"),
    ],
)
def test_what_a_write_cannot_be(given: dict[str, str], told: str):
    with pytest.raises(BadOption, match=told):
        options("http://127.0.0.1:1", **given)


def test_a_stream_needs_a_journal():
    url = "http://127.0.0.1:1"
    with pytest.raises(BadOption, match="a stream needs option 'journal'"):
        ShardlogStreamWriter.to(options(url), VALUES, False)
    ShardlogStreamWriter.to(options(url, delivery="at-least-once"), VALUES, False)
    named = options(url, journal="j", txnAppId="app", txnVersion="1")
    with pytest.raises(BadOption, match="'txnAppId' is for batches"):
        ShardlogStreamWriter.to(named, VALUES, False)
    with pytest.raises(BadOption, match="cannot be overwritten"):
        ShardlogStreamWriter.to(options(url, journal="j"), VALUES, True)


@dataclass(frozen=True)
class Attempt:
    """One run of the task: its rows in an order of its own, and where it is killed, if it is."""

    order: int
    rows_at_once: int
    killed_at: int | None
    is_lost: bool
    """Killed between requests; else with one under way."""

    async def run(self, writer: ShardlogWriter, rows: Sequence[bytes]) -> None:
        rows = list(rows)
        Random(self.order).shuffle(rows)
        loop = asyncio.get_running_loop()
        task: asyncio.Task[int]

        def computed() -> Iterator[pa.RecordBatch]:
            for number, batch in enumerate(batches_of(rows, self.rows_at_once)):
                if number == self.killed_at:
                    if self.is_lost:
                        raise ExecutorLost
                    loop.call_soon_threadsafe(task.cancel)
                yield batch

        task = loop.create_task(writer.append_partition(0, computed()))
        with suppress(ExecutorLost, asyncio.CancelledError):
            assert await task == len(rows)


attempts = st.builds(
    Attempt,
    order=st.integers(0, 5),
    rows_at_once=st.integers(1, 4),
    killed_at=st.none() | st.integers(0, 6),
    is_lost=st.booleans(),
)
rounds = st.lists(
    st.tuples(
        st.lists(attempts, min_size=1, max_size=2), st.booleans(), st.sampled_from([0, 0, 1, 4])
    ),
    max_size=3,
)
"""Two attempts of a round run at the same time, as speculation has it; then the driver may be
killed and begin again, and so many sessions are opened by others, of which few are kept."""


@pytest.mark.parametrize("part", range(PARTS))
def test_B3_no_row_is_lost_or_doubled_in_any_history(tmp_path: Path, part: int):
    """Attempts of one task in other orders, killed anywhere, one after the other or at once."""

    @story(tmp_path, names="a", limits=replace(LIMITS, sessions_max=4))
    async def _(s: Story) -> None:
        loop = asyncio.get_running_loop()
        await s.cluster.create("journal")
        versions = count()

        async def history(rows: list[int], rounds: list[tuple[list[Attempt], bool, int]]) -> None:
            since = await s.client.end(SHARD)
            name = {"journal": "journal", "txnAppId": "app", "txnVersion": str(next(versions))}
            writer = await writer_for(s, **name)
            values = [b"%d" % row for row in rows]
            for together, is_killed, others in rounds:
                await asyncio.gather(*(each.run(writer, values) for each in together))
                if is_killed:
                    writer = await writer_for(s, **name)
                await open_sessions(s, others)
            last = Attempt(0, 3, None, is_lost=False)
            await last.run(writer, values)
            found = [record.value async for record in s.client.read(SHARD, since)]
            assert sorted(found) == sorted(values)

        @seed(part)
        @settings(
            max_examples=HISTORIES // PARTS,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        @given(st.lists(st.integers(0, 3), max_size=16), rounds)
        def hold(rows: list[int], rounds: list[tuple[list[Attempt], bool, int]]) -> None:
            asyncio.run_coroutine_threadsafe(history(rows, rounds), loop).result()

        await asyncio.to_thread(hold)


@given(st.lists(st.sampled_from(["a", "b", "c"])), st.lists(st.sampled_from(["a", "b", "c"])))
def test_rows_are_counted(there: list[str], taken: list[str]):
    counts = RowCounts()
    counts.add(each.encode() for each in there)
    left = Counter(there)
    for each in taken:
        assert counts.take(each.encode()) == (left[each] > 0)
        left[each] -= left[each] > 0
    assert counts.total == left.total()
    counts.close()


def test_rows_differ_by_all_that_they_hold():
    builder = BatchBuilder()
    records: list[tuple[bytes, bytes | None, int, tuple[tuple[str, bytes], ...]]] = [
        (b"", None, 0, ()), (b"", b"", 0, ()), (b"a", b"", 0, ()), (b"", b"a", 0, ()),
        (b"", None, 1, ()), (b"", None, 0, (("a", b""),)), (b"", None, 0, (("", b"a"),)),
        (b"", None, 0, (("a", b""), ("a", b""))),
    ]  # fmt: skip
    for record in records * 2:
        builder.append(*record)
    found = list(digests_of(builder.body(), 16))
    assert found[:8] == found[8:]
    assert len(set(found)) == 8


def test_B2_a_batch_may_take_longer_to_compute_than_an_answer(tmp_path: Path):
    """The first rows are in the log while the next are still computed."""

    @story(tmp_path, client_limits=ClientLimits(deadline_ms=500))
    async def _(s: Story) -> None:
        for delivery in ("exactly-once", "at-least-once"):
            writer = await writer_for(s, delivery=delivery)
            before = await s.client.end(SHARD)
            arrived = threading.Event()

            def computed(arrived: threading.Event = arrived) -> Iterator[pa.RecordBatch]:
                yield from batches_of([b"first"], 1)
                assert arrived.wait(60), "nothing is sent while rows are computed"
                yield from batches_of([b"second"], 1)

            appending = asyncio.create_task(writer.append_partition(0, computed()))
            async for record in s.client.tail(SHARD, before):
                if record.value == b"first":
                    break
            arrived.set()
            assert await appending == 2
        assert await values_of(s) == [b"first", b"second"] * 2
