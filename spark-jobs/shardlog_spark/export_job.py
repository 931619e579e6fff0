"""`export`: records of shards to Parquet, a directory for each day and shard.

Spark writes to temporary files and names them when all is done, `_SUCCESS` last; an export that
fails takes its directory away.  With `--append` there is one already: it keeps what it had.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from shardlog_spark.job import (
    OK,
    new_directory,
    require_writable,
    run,
    source,
    source_arguments,
)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="export", description="Records to Parquet, a directory for each day and shard."
    )
    source_arguments(made)
    made.add_argument("--out", required=True, metavar="URL", help="a directory that is not there")
    made.add_argument("--append", action="store_true", help="it may be there: add to it")
    made.add_argument("--columns", help="some of key, value, offset, epoch, timestamp, headers")
    return made


def export(spark: SparkSession, given: argparse.Namespace) -> int:
    columns = given.columns
    if columns is not None:
        needed = [each for each in ("shard", "timestamp") if each not in columns.split(",")]
        columns = ",".join([columns, *needed])
    require_writable(spark, given.out)
    records = source(spark, given, columns).withColumn("day", F.to_date("timestamp"))
    with nullcontext() if given.append else new_directory(spark, given.out):
        mode = "append" if given.append else "errorifexists"
        records.write.mode(mode).partitionBy("day", "shard").parquet(given.out)
    print(f"exported to {given.out}")
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    return run("export", parser(), export, sys.argv[1:] if arguments is None else arguments)
