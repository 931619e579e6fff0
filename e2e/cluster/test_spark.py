"""Spark on Kubernetes: executors on two machines read a shard that is written to, three ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
from faults.history import History, Standing, standing_of

from e2e.cluster.release import NAME, Release
from e2e.cluster.s3 import CREDENTIALS, SECRET_NAME, s3_in
from e2e.cluster.scenario import Scenarios
from e2e.cluster.spark import CLAIM, EXECUTORS, Ran, is_unused, spark_in

Json = Any
SHARD = "analysed"
FIRST = 20_000
"""So many records of each producer at once: a log of several segments."""
SEGMENT_BYTES = 256 << 10


def test_executors_read_in_parallel(scenarios: Scenarios):
    """From a volume by a Job whose pod is the driver, from S3 by `spark-submit`; live besides."""
    release = scenarios.release
    with (
        spark_in(release) as spark,
        scenarios.scenario("a snapshot, and Spark over it", SHARD, first=FIRST) as it,
    ):
        release.until(lambda: it.clients.acknowledged() > 2 * FIRST, "the log is not long")
        acknowledged = it.clients.acknowledged()
        taken = spark.snapshot(SHARD, SEGMENT_BYTES)
        assert taken["records"] >= acknowledged
        assert taken["written_segments"] > 2 * EXECUTORS

        exported = spark.export(SHARD, "parquet")
        it.prove("tasks of the export", "none", lambda: in_parallel(exported))
        assert len(exported.tasks) == taken["written_segments"]
        end = {SHARD: taken["end"]}
        live = spark.submit("export.py", f"--cluster=http://{NAME}", f"--shard={SHARD}",
                            f"--to={json.dumps(end)}", "--out=file:///snapshots/live")  # fmt: skip
        rows, live_rows = rows_of(spark.shared / "parquet"), rows_of(spark.shared / "live")
        it.prove("records read live", 0, lambda: len(live_rows))

        def same_as_acknowledged(history: History) -> None:
            below = [each for each in history.log if each.offset < taken["end"]]
            assert rows == live_rows == below
            assert len(rows) == taken["records"]

        it.compare(same_as_acknowledged)

        with s3_in(release, CLAIM, spark.shared) as bucket:
            earlier = in_s3(release, bucket)
            newest = spark.snapshot(SHARD, SEGMENT_BYTES, bucket, SECRET_NAME)
            assert newest["records"] >= earlier["records"] >= taken["records"]
            profiled = spark.submit("shard_profile.py", f"--snapshots={bucket}", f"--shard={SHARD}",
                                    secret=SECRET_NAME, keys=CREDENTIALS)  # fmt: skip
        it.prove("tasks of the profile", "none", lambda: in_parallel(profiled))
        assert f"{newest['records']:,}" in table_of(profiled.said)["records"]
        took = [f"{each.took_s:.0f}" for each in (exported, live, profiled)]
        it.prove("seconds of the jobs", 0, lambda: " + ".join(took))
    release.until(lambda: is_unused(release), "something of Spark stays")


def in_s3(release: Release, bucket: str) -> Json:
    """The status of a ShardSnapshot that a Job has taken there."""
    done = release.plugin("snapshot", "create", SHARD, bucket, "--secret", SECRET_NAME,
                          "--name", "stored", "-o", "json", "--timeout", "240")  # fmt: skip
    assert done.returncode == 0, done.stderr
    gone = release.plugin("snapshot", "delete", "stored")
    assert gone.returncode == 0, gone.stderr
    return json.loads(done.stdout)["status"]


def in_parallel(ran: Ran) -> str:
    """Two executors, each on a machine of its own, worked at the same time."""
    tasks = ran.tasks_by_executor()
    assert len(set(ran.machines.values())) == EXECUTORS, ran.machines
    assert ran.machines.keys() == tasks.keys(), ran
    assert ran.at_once(), ran.tasks
    return ", ".join(f"{tasks[each]} on {ran.machines[each]}" for each in sorted(tasks))


def rows_of(directory: Path) -> list[Standing]:
    """What was exported, by offset; a record that is there twice is there twice."""
    assert (directory / "_SUCCESS").exists()
    table = pyarrow.parquet.read_table(directory, columns=["offset", "value"])
    pairs = zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
    return sorted(standing_of(offset, value) for offset, value in pairs)


def table_of(said: str) -> dict[str, str]:
    """The lines of a profile, by the name that each begins with."""
    lines = [line.strip().partition("  ") for line in said.splitlines()]
    return {name: value.strip() for name, _, value in lines}
