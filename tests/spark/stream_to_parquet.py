"""A program of its own: a stream to Parquet, so that all of Spark can be killed.

python stream_to_parquet.py URL SHARD DIRECTORY now|on
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from spark.sessions import configured, finished

OFFSETS_PER_TRIGGER = 500
TIMEOUT_S = 600


def main(url: str, shard: str, directory: Path, how: str) -> None:
    spark = configured(SparkSession.builder.master("local[2]"), directory).getOrCreate()
    made = (
        spark.readStream.format("shardlog")
        .option("shardlog.bootstrap.servers", url)
        .option("subscribe", shard)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", OFFSETS_PER_TRIGGER)
        .load()
        .writeStream.format("parquet")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "checkpoint"))
    )
    if how == "now":
        made = made.trigger(availableNow=True)
    finished(made.start, TIMEOUT_S)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
