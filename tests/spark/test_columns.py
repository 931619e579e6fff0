"""Batches to Arrow and back, and bytes that are no batch: nothing of that needs Spark."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from shardlog.protocol.entry import Header, Kind
from shardlog.transport.batch import Batch
from shardlog.transport.compression import Compression
from shardlog.transport.failures import MalformedBatch
from shardlog_spark.bodies import bodies
from shardlog_spark.columns import Packer, arrow_schema, record_batch
from shardlog_spark.failures import CannotWrite
from shardlog_spark.options import COLUMNS

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
            "headers": [{"key": "n", "value": rng.randbytes(3)}] * rng.randrange(1, 3)
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
    columns = arrow_schema([name for name in COLUMNS if name != "headers"])
    try:
        found = record_batch(header(count), memoryview(bytes(spoilt)), "orders", columns)
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
    far = pa.array([0, 10**16], pa.timestamp("us", tz="UTC"))
    apart = pa.RecordBatch.from_pydict({"value": [b"", b""], "timestamp": far})
    with pytest.raises(CannotWrite, match="apart"):
        list(bodies(apart, Compression.NONE))
