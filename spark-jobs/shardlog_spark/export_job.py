"""`export`: what is new in shards to Parquet, a directory for each day and shard.

Each run reads exactly what came since the last one, by the book that stands beside the files
(`export_book`), and publishes all of its files or none.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.datasource import ReadAllAvailable

from shardlog.snapshots.arrow_columns import COLUMNS
from shardlog.snapshots.reading import Wanted, read_entries
from shardlog_spark.durations import duration_ms
from shardlog_spark.export_book import REJECTS, STAGING, Book, Run
from shardlog_spark.export_page import page, text
from shardlog_spark.failures import BadOption, CannotWrite, OtherLog
from shardlog_spark.job import OK, planned, run, source_arguments, source_options
from shardlog_spark.options import EARLIEST, LATEST, Options, place, read_options
from shardlog_spark.reading import archive_of
from shardlog_spark.streaming import ShardlogStreamReader

_SAMPLE = 1_000
_CORRUPT = "_corrupt"

Ends = dict[str, dict[str, Any]]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="export",
        description="What is new in shards to Parquet, a directory for each day and shard.",
    )
    source_arguments(made)
    made.add_argument("--out", required=True, metavar="URL",
                      help="the directory of this export, or one that is not there")  # fmt: skip
    made.add_argument("--columns", help="some of key, value, offset, epoch, timestamp, headers")
    made.add_argument("--json", metavar="SCHEMA", help="parse values as JSON into a column `data`: "
                      "'id bigint, name string', or 'sample' for what the first values have. "
                      f"What does not fit goes to OUT/{REJECTS}")  # fmt: skip
    made.add_argument("--late", default="1 hour",
                      help="count records that came later than this (%(default)s)")  # fmt: skip
    made.add_argument("--compact", type=int, metavar="FILES",
                      help="make one file of a directory's that has so many or more")  # fmt: skip
    made.add_argument("--html", metavar="FILE", type=Path, help="a page about all runs, with plots")
    return made


def check(given: argparse.Namespace) -> None:
    given.late_ms = duration_ms("--late", given.late)
    if given.compact is not None and given.compact < 2:
        raise BadOption(f"--compact is {given.compact}: a number from 2 on")


def export(spark: SparkSession, given: argparse.Namespace) -> int:
    book = Book(spark, given.out)
    runs = book.runs()
    before = runs[-1].ends if runs else {}
    starts, ends = _range(read_options(source_options(given)), before)
    planned(_between(given, starts, ends), _columns(given))
    book.recover(runs)
    if any(starts[shard] < ends[shard]["offset"] for shard in ends):
        runs.append(_exported(spark, given, book, runs, starts, ends))
    if given.compact is not None and (packed := _compacted(spark, book, runs, given.compact)):
        runs.append(packed)
    if given.html is not None:
        try:
            given.html.write_text(page(given.out, runs))
        except OSError as failure:
            raise CannotWrite(f"{given.html}: {failure.strerror}") from failure
    print(text(given.out, runs))
    return OK


# --- what to read --------------------------------------------------------------------------------


def _range(options: Options, before: Ends) -> tuple[dict[str, int], Ends]:
    """Where each shard goes on, and ends now; `OtherLog` if it is not the one of before."""
    if options.is_live:
        ending, options = options.ending, options.from_earliest()
        reader = ShardlogStreamReader(options)
        begun = before or reader.initialOffset()
        ends = reader.latestOffset(begun, ReadAllAvailable())
        starts = {shard: _offset(begun.get(shard, 0)) for shard in ends}
        for shard in ends:
            most = place(ending, shard, LATEST)
            if most != LATEST:
                ends[shard] = {"offset": max(most, starts[shard]) if shard in before else most}
        return starts, ends
    starts, ends = {}, {}
    for shard in options.shards:
        archive = archive_of(options, shard)
        manifest = (
            archive.newest() if options.snapshot is None else archive.manifest(options.snapshot)
        )
        start = place(options.starting, shard, EARLIEST)
        starts[shard] = manifest.first if start == EARLIEST else start
        if shard in before:
            starts[shard] = before[shard]["offset"]
            _require_same(archive, manifest.segments, shard, before[shard], manifest.end)
        most = place(options.ending, shard, LATEST)
        end = manifest.end if most == LATEST else most
        if shard in before:
            end = max(starts[shard], end)
        chain = manifest.segments[-1].head if end == manifest.end and manifest.segments else None
        ends[shard] = {"offset": end, "chain": None if chain is None else f"{chain:016x}"}
    return starts, ends


def _offset(given: int | dict[str, Any]) -> int:
    return given if isinstance(given, int) else int(given["offset"])


def _require_same(
    archive: Any, segments: Sequence[Any], shard: str, before: dict[str, Any], end: int
) -> None:
    offset, chain = before["offset"], before.get("chain")
    if offset > end:
        raise OtherLog(f"the export has {shard!r} up to offset {offset}, and the snapshot to {end}")
    for segment in segments:
        if chain is not None and segment.base < offset <= segment.end:
            for found in read_entries(archive, segment, Wanted(offset - 1, offset)):
                for header, _ in found:
                    if header.end == offset and f"{header.checksum:016x}" != chain:
                        raise OtherLog(
                            f"{shard!r} is another shard than that of the export, under the same "
                            f"name: they differ before offset {offset}"
                        )


def _between(given: argparse.Namespace, starts: dict[str, int], ends: Ends) -> argparse.Namespace:
    offsets = {shard: end["offset"] for shard, end in ends.items()}
    found = argparse.Namespace(**vars(given))
    found.shard = ",".join(offsets)
    found.start = json.dumps({shard: starts[shard] for shard in offsets})
    found.end = json.dumps(offsets)
    return found


def _columns(given: argparse.Namespace) -> str:
    """Those that are asked for, and those that this needs."""
    asked = _asked(given)
    needed = ["shard", "timestamp", "appended", *(["value"] if given.json else [])]
    return ",".join([asked, *(each for each in needed if each not in asked.split(","))])


# --- what to write -------------------------------------------------------------------------------


def _exported(
    spark: SparkSession,
    given: argparse.Namespace,
    book: Book,
    runs: list[Run],
    starts: dict[str, int],
    ends: Ends,
) -> Run:
    begun_ms = time.time_ns() // 1_000_000
    options = source_options(_between(given, starts, ends), _columns(given))
    records = spark.read.format("shardlog").options(**options).load()
    known = next((each.schema for each in runs if each.schema is not None), None)
    schema = known or (_schema(spark, records, given.json) if given.json else None)
    made = _tables(records, schema)
    shards = sorted(ends)
    seen = Observation()
    counts = [
        F.count_if((F.col("shard") == shard) & condition).alias(f"{name}{number}")
        for number, shard in enumerate(shards)
        for name, condition in _counted(given.late_ms).items()
    ]
    hidden = [each for each in ("appended", "value") if each not in _asked(given).split(",")]
    observed = made.observe(seen, *counts).drop(*hidden)
    observed.write.partitionBy("table", "day", "shard").parquet(book.staging)
    told = seen.get
    number = runs[-1].number + 1 if runs else 1
    by_name = {
        name: {shard: int(told[f"{name}{at}"] or 0) for at, shard in enumerate(shards)}
        for name in _counted(0)
    }
    made_run = Run(
        number, begun_ms, starts, ends, by_name["rows"], by_name["rejects"], by_name["late"],
        schema=schema,
    )  # fmt: skip
    book.publish(made_run, book.found(STAGING, ".parquet"))
    return made_run


def _asked(given: argparse.Namespace) -> str:
    return str(given.columns or ",".join(COLUMNS)).replace(" ", "")


def _counted(late_ms: int) -> dict[str, Column]:
    late = F.unix_millis("appended") - F.unix_millis("timestamp") > late_ms
    return {
        "rows": F.col("table") == "records",
        "rejects": F.col("table") == "rejects",
        "late": F.coalesce(late, F.lit(False)),
    }


def _schema(spark: SparkSession, records: DataFrame, given: str) -> str:
    if given != "sample":
        return given
    values = records.limit(_SAMPLE).select(F.col("value").cast("string"))
    found = spark.read.json(values.rdd.map(lambda row: row[0])).schema
    names = [each for each in found.fields if each.name != "_corrupt_record"]
    if not names:
        raise BadOption(f"the first {_SAMPLE} values are no JSON: --json needs a schema")
    return ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in names)


def _tables(records: DataFrame, schema: str | None) -> DataFrame:
    """With the day, by the record's own time if that is a date, and the table it belongs to."""
    day = F.to_date(F.coalesce("timestamp", "appended"))
    found = records.withColumn("day", day)
    if schema is None:
        return found.withColumn("table", F.lit("records"))
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = F.from_json(F.col("value").cast("string"), f"{schema}, {_CORRUPT} string", options)
    found = found.withColumn("data", parsed)
    fits = F.col("data").isNotNull() & F.col(f"data.{_CORRUPT}").isNull()
    found = found.withColumn("table", F.when(fits, "records").otherwise("rejects"))
    data = F.when(fits, F.col("data").dropFields(_CORRUPT))
    return found.withColumn("data", data)


def _compacted(spark: SparkSession, book: Book, runs: list[Run], most: int) -> Run | None:
    """One file for each directory that has many; the offsets stay as they are."""
    by_directory: dict[str, list[str]] = {}
    for name in book.found("", ".parquet"):
        if not name.startswith("_shardlog/"):
            by_directory.setdefault(name.rpartition("/")[0], []).append(name)
    many = {name: files for name, files in by_directory.items() if len(files) >= most}
    if not many or not runs:
        return None
    for directory, files in many.items():
        rows = spark.read.parquet(*(f"{book.out}/{each}" for each in files))
        rows.coalesce(1).write.parquet(f"{book.staging}/{directory}")
    last = runs[-1]
    starts = {shard: end["offset"] for shard, end in last.ends.items()}
    made = Run(last.number + 1, time.time_ns() // 1_000_000, starts, last.ends)
    made.removed = [each for files in many.values() for each in files]
    book.publish(made, book.found(STAGING, ".parquet"))
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    return run("export", parser(), export, given, check)
