"""Rows are appended once each, though a task may fail and run again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from local.commands import LocalCluster
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from shardlog.client.blocking import Client
from shardlog.client.records import Record
from spark.test_reading import told

pytestmark = [pytest.mark.needs("java"), pytest.mark.xdist_group("spark")]


def write(rows: DataFrame, url: str, shard: str, **options: object) -> None:
    (
        rows.write.format("shardlog")
        .mode("append")
        .option("shardlog.bootstrap.servers", url)
        .option("shard", shard)
        .options(**{name: str(it) for name, it in options.items()})
        .save()
    )


def log(url: str, shard: str) -> list[Record]:
    with Client(url) as client:
        return list(client.read(shard))


def test_rows_become_records(spark: SparkSession, cluster: LocalCluster, url: str):
    cluster.run("shard create written --replicas 1")
    rows = spark.range(5000).selectExpr(
        "concat('k', id) as key", "concat('v', id) as value",
        "timestamp_millis(1000000 + id) as timestamp",
        "array(struct('n' as key, cast('x' as binary) as value)) as headers",
    )  # fmt: skip
    write(rows.repartition(3), url, "written", compression="zstd", sessions=4)
    found = sorted(log(url, "written"), key=lambda each: each.timestamp_ms)
    assert [each[1:] for each in found] == [
        (b"k%d" % n, b"v%d" % n, 1_000_000 + n, (("n", b"x"),)) for n in range(5000)
    ]


def test_a_task_that_runs_again_appends_nothing_twice(
    spark: SparkSession, cluster: LocalCluster, url: str, tmp_path: Path
):
    cluster.run("shard create retried --replicas 1")
    failed = tmp_path / "failed"

    def fails_once(numbers: Iterable[int]) -> Iterator[tuple[str]]:
        """Late, when much of it has been appended."""
        context = TaskContext.get()
        assert context is not None
        for count, number in enumerate(numbers):
            if context.attemptNumber() == 0 and count == 4000:
                failed.touch()
                raise OSError("this attempt fails")
            yield (str(number),)

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    try:
        rows = spark.sparkContext.parallelize(range(10_000), 2).mapPartitions(fails_once)
        write(spark.createDataFrame(rows, "value string"), url, "retried", sessions=2)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert failed.exists()
    found = [each.value for each in log(url, "retried")]
    assert sorted(found) == sorted(b"%d" % number for number in range(10_000))


def test_B3_B5_partitions_without_bound_and_rows_in_another_order(
    spark: SparkSession, cluster: LocalCluster, url: str
):
    """Each task fails once when most is appended, and has its rows backwards when it runs again."""
    for name in ("shuffled", "claims"):
        cluster.run(f"shard create {name} --replicas 1")

    def backwards(numbers: Iterable[int]) -> Iterator[tuple[str]]:
        context = TaskContext.get()
        assert context is not None
        found = list(numbers)
        for count, number in enumerate(found if context.attemptNumber() == 0 else found[::-1]):
            if context.attemptNumber() == 0 and count == 400:
                raise OSError("this attempt fails")
            yield (str(number),)

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        rows = spark.sparkContext.parallelize(range(3000), 6).mapPartitions(backwards)
        made = spark.createDataFrame(rows, "value string")
        write(made, url, "shuffled", sessions=1, journal="claims")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    found = [each.value for each in log(url, "shuffled")]
    assert sorted(found) == sorted(b"%d" % number for number in range(3000))
    assert len(log(url, "claims")) == 6


def test_what_cannot_be_written(spark: SparkSession, cluster: LocalCluster, url: str):
    cluster.run("shard create unwritten --replicas 1")
    rows = spark.range(10).selectExpr("cast(id as string) as value", "id as colour")
    assert "column 'colour' cannot be written" in told(lambda: write(rows, url, "unwritten"))
    numbers = spark.range(10).selectExpr("id as value")
    assert "column 'value' must be binary or string" in told(
        lambda: write(numbers, url, "unwritten")
    )
    many = spark.range(10).selectExpr("cast(id as string) as value").repartition(3)
    assert "more than 1 partitions: option 'sessions'" in told(
        lambda: write(many, url, "unwritten", sessions=1)
    )
    assert "CannotWrite: there is no shard 'none'" in told(lambda: write(many, url, "none"))
