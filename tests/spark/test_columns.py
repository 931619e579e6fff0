"""Batches to Arrow and back, and bytes that are no batch: nothing of that needs Spark."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from shardlog.protocol.entry import Header, Kind
from shardlog.snapshots.arrow_columns import BYTES, COLUMNS, Packer, arrow_schema, record_batch
from shardlog.transport.batch import Batch, BatchBuilder
from shardlog.transport.compression import Compression
from shardlog.transport.failures import MalformedBatch
from shardlog_spark.bodies import BODY_BYTES, bodies
from shardlog_spark.failures import CannotRead, CannotWrite
from shardlog_spark.options import read_options
from shardlog_spark.ranges import LiveRange
from shardlog_spark.reading import batches

NONE = Compression.NONE
SCHEMA = arrow_schema(COLUMNS)
WRITTEN = arrow_schema(("key", "value", "timestamp", "headers"))


def header(count: int) -> Header:
    return Header(3, 100, count, Kind.DATA, 1, 1, 777, 0, 0, 0)


def some_rows(rng: random.Random) -> list[dict[str, Any]]:
    keyed, headed = rng.choice([0, 0.5, 1]), rng.choice([0, 0.5])
    timed = rng.random() < 0.5

    def row() -> dict[str, Any]:
        ms = 1_000_000_000_000 + rng.randrange(10_000)
        return {
            "key": rng.randbytes(rng.randrange(5)) if rng.random() < keyed else None,
            "value": rng.randbytes(rng.randrange(9)),
            "timestamp": datetime.fromtimestamp(ms / 1000, UTC) if timed else None,
            "headers": [
                {"key": "n" * rng.randrange(3), "value": rng.randbytes(rng.randrange(4))}
                for _ in range(rng.choice([1, 2, 3, 40]))
            ]
            if rng.random() < headed
            else None,
        }

    return [row() for _ in range(rng.randrange(1, 40))]


@pytest.mark.parametrize("seed", range(100))
def test_rows_to_bodies_and_back(seed: int):
    rng = random.Random(seed)
    rows = some_rows(rng)
    batch = pa.RecordBatch.from_pylist(rows, schema=WRITTEN)
    cut = rng.randrange(len(rows))
    rows, batch = rows[cut:], batch.slice(cut)
    ((body, count),) = bodies(batch, rng.choice(list(Compression)))
    assert Batch(body, count).count == len(rows)  # as every other reader sees it
    found = record_batch(header(count), memoryview(body), "orders", SCHEMA)
    found.validate(full=True)
    for number, (row, got) in enumerate(zip(rows, found.to_pylist(), strict=True)):
        assert (got["key"], got["value"], got["headers"]) == (
            row["key"], row["value"], row["headers"]
        )  # fmt: skip
        assert got["timestamp"] == (row["timestamp"] or datetime.fromtimestamp(0.777, UTC))
        assert (got["offset"], got["epoch"], got["shard"]) == (100 + number, 3, "orders")


def test_a_long_batch_is_cut_the_same_way_each_time():
    rows = pa.RecordBatch.from_pydict({"value": [bytes(1000)] * 5000})
    made = list(bodies(rows, Compression.NONE))
    assert len(made) > 4
    assert sum(count for _, count in made) == 5000
    assert made == list(bodies(rows, Compression.NONE))


@pytest.mark.parametrize("seed", range(200))
def test_changed_bytes_are_malformed_or_a_batch(seed: int):
    """Native code is given nothing that it could fall over."""
    rng = random.Random(seed)
    rows = pa.RecordBatch.from_pylist(some_rows(rng), schema=WRITTEN)
    ((body, count),) = bodies(rows, Compression.NONE)
    spoilt = bytearray(body)
    for _ in range(rng.randrange(1, 4)):
        spoilt[rng.randrange(len(spoilt))] = rng.randrange(256)
    if rng.random() < 0.3:
        spoilt = spoilt[: rng.randrange(len(spoilt))]
    try:
        found = record_batch(header(count), memoryview(bytes(spoilt)), "orders", SCHEMA)
    except MalformedBatch:
        return
    found.validate(full=True)
    assert found.num_rows == count


def test_small_batches_are_put_together():
    packer = Packer(SCHEMA)
    rows = pa.RecordBatch.from_pylist([{"value": b"x"}], schema=WRITTEN)
    ((body, count),) = bodies(rows, Compression.NONE)
    made = record_batch(header(count), memoryview(body), "orders", SCHEMA)
    given = [each for _ in range(100) for each in packer.add(made, len(body))]
    assert given == []
    (all_of_them,) = packer.flush()
    assert all_of_them.num_rows == 100
    assert list(packer.flush()) == []


def test_what_no_record_can_be():
    null = pa.RecordBatch.from_pydict({"value": pa.array([None], pa.binary())})
    with pytest.raises(CannotWrite, match="a value is null"):
        list(bodies(null, Compression.NONE))
    nameless = pa.RecordBatch.from_pylist(
        [{"value": b"", "headers": [{"key": None, "value": b"x"}]}], schema=WRITTEN
    )
    with pytest.raises(CannotWrite, match="a header has no name"):
        list(bodies(nameless, Compression.NONE))
    far = pa.array([253_402_300_800_000_000], pa.timestamp("us", tz="UTC"))
    beyond = pa.RecordBatch.from_pydict({"value": [b""], "timestamp": far})
    with pytest.raises(CannotWrite, match="outside the years 1 to 9999"):
        list(bodies(beyond, Compression.NONE))


def written_and_read(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """What comes back, and how many bodies it took."""
    found, made = [], list(bodies(pa.RecordBatch.from_pylist(rows, schema=WRITTEN), NONE))
    for body, count in made:
        found += record_batch(header(count), memoryview(body), "orders", WRITTEN).to_pylist()
    return found, len(made)


def test_B4_headers_count_where_bodies_are_cut():
    rows = [
        {"key": None, "value": bytes(50), "timestamp": None, "headers": [{"key": "t", "value": it}]}
        for it in [bytes(420)] * 10_000
    ]
    made = list(bodies(pa.RecordBatch.from_pylist(rows, schema=WRITTEN), NONE))
    assert sum(count for _, count in made) == 10_000
    assert max(len(body) for body, _ in made) < 2 * BODY_BYTES


def test_B4_a_record_that_no_node_takes_is_refused_at_once():
    rows = pa.RecordBatch.from_pydict({"value": [bytes(5_000_000)]})
    with pytest.raises(CannotWrite, match="a record of 50000"):
        list(bodies(rows, NONE))
    assert len(list(bodies(rows, Compression.ZSTD))) == 1


def test_B9_times_that_no_batch_can_hold_together_are_cut():
    times = [None, *(datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2021, 1969)), None, None]
    rows = [{"key": None, "value": b"", "timestamp": it, "headers": None} for it in times]
    found, made = written_and_read(rows)
    own = datetime.fromtimestamp(0.777, UTC)
    assert [each["timestamp"] for each in found] == [it or own for it in times]
    assert made > 1


@pytest.mark.parametrize("unit", [10**3, 10**6, -(10**6)])
@pytest.mark.parametrize("count", [1, 3])
def test_B6_times_that_are_no_dates_are_null(unit: int, count: int):
    """Microseconds or nanoseconds given as milliseconds, which producers refuse now."""
    builder = BatchBuilder()
    for number in range(count):
        builder.append(b"", timestamp_ms=1_760_000_000_000 * unit + number)
    body = memoryview(builder.body())
    found = record_batch(header(count), body, "orders", arrow_schema(["timestamp"]))
    assert found.column(0).to_pylist() == [None] * count


def test_B6_dates_beside_what_is_none():
    builder = BatchBuilder()
    last = 253_402_300_799_999
    for ms in (last, last + 1, last - 1):
        builder.append(b"", timestamp_ms=ms)
    body = memoryview(builder.body())
    found = record_batch(header(3), body, "orders", arrow_schema(["timestamp"]))
    assert [it and it.year for it in found.column(0).to_pylist()] == [9999, None, 9999]


def test_B6_times_that_are_no_dates_are_counted_or_fail(caplog: pytest.LogCaptureFixture):
    builder = BatchBuilder()
    for number in range(3):
        builder.append(b"", timestamp_ms=1_760_000_000 * 10**9 + number)
    entries = [(header(3), memoryview(builder.body()))]
    given = {"path": "file:///x", "subscribe": "orders", "columns": "timestamp"}
    part = LiveRange("orders", 0, 200)
    (found,) = batches(read_options(given), part, entries)
    assert found.column(0).null_count == 3
    assert "3 timestamps of 'orders' are no dates" in caplog.text
    with pytest.raises(CannotRead, match="3 timestamps of 'orders' from offset 100"):
        list(batches(read_options({**given, "failOnBadTimestamp": "true"}), part, entries))


def test_B7_what_is_gathered_counts_without_compression():
    """A thousand times shorter in the log than in memory."""
    builder = BatchBuilder()
    builder.append(bytes(4_000_000))
    body = memoryview(builder.body(Compression.ZSTD))
    entries = [(header(1)._replace(base=number), body) for number in range(700)]
    options = read_options({"path": "file:///x", "subscribe": "orders", "columns": "value"})
    given = list(batches(options, LiveRange("orders", 0, 700), entries))
    assert sum(each.num_rows for each in given) == 700
    assert max(each.nbytes for each in given) < 3 * BYTES
