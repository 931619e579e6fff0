"""Kafka beside `spark_read`: one broker, and the same records in it, written by Spark itself.

The broker is the one of `bench.compare`.  There are few partitions, because each costs the reader
some hundred milliseconds, and batches are long ones, which it has the least work with.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.compare.kafka import Kafka, RunningKafka
from bench.compare.programs import spark_kafka_jars
from bench.compare.system import HOST

TOPIC = "bench"
PARTITIONS = 4
BATCH_BYTES = 256 << 10
LINGER_MS = 50

__all__ = ["Topic", "own_broker", "spark_kafka_jars"]


@dataclass(frozen=True, slots=True)
class Topic:
    """At a broker, whose processes are `pids`."""

    address: str
    pids: frozenset[int]

    def fill(self, rows: DataFrame) -> None:
        writer = rows.select("value").write.format("kafka").option("topic", TOPIC)
        writer = writer.option("kafka.bootstrap.servers", self.address)
        writer = writer.option("kafka.batch.size", BATCH_BYTES)
        writer.option("kafka.linger.ms", LINGER_MS).save()

    def read(self, spark: SparkSession, records_max: int | None = None) -> DataFrame:
        """All there are, or about so many."""
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", self.address)
        if records_max is not None:
            ends = {str(each): records_max // PARTITIONS for each in range(PARTITIONS)}
            reader = reader.option("endingOffsets", json.dumps({TOPIC: ends}))
        return reader.option("subscribe", TOPIC).load()


@contextmanager
def own_broker(directory: Path) -> Iterator[Topic]:
    directory.mkdir()
    with Kafka().running(directory, 1) as running:
        assert isinstance(running, RunningKafka)
        running.create(TOPIC, PARTITIONS)
        pids = frozenset(process.pid for process in running.processes)
        yield Topic(f"{HOST}:{running.ports[0]}", pids)
