"""Rows are appended once each, though a task may fail and run again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from local.commands import LocalCluster
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from shardlog.client.blocking import Client
from shardlog.client.records import Record
from spark.sessions import finished
from spark.test_reading import told
from spark.test_streaming import TIMEOUT_S, stream

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
    write(rows.repartition(3), url, "written", compression="zstd")
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
        write(spark.createDataFrame(rows, "value string"), url, "retried")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert failed.exists()
    found = [each.value for each in log(url, "retried")]
    assert sorted(found) == sorted(b"%d" % number for number in range(10_000))


def test_B3_rows_in_another_order(spark: SparkSession, cluster: LocalCluster, url: str):
    """Each task fails once when most is appended, and has its rows backwards when it runs again."""
    cluster.run("shard create shuffled --replicas 1")

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
        write(made, url, "shuffled")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    found = [each.value for each in log(url, "shuffled")]
    assert sorted(found) == sorted(b"%d" % number for number in range(3000))


def test_what_cannot_be_written(spark: SparkSession, cluster: LocalCluster, url: str):
    cluster.run("shard create unwritten --replicas 1")
    rows = spark.range(10).selectExpr("cast(id as string) as value", "id as colour")
    assert "column 'colour' cannot be written" in told(lambda: write(rows, url, "unwritten"))
    numbers = spark.range(10).selectExpr("id as value")
    assert "column 'value' must be binary or string" in told(
        lambda: write(numbers, url, "unwritten")
    )
    many = spark.range(10).selectExpr("cast(id as string) as value")
    assert "CannotWrite: there is no shard 'none'" in told(lambda: write(many, url, "none"))
    assert "CannotWrite: there is no shard 'claims'" in told(
        lambda: write(many, url, "unwritten", journal="claims", txnAppId="x", txnVersion=1)
    )


def forget_the_last_batch(checkpoint: Path) -> None:
    """As if the driver had been killed when all tasks had ended, before the batch was committed."""
    (last,) = {max(int(each.name) for each in (checkpoint / "commits").glob("[0-9]*"))}
    for each in (checkpoint / "commits").glob(f"*{last}*"):
        each.unlink()


@pytest.mark.parametrize("kind", ["sink", "foreachBatch"])
def test_a_batch_that_a_stream_repeats_is_written_once(
    spark: SparkSession, cluster: LocalCluster, url: str, tmp_path: Path, kind: str
):
    source, sink, journal = (f"{name}-{kind.lower()}" for name in ("from", "to", "claims"))
    for name in (source, sink, journal):
        cluster.run(f"shard create {name} --replicas 1")
    cluster.append(source, [b"%d" % number for number in range(1000)])

    def run() -> StreamingQuery:
        rows = stream(
            spark, url, source, startingOffsets="earliest", maxOffsetsPerTrigger=400,
            minPartitions=2, columns="key,value",
        )  # fmt: skip
        writing = rows.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        if kind == "sink":
            options = {"shardlog.bootstrap.servers": url, "shard": sink, "journal": journal}
            writing = writing.format("shardlog").options(**options)
        else:

            def once(rows: DataFrame, batch: int) -> None:
                write(rows, url, sink, journal=journal, txnAppId="copy", txnVersion=batch)

            writing = writing.foreachBatch(once)
        return finished(writing.trigger(availableNow=True).start, TIMEOUT_S)

    run()
    forget_the_last_batch(tmp_path / "checkpoint")
    assert run().lastProgress is not None  # it ran a batch
    cluster.append(source, [b"more"] * 3)
    run()
    wanted = [b"%d" % number for number in range(1000)] + [b"more"] * 3
    assert sorted(each.value for each in log(url, sink)) == sorted(wanted)
