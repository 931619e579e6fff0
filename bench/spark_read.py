"""Batch reads by Spark: a snapshot, the same records as Parquet, and a bare source of batches.

    python bench/spark_read.py --records 10000000

One run, one after the other, each after a warm-up: count and sum of lengths, and an export to
Parquet.  The snapshot is made from batches in memory, without a cluster: what is measured is Spark.
The driver's heap is bounded, whatever the size.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from shardlog.checksum import seal, seal_body
from shardlog.protocol.entry import GENESIS_CHECKSUM, Kind, sealed
from shardlog.protocol.header_bytes import pack_header
from shardlog.snapshots.archive import Archive, segment_name
from shardlog.snapshots.destination import Destination
from shardlog.snapshots.gathering import SEGMENT_BYTES, Gathering
from shardlog.snapshots.manifest import Manifest, SegmentInfo, history_of
from shardlog.transport.batch import BatchBuilder

SHARD = "bench"
ENTRY_RECORDS = 2_000
NOW_MS = 1_700_000_000_000
PARTS = 16


def snapshot_of(url: str, records: int, record_bytes: int) -> Manifest:
    """Entries of 2000 random records, the same body again and again: it is not compressed."""
    builder = BatchBuilder()
    builder.extend([os.urandom(record_bytes) for _ in range(ENTRY_RECORDS)])
    body = builder.body()
    body_checksum = seal_body(body)
    archive = Archive(Destination(url, make=True), SHARD)
    segments: list[SegmentInfo] = []
    parent, base = GENESIS_CHECKSUM, 0
    gathering = Gathering(base, parent)

    def finish() -> None:
        made = gathering.made()
        name = segment_name(made.index.base, made.index.end, made.digest)
        archive.destination.put(archive.segment_path(name), made.data)
        segments.append(SegmentInfo.of(name, len(made.data), made.digest, made.index))

    for number in range(records // ENTRY_RECORDS):
        header = sealed(seal, 1, base, ENTRY_RECORDS, Kind.DATA, 1, number + 1, NOW_MS + number,
                        parent, body_checksum)  # fmt: skip
        gathering.add(header, memoryview(pack_header(header, len(body)) + body))
        parent, base = header.checksum, header.end
        if len(gathering) >= SEGMENT_BYTES:
            finish()
            gathering = Gathering(base, parent)
    if not gathering.is_empty:
        finish()
    found = tuple(segments)
    manifest = Manifest("bench", SHARD, None, NOW_MS, 0, base, base, history_of(found), (), found)
    archive.destination.put(archive.manifest_name(manifest.id), manifest.to_bytes())
    return manifest


class BareReader(DataSourceReader):
    """Ready-made batches, as fast as Spark takes them: the ceiling."""

    def __init__(self, records: int, record_bytes: int) -> None:
        self.records = records
        self.record_bytes = record_bytes

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = 16_000
        values = pa.array([os.urandom(self.record_bytes)] * rows, pa.binary())
        for number in range(self.records // PARTS // rows):
            offsets = pa.arange(number * rows, (number + 1) * rows)
            yield pa.RecordBatch.from_arrays([offsets, values], ["offset", "value"])


class Bare(DataSource):
    @classmethod
    def name(cls) -> str:
        return "bare"

    def schema(self) -> str:
        return "offset long, value binary"

    def reader(self, schema: StructType) -> DataSourceReader:
        return BareReader(int(self.options["records"]), int(self.options["bytes"]))


def timed(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def summed(rows: DataFrame) -> Any:
    return rows.selectExpr("count(*)", "sum(length(value))").collect()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--record-bytes", type=int, default=128)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--heap", default="1g")
    given = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{given.cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", given.heap)
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Bare)
    top = Path(tempfile.mkdtemp())
    try:
        url = f"file://{top}/snapshots"
        snapshot_of(url, given.records, given.record_bytes)
        source = spark.read.format("shardlog").option("subscribe", SHARD)
        some = source.option("columns", "offset,value").load(url)
        everything = spark.read.format("shardlog").option("subscribe", SHARD).load(url)
        bare = (
            spark.read.format("bare")
            .option("records", given.records)
            .option("bytes", given.record_bytes)
            .load()
        )
        summed(bare.limit(1000))
        summed(some.limit(1000))
        parquet = str(top / "parquet")
        works: dict[str, Callable[[], Any]] = {
            "bare Arrow batches": lambda: summed(bare),
            "shardlog, offset and value": lambda: summed(some),
            "shardlog, all columns": lambda: summed(everything),
            "shardlog to Parquet": lambda: some.write.parquet(parquet),
            "the same from Parquet": lambda: summed(spark.read.parquet(parquet)),
        }
        print(f"{given.records:,} records of {given.record_bytes} B, {given.cores} cores, "
              f"{given.heap} heap")  # fmt: skip
        for name, work in works.items():
            seconds = timed(work)
            rate = given.records / seconds
            print(f"{name:32} {seconds:8.1f} s {rate:14,.0f} records/s "
                  f"{rate / given.cores:14,.0f} per core")  # fmt: skip
    finally:
        spark.stop()
        shutil.rmtree(top)


if __name__ == "__main__":
    main()
