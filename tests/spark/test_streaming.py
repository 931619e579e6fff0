"""Streams go on where they were, over restarts of the query and changes of the leader."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from local.commands import LocalCluster
from pyspark.sql import DataFrame, Row, SparkSession

from shardlog.client.blocking import Client
from spark.conftest import SHARD
from spark.sessions import finished
from spark.test_reading import told

pytestmark = [pytest.mark.needs("java"), pytest.mark.xdist_group("spark")]
TIMEOUT_S = 240


def stream(spark: SparkSession, url: str, shard: str, **options: object) -> DataFrame:
    return (
        spark.readStream.format("shardlog")
        .option("shardlog.bootstrap.servers", url)
        .option("subscribe", shard)
        .options(**{name: str(it) for name, it in options.items()})
        .load()
    )


def run(stream: DataFrame, tmp_path: Path) -> None:
    """All that is there now, to Parquet."""
    writing = (
        stream.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    finished(writing.start, TIMEOUT_S)


def _is_led_by_another(old: str, found: Any) -> bool:
    return bool(found["status"] == "STEADY" and found["leader"] not in (None, old))


@contextmanager
def running(arguments: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A Spark of its own, in a process group that does not outlive this."""
    root = Path(__file__).parents[2]
    path = [root / "tests", root, root / "spark-jobs", *filter(None, [os.getenv("PYTHONPATH")])]
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("stream_to_parquet.py")), *arguments],
        env={**os.environ, "PYTHONPATH": ":".join(map(str, path))},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(TIMEOUT_S)


def until_written(directory: Path, batches: int, process: subprocess.Popen[bytes]) -> None:
    """So many micro-batches are in the sink's log."""
    deadline = time.monotonic() + TIMEOUT_S
    log = directory / "out" / "_spark_metadata"
    while len([each for each in log.glob("*") if each.name[0].isdigit()]) < batches:
        assert process.poll() is None, "the stream has ended"
        assert time.monotonic() < deadline, f"no {batches} batches in {TIMEOUT_S} s"
        time.sleep(0.1)


def test_each_record_once_though_spark_and_the_leader_are_killed(
    spark: SparkSession, cluster: LocalCluster, url: str, tmp_path: Path
):
    cluster.run("shard create stream")
    with Client(url) as client, client.producer("stream", batch_bytes=1024) as producer:
        producer.append_many([b"first %d" % number for number in range(2000)])
        with running([url, "stream", str(tmp_path), "on"]) as process:
            until_written(tmp_path, 2, process)
            leader = cluster.shard("stream")["leader"]
            cluster.run(f"local kill {leader}")
            producer.append_many([b"second %d" % number for number in range(1000)])
            until_written(tmp_path, 4, process)
        cluster.until("stream", partial(_is_led_by_another, leader))
        cluster.run("local up")
        producer.append_many([b"third %d" % number for number in range(500)])
        with running([url, "stream", str(tmp_path), "now"]) as process:
            assert process.wait(TIMEOUT_S) == 0
        wanted = [(each.offset, each.value) for each in client.read("stream")]
    rows = spark.read.parquet(str(tmp_path / "out")).select("offset", "value").collect()
    assert sorted((row["offset"], bytes(row["value"])) for row in rows) == wanted
    assert len(wanted) == 3500
    for each in (tmp_path / "checkpoint" / "offsets").glob("[0-9]*"):
        (offset,) = json.loads(each.read_text().splitlines()[-1]).items()
        assert offset[0] == "stream"
        assert isinstance(offset[1]["offset"], int)


def test_it_begins_at_the_end_and_goes_on_with_the_same_shards(
    spark: SparkSession, cluster: LocalCluster, url: str, tmp_path: Path
):
    for name in ("newest", "other"):
        cluster.run(f"shard create {name} --replicas 1")
    cluster.append("newest", [b"old"] * 10)
    run(stream(spark, url, "newest"), tmp_path)
    cluster.append("newest", [b"new"] * 5)
    run(stream(spark, url, "newest"), tmp_path)
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert [bytes(row["value"]) for row in rows] == [b"new"] * 5
    assert "the checkpoint is of the shards newest, not of other" in told(
        lambda: run(stream(spark, url, "other"), tmp_path)
    )


def test_what_is_gone_is_told_or_skipped(
    spark: SparkSession, cluster: LocalCluster, url: str, tmp_path: Path
):
    cluster.run("shard create trimmed --replicas 1")
    cluster.append("trimmed", [b"%d" % number for number in range(100)])
    cluster.append("trimmed", [b"kept"] * 3)
    with Client(url) as client:
        (*_, last) = [each.offset for each in client.read("trimmed")]
        cluster.run(f"ops trim trimmed {last - 2} --yes")
        until(lambda: client.first("trimmed") > 2)
        first = client.first("trimmed")
    options = {"startingOffsets": '{"trimmed": 2}'}
    assert f"offsets from 2 of 'trimmed' are gone: it starts at {first}" in told(
        lambda: run(stream(spark, url, "trimmed", **options), tmp_path / "one")
    )
    run(stream(spark, url, "trimmed", failOnDataLoss="false", **options), tmp_path / "two")
    rows = spark.read.parquet(str(tmp_path / "two" / "out")).collect()
    assert min(row["offset"] for row in rows) >= first


def test_a_cluster_that_goes_away_in_the_middle_leaves_nothing_that_looks_complete(
    spark: SparkSession, cluster: LocalCluster, url: str, tmp_path: Path
):
    """The only node that has the shard hangs when the first rows have come."""
    cluster.run("shard create away --replicas 1")
    with Client(url) as client, client.producer("away") as producer:
        for _ in range(48):
            producer.append_many([bytes(10_000)] * 100)
    reading, gone = tmp_path / "reading", tmp_path / "gone"

    def waits(rows: Iterable[Row]) -> Iterator[Row]:
        """In a process that does not know this module."""
        deadline = time.monotonic() + TIMEOUT_S
        for row in rows:
            reading.touch()
            while not gone.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            yield row

    source = spark.read.format("shardlog").option("subscribe", "away").option("columns", "value")
    rows = source.option("shardlog.bootstrap.servers", url).option("timeoutMs", "3000").load()
    writing = spark.createDataFrame(rows.rdd.mapPartitions(waits), rows.schema).write
    leader = cluster.shard("away")["leader"]
    with ThreadPoolExecutor(1) as executor:
        failed = executor.submit(told, lambda: writing.parquet(str(tmp_path / "out")))
        until(lambda: reading.exists() or failed.done())
        cluster.run(f"local pause {leader}")
        try:
            gone.touch()
            line = failed.result(TIMEOUT_S)
        finally:
            cluster.run(f"local resume {leader}")
    assert "NoAnswer: " in line
    assert "'away'" in line
    assert not (tmp_path / "out" / "_SUCCESS").exists()
    assert not list((tmp_path / "out").glob("*.parquet"))


def until(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not there():
        assert time.monotonic() < deadline, f"not within {TIMEOUT_S} s"
        time.sleep(0.05)


def test_what_cannot_be_streamed_is_told_before_a_task_starts(
    spark: SparkSession, url: str, place: str, tmp_path: Path
):
    assert "there is no shard 'none'" in told(lambda: run(stream(spark, url, "none"), tmp_path))
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").glob("*.parquet"))
    snapshot = spark.readStream.format("shardlog").option("subscribe", SHARD).load
    assert "a snapshot never changes" in told(lambda: run(snapshot(place), tmp_path / "other"))
