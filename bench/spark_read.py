"""Batch reads by Spark: a snapshot, the same records as Parquet, and a bare source of batches.

    python bench/spark_read.py --records 10000000 [--shards 36] [--kafka HOST:PORT/TOPIC --jars …]

One run, one after the other, each after a warm-up: count and sum of lengths, and an export to
Parquet.  The snapshot is made from batches in memory, without a cluster: what is measured is Spark.
The driver's heap is bounded, whatever the size; `--shards` reads the same files under so many
names, so that tens of gigabytes need not be on the disk, and the most memory is told.

Beside the time stands what all processes of this run computed, so that a busy machine changes the
first and hardly the second: records for each second of processor time are what one core does.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
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
LOOK_S = 0.2


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


def more_shards(top: Path, manifest: Manifest, count: int) -> str:
    """The same segments under other names; all of them, with commas between."""
    names = [SHARD, *(f"{SHARD}-{number}" for number in range(1, count))]
    for name in names[1:]:
        archive = Archive(Destination(f"file://{top}"), name)
        (top / name).mkdir()
        (top / name / "segments").symlink_to(top / SHARD / "segments")
        made = replace(manifest, shard=name)
        archive.destination.put(archive.manifest_name(made.id), made.to_bytes())
    return ",".join(names)


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


@dataclass(frozen=True, slots=True)
class Cost:
    """`most_mib` is the most memory of the JVM and of the largest Python process."""

    seconds: float
    cpu_seconds: float
    most_mib: tuple[int, int]


def spent_seconds() -> float:
    """Processor time of all processes of this run, ended ones included."""
    found = 0.0
    for each in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            found += times.user + times.system + times.children_user + times.children_system
    return found


class Watching:
    """Looks at the memory of all processes now and then."""

    def __init__(self) -> None:
        self.jvm = self.python = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watching:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(LOOK_S):
            for each in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    size = each.memory_info().rss >> 20
                    if each.name() == "java":
                        self.jvm = max(self.jvm, size)
                    else:
                        self.python = max(self.python, size)


def timed(work: Callable[[], Any]) -> Cost:
    with Watching() as watching:
        begun, spent = time.perf_counter(), spent_seconds()
        work()
        seconds, cpu_seconds = time.perf_counter() - begun, spent_seconds() - spent
    return Cost(seconds, cpu_seconds, (watching.jvm, watching.python))


def summed(rows: DataFrame) -> Any:
    return rows.selectExpr("count(*)", "sum(length(value))").collect()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--record-bytes", type=int, default=128)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--heap", default="1g")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--kafka", metavar="HOST:PORT/TOPIC", help="with as many such records")
    parser.add_argument("--jars", default="", help="of Spark's connector for Kafka")
    given = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{given.cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", given.heap)
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.jars", given.jars)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Bare)
    top = Path(tempfile.mkdtemp())
    try:
        run(spark, given, top)
    finally:
        spark.stop()
        shutil.rmtree(top)


def run(spark: SparkSession, given: argparse.Namespace, top: Path) -> None:
    place = top / "snapshots"
    manifest = snapshot_of(f"file://{place}", given.records, given.record_bytes)
    shards = more_shards(place, manifest, given.shards)
    source = spark.read.format("shardlog").option("subscribe", shards)
    everything = source.load(f"file://{place}")
    some = source.option("columns", "offset,value").load(f"file://{place}")
    total = given.records * given.shards
    bare = spark.read.format("bare").option("records", total).option("bytes", given.record_bytes)
    summed(bare.load().limit(1000))
    summed(some.limit(1000))
    parquet = str(top / "parquet")
    works: dict[str, Callable[[], Any]] = {
        "bare Arrow batches": lambda: summed(bare.load()),
        "shardlog, offset and value": lambda: summed(some),
        "shardlog, all columns": lambda: summed(everything),
        "shardlog to Parquet": lambda: some.write.parquet(parquet),
        "the same from Parquet": lambda: summed(spark.read.parquet(parquet)),
    }
    if given.kafka:
        works["Kafka, its own connector"] = lambda: summed(from_kafka(spark, given.kafka))
    size = manifest.size * given.shards
    tell(f"{total:,} records of {given.record_bytes} B in {size / 1e9:.2f} GB of segments, "
         f"{given.cores} cores, {given.heap} heap, load {os.getloadavg()[0]:.1f}")  # fmt: skip
    tell(f"{'':28} {'seconds':>8} {'records/s':>12} {'per core':>12} {'per CPU s':>12} "
         f"{'JVM MiB':>8} {'Python MiB':>10}")  # fmt: skip
    for name, work in works.items():
        cost = timed(work)
        rate = total / cost.seconds
        jvm, python = cost.most_mib
        tell(f"{name:28} {cost.seconds:8.1f} {rate:12,.0f} {rate / given.cores:12,.0f} "
             f"{total / cost.cpu_seconds:12,.0f} {jvm:8} {python:10}")  # fmt: skip


def tell(line: str) -> None:
    print(line, flush=True)


def from_kafka(spark: SparkSession, place: str) -> DataFrame:
    address, _, topic = place.partition("/")
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", address)
    return reader.option("subscribe", topic).load()


if __name__ == "__main__":
    main()
