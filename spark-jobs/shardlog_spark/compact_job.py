"""`compact`: of every key the record with the highest offset, as Parquet.

The log itself is left alone: what comes of it is a table of the latest state.  Records without a
key say nothing about any, and are left out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from shardlog_spark.job import OK, new_directory, run, source, source_arguments


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="compact", description="The latest record of each key of a shard, to Parquet."
    )
    source_arguments(made)
    made.add_argument("--out", required=True, metavar="URL", help="a directory that is not there")
    made.add_argument("--drop-empty", action="store_true",
                      help="an empty value means that the key was deleted")  # fmt: skip
    return made


def compact(spark: SparkSession, given: argparse.Namespace) -> int:
    records = source(spark, given).where("key is not null")
    rest = [name for name in records.columns if name not in ("shard", "key")]
    latest = (
        records.groupBy("shard", "key")
        .agg(F.max_by(F.struct(*rest), "offset").alias("latest"))
        .select("shard", "key", "latest.*")
    )
    if given.drop_empty:
        latest = latest.where(F.length("value") > 0)
    with new_directory(spark, given.out):
        latest.write.partitionBy("shard").parquet(given.out)
    print(f"compacted to {given.out}")
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    return run("compact", parser(), compact, sys.argv[1:] if arguments is None else arguments)
