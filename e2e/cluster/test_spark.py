"""Spark on Kubernetes: executors on two machines read a snapshot of a shard that is written to."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet
from faults.history import History, Standing, standing_of

from e2e.cluster.scenario import Scenarios
from e2e.cluster.spark import EXECUTORS, Ran, is_unused, spark_in

SHARD = "analysed"
FIRST = 20_000
"""So many records of each producer at once: a log of several segments."""
SEGMENT_BYTES = 256 << 10


def test_executors_read_a_snapshot_in_parallel(scenarios: Scenarios):
    """A Job whose pod is the driver exports it, and what `spark-submit` starts profiles it."""
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
        rows = rows_of(spark.shared / "parquet")

        def same_as_acknowledged(history: History) -> None:
            below = [each for each in history.log if each.offset < taken["end"]]
            assert rows == below
            assert len(rows) == taken["records"]

        it.compare(same_as_acknowledged)

        profiled = spark.submit(
            "shard_profile.py", "--snapshots=file:///snapshots", f"--shard={SHARD}"
        )
        it.prove("tasks of the profile", "none", lambda: in_parallel(profiled))
        assert f"{taken['records']:,}" in table_of(profiled.said)["records"]
        it.prove(
            "seconds of both jobs", 0, lambda: f"{exported.took_s:.0f} + {profiled.took_s:.0f}"
        )
    release.until(lambda: is_unused(release), "something of Spark stays")


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
