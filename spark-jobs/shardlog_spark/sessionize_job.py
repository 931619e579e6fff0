"""`sessionize`: what each key did without a long pause, by the records' own times.

An example of event analytics.  From a snapshot everything is there at once, so late records find
their session too, and are counted.  With `--checkpoint` a live shard is followed as a stream: a
session is written once no record that is at most `--late` behind the newest can belong to it any
more, and records that come later than that are dropped, which is what bounds Spark's memory.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from shardlog_spark.durations import duration_ms, for_spark
from shardlog_spark.failures import BadOption
from shardlog_spark.job import (
    OK,
    is_there,
    new_directory,
    require_writable,
    run,
    source,
    source_arguments,
    source_options,
)
from shardlog_spark.options import read_options
from shardlog_spark.restarting import run_stream
from shardlog_spark.streaming import ShardlogStreamReader

COLUMNS = "key,value,shard,timestamp,appended"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="sessionize",
        description="Sessions of each key, by the records' own times, to Parquet.",
    )
    source_arguments(made)
    made.add_argument("--out", required=True, metavar="URL", help="a directory that is not there; "
                      "with --checkpoint that of the same stream")  # fmt: skip
    made.add_argument(
        "--gap", default="30 minutes", help="a longer pause ends a session (%(default)s)"
    )
    made.add_argument("--late", default="10 minutes",
                      help="records that came later than this are late (%(default)s)")  # fmt: skip
    made.add_argument("--checkpoint", metavar="URL", help="follow a cluster, and go on from here")
    made.add_argument("--once", action="store_true", help="with --checkpoint: what is there now")
    return made


def sessions(records: DataFrame, gap: str, late: str) -> DataFrame:
    is_late = F.col("appended") > F.col("timestamp") + F.expr(f"interval {late}")
    return (
        records.where("key is not null")
        .groupBy("shard", "key", F.session_window("timestamp", gap).alias("session"))
        .agg(
            F.count("*").alias("records"),
            F.sum(F.length("value")).alias("bytes"),
            F.count_if(is_late).alias("late"),
        )
        .select(
            "shard", "key", F.col("session.start").alias("start"),
            F.col("session.end").alias("end"), "records", "bytes", "late",
        )
    )  # fmt: skip


def check(given: argparse.Namespace) -> None:
    given.gap = for_spark(duration_ms("--gap", given.gap, least=1))
    given.late = for_spark(duration_ms("--late", given.late))
    if given.checkpoint is None and given.once:
        raise BadOption("--once is for --checkpoint")
    if given.checkpoint is not None and given.cluster is None:
        raise BadOption("--checkpoint follows a cluster: a snapshot never changes")


def sessionize(spark: SparkSession, given: argparse.Namespace) -> int:
    if given.checkpoint is not None:
        return _followed(spark, given)
    made = sessions(source(spark, given, COLUMNS), given.gap, given.late)
    with new_directory(spark, given.out):
        made.write.parquet(given.out)
    rows = spark.read.parquet(given.out)
    total = rows.agg(F.count("*"), F.sum("records"), F.sum("late")).first()
    assert total is not None
    print(f"{total[0]} sessions of {total[1] or 0} records, {total[2] or 0} of them late, "
          f"in {given.out}")  # fmt: skip
    return OK


def _followed(spark: SparkSession, given: argparse.Namespace) -> int:
    options = source_options(given, COLUMNS)
    options.setdefault("startingOffsets", "earliest")
    require_writable(spark, given.out)
    reader = ShardlogStreamReader(read_options(options))
    if is_there(spark, given.checkpoint):
        reader.reportLatestOffset()
    else:
        reader.initialOffset()
    records = spark.readStream.format("shardlog").options(**options).load()
    made = sessions(records.withWatermark("timestamp", given.late), given.gap, given.late)
    writing = (
        made.writeStream.format("parquet")
        .outputMode("append")
        .option("path", given.out)
        .option("checkpointLocation", given.checkpoint)
    )
    if given.once:
        writing = writing.trigger(availableNow=True)
    run_stream(writing)
    print(f"sessions are in {given.out}")
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    return run("sessionize", parser(), sessionize, given, check)
