"""`profile`: what a shard is like: rates, sizes, keys, epochs, and how late records come.

Everything is counted by Spark in three passes over the columns that are needed; what is left for
the driver are a few hundred rows, however long the log is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.datasource import InputPartition

from shardlog_spark.failures import CannotWrite
from shardlog_spark.job import OK, loaded, planned, run, source_arguments
from shardlog_spark.profile_facts import Bucket, Epoch, KeyCount, Profile, SizeClass, nice_width_ms
from shardlog_spark.profile_page import page
from shardlog_spark.profile_text import text
from shardlog_spark.ranges import SnapshotRange

COLUMNS = "key,value,shard,offset,epoch,timestamp,appended"
KEYS_SHOWN = 15
_ACCURACY = 1_000


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="profile", description="Rates, sizes, keys, epochs and lateness of records."
    )
    source_arguments(made)
    made.add_argument("--html", metavar="FILE", type=Path, help="a page with plots, in one file")
    return made


def profile(spark: SparkSession, given: argparse.Namespace) -> int:
    epochs = epochs_in(planned(given, COLUMNS))
    records = facts_of(loaded(spark, given, COLUMNS))
    found = profiles(records, epochs)
    for each in found:
        print(text(each))
    if not found:
        print("there are no records")
    if given.html is not None:
        try:
            given.html.write_text(page(found))
        except OSError as failure:
            raise CannotWrite(f"{given.html}: {failure.strerror}") from failure
        print(f"the page is {given.html}")
    return OK


def facts_of(records: DataFrame) -> DataFrame:
    """What is counted; a record whose own time is no date is not late."""
    late_ms = F.unix_millis("appended") - F.unix_millis("timestamp")
    return records.select(
        "shard", "offset", "epoch", "key",
        F.unix_millis("appended").alias("at_ms"),
        F.coalesce(late_ms, F.lit(0)).alias("late_ms"),
        F.length("value").alias("size"),
    )  # fmt: skip


def epochs_in(ranges: Sequence[InputPartition]) -> dict[str, dict[int, int]]:
    """Where each epoch of each shard begins, as far as a snapshot tells it."""
    found: dict[str, dict[int, int]] = {}
    for each in ranges:
        if isinstance(each, SnapshotRange):
            spans = each.segment.spans
            ends = [*(span.first for span in spans[1:]), each.segment.end]
            for span, end in zip(spans, ends, strict=True):
                if span.first < each.end and end > each.start:
                    found.setdefault(each.shard, {}).setdefault(span.epoch, span.first)
    return found


def profiles(records: DataFrame, epochs: dict[str, dict[int, int]]) -> list[Profile]:
    """One for each shard that has records, by name."""
    totals = {row["shard"]: row for row in _totals(records).collect()}
    if not totals:
        return []
    widths_ms = {
        shard: nice_width_ms(row["last_ms"] - row["first_ms"]) for shard, row in totals.items()
    }
    parts = _parts(records, widths_ms).collect()
    counts = _counts(records).persist(StorageLevel.DISK_ONLY)
    try:
        return [
            _profile(
                totals[shard], widths_ms[shard], [row for row in parts if row["shard"] == shard],
                counts.where(F.col("shard") == shard), epochs.get(shard, {}),
            )
            for shard in sorted(totals)
        ]  # fmt: skip
    finally:
        counts.unpersist()


def _totals(records: DataFrame) -> DataFrame:
    def shares(column: str, *shares: float) -> Column:
        return F.percentile_approx(column, list(shares), _ACCURACY)

    return records.groupBy("shard").agg(
        F.count("*").alias("records"),
        F.sum("size").alias("bytes"),
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.min("at_ms").alias("first_ms"),
        F.max("at_ms").alias("last_ms"),
        F.count_if(F.col("key").isNull()).alias("keyless"),
        shares("size", 0.5, 0.9, 0.99, 1.0).alias("sizes"),
        shares("late_ms", 0.5, 0.9, 0.99, 1.0).alias("late_ms"),
    )


def _parts(records: DataFrame, widths_ms: dict[str, int]) -> DataFrame:
    by_shard = F.create_map(*(F.lit(each) for pair in widths_ms.items() for each in pair))
    width_ms = by_shard[F.col("shard")]
    bucket = F.floor(F.col("at_ms") / width_ms) * width_ms
    power = F.when(F.col("size") == 0, 0).otherwise(F.floor(F.log2("size")) + 1)
    return records.groupBy(
        "shard", "epoch", bucket.alias("bucket_ms"), power.cast("int").alias("power")
    ).agg(
        F.count("*").alias("records"),
        F.sum("size").alias("bytes"),
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.min("at_ms").alias("first_ms"),
        F.max("at_ms").alias("last_ms"),
        F.max("late_ms").alias("late_ms"),
    )


def _counts(records: DataFrame) -> DataFrame:
    keyed = records.where("key is not null")
    return keyed.groupBy("shard", "key").agg(
        F.count("*").alias("records"), F.sum("size").alias("bytes")
    )


def _profile(
    total: Row, width_ms: int, parts: list[Row], counts: DataFrame, known: dict[int, int]
) -> Profile:
    top = counts.orderBy(F.desc("records"), "key").limit(KEYS_SHOWN).collect()
    keys = counts.agg(F.count("*"), F.percentile_approx("records", [0.5, 0.99], _ACCURACY)).first()
    assert keys is not None
    return Profile(
        total["shard"], total["records"], total["bytes"], total["first"], total["last"] + 1,
        total["first_ms"], total["last_ms"], total["keyless"], keys[0], tuple(keys[1] or (0, 0)),
        tuple(total["sizes"]), tuple(total["late_ms"]), width_ms,
        tuple(KeyCount(bytes(row["key"]), row["records"], row["bytes"]) for row in top),
        _buckets(parts), _epochs(parts, known), _sizes(parts),
    )  # fmt: skip


def _buckets(parts: list[Row]) -> tuple[Bucket, ...]:
    found: dict[int, Bucket] = {}
    for row in parts:
        at = row["bucket_ms"]
        old = found.get(at, Bucket(at, 0, 0))
        found[at] = Bucket(
            at, old.records + row["records"], old.bytes + row["bytes"],
            max(old.late_ms, row["late_ms"]),
        )  # fmt: skip
    return tuple(found[at] for at in sorted(found))


def _epochs(parts: list[Row], known: dict[int, int]) -> tuple[Epoch, ...]:
    """Those with records, and those of which only the beginning is known."""
    found = {epoch: Epoch(epoch, first, 0, None, None) for epoch, first in known.items()}
    for epoch in {row["epoch"] for row in parts}:
        its = [row for row in parts if row["epoch"] == epoch]
        found[epoch] = Epoch(
            epoch, min(row["first"] for row in its), sum(row["records"] for row in its),
            min(row["first_ms"] for row in its), max(row["last_ms"] for row in its),
        )  # fmt: skip
    return tuple(found[epoch] for epoch in sorted(found))


def _sizes(parts: list[Row]) -> tuple[SizeClass, ...]:
    found: dict[int, int] = {}
    for row in parts:
        found[row["power"]] = found.get(row["power"], 0) + row["records"]
    if not found:
        return ()
    powers = range(min(found), max(found) + 1)
    return tuple(SizeClass(power, found.get(power, 0)) for power in powers)


def main(arguments: Sequence[str] | None = None) -> int:
    return run("profile", parser(), profile, sys.argv[1:] if arguments is None else arguments)
