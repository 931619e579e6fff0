"""Batch reads by Spark: a snapshot, the same records as Parquet, and a bare source of batches.

    python bench/spark_read.py --records 10000000 [--shards 36] [--kafka]

One run, one after the other, each after a warm-up on a part: count and sum of lengths, and an
export to Parquet.  The snapshot is made from batches in memory, without a cluster: what is measured
is Spark.  `--kafka` starts a broker, lets Spark write the same records into it, and reads them by
the connector that Spark has for Kafka.
The driver's heap is bounded, whatever the size; `--shards` reads the same files under so many
names, so that tens of gigabytes need not be on the disk, and the most memory is told.

Beside the time stands what all processes of Spark computed, so that a busy machine changes the
first and hardly the second: records for each second of processor time are what one core does.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType
from spark_kafka import own_broker, spark_kafka_jars

from shardlog.checksum import seal, seal_body
from shardlog.protocol.entry import GENESIS_CHECKSUM, Kind, sealed
from shardlog.protocol.header_bytes import pack_header
from shardlog.snapshots.archive import Archive, segment_name
from shardlog.snapshots.destination import Destination
from shardlog.snapshots.digest import digest_of
from shardlog.snapshots.gathering import SEGMENT_BYTES, Gathering
from shardlog.snapshots.manifest import Manifest, SegmentInfo, history_of
from shardlog.snapshots.rooms import Rooms
from shardlog.transport.batch import BatchBuilder

SHARD = "bench"
ENTRY_RECORDS = 2_000
NOW_MS = 1_700_000_000_000
PARTS = 16
LOOK_S = 0.2
WARM_SHARE = 10
"""A warm-up reads one of so many records."""


def random_body(record_bytes: int) -> bytes:
    data = os.urandom(ENTRY_RECORDS * record_bytes)
    builder = BatchBuilder()
    builder.extend([data[at : at + record_bytes] for at in range(0, len(data), record_bytes)])
    return builder.body()


def snapshot_of(url: str, records: int, record_bytes: int) -> Manifest:
    """Entries of 2000 random records, no two of them equal: nobody gains by a dictionary."""
    archive = Archive(Destination(url, make=True), SHARD)
    segments: list[SegmentInfo] = []
    parent, base = GENESIS_CHECKSUM, 0
    rooms = Rooms()
    gathering = Gathering(base, parent, rooms)

    def finish() -> None:
        index = gathering.made()
        data = b"".join(gathering.taken())
        digest = digest_of(data)
        name = segment_name(index.base, index.end, digest)
        archive.destination.put(archive.segment_path(name), data)
        segments.append(SegmentInfo.of(name, len(data), digest, index))

    for number in range(records // ENTRY_RECORDS):
        body = random_body(record_bytes)
        header = sealed(seal, 1, base, ENTRY_RECORDS, Kind.DATA, 1, number + 1, NOW_MS + number,
                        parent, seal_body(body))  # fmt: skip
        gathering.add(header, memoryview(pack_header(header, len(body)) + body))
        parent, base = header.checksum, header.end
        if len(gathering) >= SEGMENT_BYTES:
            finish()
            gathering = Gathering(base, parent, rooms)
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


def processes(besides: frozenset[int]) -> list[psutil.Process]:
    """This one and those it has started, but for `besides`."""
    found = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return [each for each in found if each.pid not in besides]


def spent_seconds(besides: frozenset[int]) -> float:
    """Processor time of all processes of this run, ended ones included."""
    found = 0.0
    for each in processes(besides):
        with suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            found += times.user + times.system + times.children_user + times.children_system
    return found


class Watching:
    """Looks at the memory of all processes now and then."""

    def __init__(self, besides: frozenset[int]) -> None:
        self.jvm = self.python = 0
        self._besides = besides
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
            for each in processes(self._besides)[1:]:
                with suppress(psutil.NoSuchProcess):
                    size, name = each.memory_info().rss >> 20, each.name()
                    if name == "java":
                        self.jvm = max(self.jvm, size)
                    elif name.startswith("python"):  # what Java forks has its memory at first
                        self.python = max(self.python, size)


def timed(work: Callable[[], Any], besides: frozenset[int]) -> Cost:
    with Watching(besides) as watching:
        begun, spent = time.perf_counter(), spent_seconds(besides)
        work()
        seconds, cpu_seconds = time.perf_counter() - begun, spent_seconds(besides) - spent
    return Cost(seconds, cpu_seconds, (watching.jvm, watching.python))


class Work(NamedTuple):
    """What is measured, and a part of it, which comes before."""

    whole: Callable[[], Any]
    part: Callable[[], Any]


def summed(rows: DataFrame) -> Any:
    return rows.selectExpr("count(*)", "sum(length(value))").collect()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--record-bytes", type=int, default=128)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--heap", default="1g")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--kafka", action="store_true", help="the same records from a broker")
    parser.add_argument("--only", default="", help="rows whose names have this in them")
    given = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{given.cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", given.heap)
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.jars", spark_kafka_jars() if given.kafka else "")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Bare)
    top = Path(tempfile.mkdtemp())
    try:
        with ExitStack() as stack:
            run(spark, given, top, stack)
    finally:
        spark.stop()
        shutil.rmtree(top)


def run(spark: SparkSession, given: argparse.Namespace, top: Path, stack: ExitStack) -> None:
    place = top / "snapshots"
    manifest = snapshot_of(f"file://{place}", given.records, given.record_bytes)
    shards = more_shards(place, manifest, given.shards)
    total = given.records * given.shards
    parquet = str(top / "parquet")

    def source(columns: str = "", *, part: bool = False) -> DataFrame:
        reader = spark.read.format("shardlog").option("subscribe", SHARD if part else shards)
        reader = reader.option("columns", columns) if columns else reader
        if part:
            ending = json.dumps({SHARD: given.records // WARM_SHARE})
            reader = reader.option("endingOffsets", ending)
        return reader.load(f"file://{place}")

    def bare(records: int) -> DataFrame:
        reader = spark.read.format("bare").option("records", records)
        return reader.option("bytes", given.record_bytes).load()

    columns = "offset,value"
    works = {
        "bare Arrow batches": Work(
            lambda: summed(bare(total)), lambda: summed(bare(total // WARM_SHARE))
        ),
        "shardlog, offset and value": Work(
            lambda: summed(source(columns)), lambda: summed(source(columns, part=True))
        ),
        "shardlog, all columns": Work(
            lambda: summed(source()), lambda: summed(source(part=True))
        ),
        "shardlog to Parquet": Work(
            lambda: source(columns).write.parquet(parquet),
            lambda: source(columns, part=True).write.parquet(f"{parquet}-part"),
        ),
        "the same from Parquet": Work(
            lambda: summed(spark.read.parquet(parquet)),
            lambda: summed(spark.read.parquet(f"{parquet}-part")),
        ),
    }  # fmt: skip
    besides: frozenset[int] = frozenset()
    if given.kafka:
        topic = stack.enter_context(own_broker(top / "kafka"))
        topic.fill(source(columns))
        besides = topic.pids
        works["Kafka, its own connector"] = Work(
            lambda: summed(topic.read(spark)),
            lambda: summed(topic.read(spark, total // WARM_SHARE)),
        )
    size = manifest.size * given.shards
    tell(f"{total:,} records of {given.record_bytes} B in {size / 1e9:.2f} GB of segments, "
         f"Spark {spark.version}, {given.cores} cores, {given.heap} heap, "
         f"load {os.getloadavg()[0]:.1f}")  # fmt: skip
    tell(f"{'':28} {'seconds':>8} {'records/s':>12} {'per core':>12} {'per CPU s':>12} "
         f"{'JVM MiB':>8} {'Python MiB':>10}")  # fmt: skip
    for name, work in works.items():
        if given.only not in name:
            continue
        work.part()
        cost = timed(work.whole, besides)
        rate = total / cost.seconds
        jvm, python = cost.most_mib
        tell(f"{name:28} {cost.seconds:8.1f} {rate:12,.0f} {rate / given.cores:12,.0f} "
             f"{total / cost.cpu_seconds:12,.0f} {jvm:8} {python:10}")  # fmt: skip


def tell(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
