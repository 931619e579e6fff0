"""The jobs, on what a cluster left behind, and on what was spoilt on purpose."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from local.commands import LocalCluster
from pyspark.sql import SparkSession

from shardlog.client.blocking import Client
from shardlog_spark import audit_job, export_job
from spark.conftest import SHARD

pytestmark = [pytest.mark.needs("java"), pytest.mark.xdist_group("spark")]


def test_export_by_day_and_shard(spark: SparkSession, place: str, url: str, tmp_path: Path):
    out = tmp_path / "out"
    arguments = ["--snapshots", place, "--shard", SHARD, "--out", str(out)]
    assert export_job.main(arguments) == 0
    assert (out / "_SUCCESS").exists()
    assert (out / "day=1970-01-01" / f"shard={SHARD}").is_dir()
    with Client(url) as client:
        wanted = [(each.offset, each.value) for each in client.read(SHARD)]
    rows = spark.read.parquet(str(out)).select("offset", "value").collect()
    assert sorted((row["offset"], bytes(row["value"])) for row in rows) == wanted


def test_export_of_nothing_is_one_line(
    spark: SparkSession, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    arguments = ["--snapshots", place, "--shard", "none", "--out", str(tmp_path / "out")]
    assert export_job.main(arguments) == 8
    told = capsys.readouterr().err.splitlines()
    assert told == [f"export: there is no snapshot of none in {place}"]
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def replicas(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of each node, after a change of leader."""
    top = tmp_path_factory.mktemp("replicas") / "snapshots"
    leader = cluster.shard(SHARD)["leader"]
    other = next(each for each in cluster.shard(SHARD)["ensemble"] if each != leader)
    cluster.run(f"ops promote {SHARD} {other}")
    cluster.append(SHARD, [b"after"] * 10)
    for number in (1, 2, 3):
        cluster.run(
            f"snapshot create {SHARD} file://{top} --node node-{number} --segment-bytes 65536"
        )
    return top


def audit(top: Path) -> int:
    return audit_job.main(["--snapshots", f"file://{top}", "--shard", SHARD])


def test_replicas_that_agree(
    spark: SparkSession, replicas: Path, capsys: pytest.CaptureFixture[str]
):
    assert audit(replicas) == 0
    told = capsys.readouterr().out
    assert f"{SHARD}: 3 replicas" in told
    assert "same chain, no gap, no request twice" in told


def test_planted_damage_is_found_and_placed(
    spark: SparkSession, replicas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    top = tmp_path / "snapshots"
    shutil.copytree(replicas, top)
    manifest = json.loads(sorted((top / SHARD / "snapshots").iterdir())[0].read_text())
    segment = manifest["segments"][1]
    path = top / SHARD / "segments" / segment["name"]
    whole = bytearray(path.read_bytes())
    whole[3000] ^= 4
    path.write_bytes(whole)
    assert audit(top) == 7
    (line,) = [each for each in capsys.readouterr().out.splitlines() if "damaged in" in each]
    assert segment["name"] in line
    assert "node-1" in line
    offset = int(line.partition("at offset ")[2].split(":")[0])
    assert segment["first"] <= offset < segment["end"]
