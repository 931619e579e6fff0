"""The jobs, on what a cluster left that lost its leader and was scaled, and on planted damage."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyspark
import pytest
from click.testing import CliRunner
from local.commands import LocalCluster
from pyarrow import parquet
from pyspark.sql import SparkSession
from snapshots.s3 import BUCKET, s3_endpoint

from shardlog.cli.main import main
from shardlog.cli.spark import JOBS as SPARK_JOBS
from shardlog.client.blocking import Client
from shardlog.client.records import Record
from shardlog_spark import audit_job, compact_job, export_job, profile_job, sessionize_job
from spark.made_snapshots import Made
from spark.sessions import SHORT_LIVED

pytestmark = [pytest.mark.needs("java"), pytest.mark.xdist_group("spark")]
EVENTS = "events"
DAY_MS = 86_400_000
BEGUN_MS = 20_000 * DAY_MS
KEYS = 4
"""Squares leave so many remainders."""
SEGMENT_BYTES = 65_536
JOBS = Path(__file__).parents[2] / "spark-jobs" / "jobs"

Job = Callable[[Sequence[str]], int]


def _is_led_by_another(old: str, found: Any) -> bool:
    return found["leader"] not in (None, old)


@pytest.fixture(scope="module")
def lived(cluster: LocalCluster, url: str) -> list[Record]:
    """All that is in a shard whose leader was killed, and that was scaled down and up again."""
    cluster.run(f"shard create {EVENTS}")
    with Client(url) as client, client.producer(EVENTS, batch_bytes=4096) as producer:
        for part in range(2):
            for number in range(500):
                key = b"user %d" % (number * number % 7)
                ms = BEGUN_MS + part * DAY_MS + number * 60_000
                producer.append(b"%d.%d" % (part, number) + bytes(number), key, timestamp_ms=ms)
            producer.append(b"without a key")
            if part == 0:
                leader = cluster.shard(EVENTS)["leader"]
                cluster.run(f"local kill {leader}")
                cluster.until(EVENTS, partial(_is_led_by_another, leader))
                cluster.run("local up")
                cluster.run(f"shard scale {EVENTS} --replicas 2")
        producer.flush()
        cluster.run(f"shard scale {EVENTS} --replicas 3")
        found = cluster.shard(EVENTS)
        other = next(name for name in found["ensemble"] if name != found["leader"])
        cluster.run(f"ops promote {EVENTS} {other}")  # an epoch without records
        return list(client.read(EVENTS))


@pytest.fixture(scope="module")
def kept(
    cluster: LocalCluster, lived: list[Record], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A snapshot of it, and one of each node."""
    top = tmp_path_factory.mktemp("lived") / "snapshots"
    for node in ("", *(f" --node node-{number}" for number in (1, 2, 3))):
        cluster.run(f"snapshot create {EVENTS} file://{top} --segment-bytes {SEGMENT_BYTES}{node}")
    return top


def arguments(top: Path, *more: object, shard: str = EVENTS) -> list[str]:
    return ["--snapshots", f"file://{top}", "--shard", shard, *map(str, more)]


def spoilt(kept: Path, tmp_path: Path, spoil: Callable[[Path], None]) -> tuple[Path, Any]:
    """A copy, with one segment changed; and what its manifest says of that."""
    top = tmp_path / "snapshots"
    shutil.copytree(kept, top)
    manifest = json.loads(min((top / EVENTS / "snapshots").iterdir()).read_text())
    segment = manifest["segments"][1]
    spoil(top / EVENTS / "segments" / segment["name"])
    return top, segment


def flip(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[3000] ^= 4
    path.write_bytes(whole)


def test_export_by_day_and_shard(
    spark: SparkSession, kept: Path, lived: list[Record], tmp_path: Path
):
    out = tmp_path / "out"
    assert export_job.main(arguments(kept, "--out", out)) == 0
    assert (out / "_SUCCESS").exists()
    day = f"{datetime.fromtimestamp(BEGUN_MS / 1000, UTC):%Y-%m-%d}"
    assert (out / f"day={day}" / f"shard={EVENTS}").is_dir()
    rows = spark.read.parquet(str(out)).select("offset", "value").collect()
    assert sorted((row["offset"], bytes(row["value"])) for row in rows) == [
        (each.offset, each.value) for each in lived
    ]


@pytest.mark.parametrize("job", [export_job.main, compact_job.main, sessionize_job.main])
def test_what_is_missing_is_one_line_and_leaves_nothing(
    spark: SparkSession, kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], job: Job
):
    out = tmp_path / "out"
    assert job(arguments(kept, "--out", out, shard="none")) == 9
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"there is no snapshot of none in file://{kept}")
    assert not out.exists()
    top, segment = spoilt(kept, tmp_path, Path.unlink)
    assert job(arguments(top, "--out", out)) == 7
    (line,) = capsys.readouterr().err.splitlines()
    assert segment["name"] in line
    assert line.endswith("it is missing")
    assert not out.exists()


def test_replicas_that_agree(spark: SparkSession, kept: Path, capsys: pytest.CaptureFixture[str]):
    assert audit_job.main(arguments(kept)) == 0
    told = capsys.readouterr().out
    assert f"{EVENTS}: 3 replicas" in told
    assert "same chain, no gap, no request twice" in told


def test_planted_damage_is_found_and_placed(
    spark: SparkSession, kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    top, segment = spoilt(kept, tmp_path, flip)
    assert audit_job.main(arguments(top)) == 7
    (line,) = [each for each in capsys.readouterr().out.splitlines() if "damaged in" in each]
    assert segment["name"] in line
    assert "node-1" in line
    offset = int(line.partition("at offset ")[2].split(":")[0])
    assert segment["first"] <= offset < segment["end"]


def test_replicas_that_do_not_agree(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """One has another entry at offset 4, one a request twice, one lost an entry for good."""
    place = f"file://{tmp_path}"
    same = [b"same"] * 4
    Made("x").append(1, same).append(2, [b"a"] * 2).lose(3, 2).put(place, "1", "node-1")
    Made("x").append(1, same).append(2, [b"b"] * 2).put(place, "2", "node-2")
    Made("x").append(1, same).append(1, [b"a"] * 2).put(place, "3", "node-3")
    assert audit_job.main(["--snapshots", place, "--shard", "x"]) == 7
    told = capsys.readouterr().out
    assert "at offset 4 the replicas differ: node-1, node-2, node-3 have 3 different" in told
    assert (
        "request 1 of session 1 is there 2 times in the copy of node-3, first at offset 0" in told
    )
    assert "at offset 0 the" not in told
    assert "offsets [6, 8) were given up, in the copies of node-1" in told


def test_profile_as_a_table_and_as_a_page(
    spark: SparkSession,
    kept: Path,
    lived: list[Record],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    html = tmp_path / "profile.html"
    assert profile_job.main(arguments(kept, "--html", html)) == 0
    told = capsys.readouterr().out
    assert f"{len(lived):,}" in told
    assert f"{KEYS}; 2 records without" in told
    page = html.read_text()
    assert page.count("<svg") == 6
    assert f"Profile of {EVENTS}" in page
    epochs = [line.split() for line in told.partition("epoch ")[2].splitlines()[1:-1]]
    newest = max((kept / EVENTS / "snapshots").iterdir(), key=_is_led)
    history = json.loads(newest.read_text())["history"]
    assert [int(each[0]) for each in epochs] == [each["epoch"] for each in history]
    assert len([each for each in epochs if each[2] != "0"]) >= 2  # the leader was killed
    assert epochs[-1][2:] == ["0", "no", "records"]
    assert f'<td>{epochs[-1][0]}</td><td class="number">{history[-1]["first"]:,}</td>' in page


def _is_led(manifest: Path) -> bool:
    return json.loads(manifest.read_text())["node"] is None


def test_compact_leaves_the_latest_of_each_key(
    spark: SparkSession, kept: Path, lived: list[Record], tmp_path: Path
):
    out = tmp_path / "out"
    assert compact_job.main(arguments(kept, "--out", out)) == 0
    rows = spark.read.parquet(str(out)).collect()
    latest = {each.key: (each.offset, each.value) for each in lived if each.key is not None}
    assert {bytes(row["key"]): (row["offset"], bytes(row["value"])) for row in rows} == latest
    assert len(rows) == len(latest)


def test_sessions_of_a_snapshot_and_of_a_stream(
    spark: SparkSession,
    kept: Path,
    url: str,
    lived: list[Record],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    gap = ("--gap", "2 hours", "--late", "3 hours")
    out = tmp_path / "out"
    assert sessionize_job.main(arguments(kept, "--out", out, *gap)) == 0
    keyed = [each for each in lived if each.key is not None]
    assert f"of {len(keyed)} records, {len(keyed)} of them late" in capsys.readouterr().out
    rows = spark.read.parquet(str(out)).collect()
    found = {(bytes(row["key"]), row["start"]): row["records"] for row in rows}
    wanted = sessions(keyed, 7_200_000)
    assert found == wanted
    live = ["--cluster", url, "--shard", EVENTS, "--out", str(tmp_path / "stream"), *gap]
    live += ["--checkpoint", str(tmp_path / "checkpoint"), "--once"]
    assert sessionize_job.main(live) == 0
    rows = spark.read.parquet(str(tmp_path / "stream")).collect()
    streamed = {(bytes(row["key"]), row["start"]): row["records"] for row in rows}
    day = datetime.fromtimestamp((BEGUN_MS + DAY_MS) / 1000, UTC).replace(tzinfo=None)
    closed = {each: count for each, count in wanted.items() if each[1] < day}
    assert closed.items() <= streamed.items() <= wanted.items()


def test_what_comes_too_late_is_dropped_from_a_stream(
    spark: SparkSession, cluster: LocalCluster, url: str, tmp_path: Path
):
    cluster.run("shard create belated --replicas 1")
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    line = ["--cluster", url, "--shard", "belated", "--gap", "10 minutes", "--late", "1 hour"]
    line += ["--out", str(out), "--checkpoint", str(checkpoint), "--once"]
    hour = DAY_MS // 24
    with Client(url) as client:
        for times in ((0, DAY_MS), (2 * hour, DAY_MS - hour // 2, 3 * DAY_MS)):
            with client.producer("belated") as producer:
                for ms in times:
                    producer.append(b"x", b"key", timestamp_ms=BEGUN_MS + ms)
            assert sessionize_job.main(line) == 0
    rows = spark.read.parquet(str(out)).select("start", "records").collect()
    began = datetime.fromtimestamp(BEGUN_MS / 1000, UTC).replace(tzinfo=None)
    found = {(row["start"] - began).total_seconds() * 1000: row["records"] for row in rows}
    assert found == {0: 1, DAY_MS - hour // 2: 1, DAY_MS: 1}


@pytest.mark.needs("go")
def test_a_job_by_spark_submit_from_s3(
    cluster: LocalCluster,
    lived: list[Record],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """A Spark of its own: what its processes need comes from the environment."""
    out = tmp_path / "out"
    with s3_endpoint(tmp_path / "s3") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
        place = f"s3://{BUCKET}/snapshots"
        cluster.run(f"snapshot create {EVENTS} {place}")
        submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        result = subprocess.run(
            [submit, "--master", "local[1]", "--conf", "spark.ui.enabled=false",
             "--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.driver.memory=1g",
             "--conf", "spark.sql.shuffle.partitions=2", "--driver-java-options", SHORT_LIVED,
             JOBS / "compact.py", "--snapshots", place, "--shard", EVENTS, "--out", out],
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert f"compacted to {out}" in result.stdout
    assert (out / "_SUCCESS").exists()
    assert list(out.glob(f"shard={EVENTS}/*.parquet"))


def test_B15_times_in_parquet_are_microseconds(kept: Path, tmp_path: Path):
    """In a Spark of its own: INT96, Spark's default, is refused by others."""
    out = tmp_path / "out"
    subprocess.run(
        [sys.executable, JOBS / "export.py", *arguments(kept, "--out", out)],
        check=True, timeout=300,
    )  # fmt: skip
    files = list(out.rglob("*.parquet"))
    assert files
    for file in files:
        schema = parquet.read_metadata(file).schema
        column = schema.column(schema.names.index("timestamp"))
        assert (column.physical_type, column.logical_type.type) == ("INT64", "TIMESTAMP")
        assert json.loads(column.logical_type.to_json())["timeUnit"] == "microseconds"


def test_B18_each_shard_has_buckets_of_its_own_width(spark: SparkSession):
    """A shard of a minute beside one of a year; a record without a date is not late."""
    columns = (
        "shard string, offset long, epoch long, key binary, value binary, "
        "appended timestamp, timestamp timestamp"
    )
    rows = [
        (shard, number, 1, None, b"x", datetime.fromtimestamp(number * step_s, UTC), None)
        for shard, step_s in (("minute", 1), ("year", 6 * 86_400))
        for number in range(60)
    ]
    found = profile_job.profiles(profile_job.facts_of(spark.createDataFrame(rows, columns)), {})
    assert [each.shard for each in found] == ["minute", "year"]
    assert [len(each.buckets) for each in found] == [60, 60]
    assert found[0].width_ms == 1000
    assert found[0].late_ms[-1] == 0


def sessions(records: Sequence[Record], gap_ms: int) -> dict[tuple[bytes, datetime], int]:
    """What `sessionize` should find, in plain Python."""
    found: dict[tuple[bytes, datetime], int] = {}
    latest: dict[bytes, tuple[int, datetime]] = {}
    for each in sorted(records, key=lambda it: it.timestamp_ms):
        assert each.key is not None
        before = latest.get(each.key)
        if before is None or each.timestamp_ms >= before[0] + gap_ms:
            start = datetime.fromtimestamp(each.timestamp_ms / 1000, UTC).replace(tzinfo=None)
        else:
            start = before[1]
        latest[each.key] = (each.timestamp_ms, start)
        found[each.key, start] = found.get((each.key, start), 0) + 1
    return found


@pytest.mark.parametrize("script", sorted(JOBS.glob("*.py")), ids=lambda path: path.stem)
def test_each_job_is_a_script_and_a_command(script: Path):
    name = script.stem.removeprefix("shard_")
    assert name in SPARK_JOBS
    told = subprocess.run(
        [sys.executable, script, "--help"],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    assert f"usage: {name}" in told
    assert "--shard" in told
    result = CliRunner().invoke(main, ["spark", name, "--help"])
    assert result.exit_code == 0
    assert result.output == told


def test_the_jobs_are_listed():
    for line in (["spark", "--help"], ["spark"]):
        told = CliRunner().invoke(main, line).output
        assert all(name in told and about in told for name, about in SPARK_JOBS.items())
    assert CliRunner().invoke(main, ["spark", "--help"]).exit_code == 0


def test_what_a_job_cannot_do_is_told(
    spark: SparkSession,
    kept: Path,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    assert export_job.main(arguments(kept, "--out", tmp_path / "there")) == 9
    assert capsys.readouterr().err == f"export: {tmp_path}/there exists, and is no export\n"
    assert export_job.main(arguments(kept, "--out", tmp_path / "x", "--columns", "colour")) == 2
    assert "'columns' is 'colour,shard,timestamp,appended'" in capsys.readouterr().err
    assert sessionize_job.main(arguments(kept, "--out", "x", "--checkpoint", "y")) == 2
    assert "a snapshot never changes" in capsys.readouterr().err
    assert audit_job.main(arguments(kept, shard="none")) == 9
    assert "there is no snapshot of a node of none" in capsys.readouterr().err
    assert profile_job.main(arguments(kept, "--html", tmp_path / "no" / "x.html")) == 9
    capsys.readouterr()

    def told(job: Job, line: Sequence[str], status: int) -> str:
        assert job(line) == status
        (found,) = capsys.readouterr().err.splitlines()
        return found

    for option, given in (("--gap", "soon"), ("--late", "later")):
        line = arguments(kept, "--out", "x", option, given)
        assert f"{option} is '{given}': a duration" in told(sessionize_job.main, line, 2)
    for scheme in ("s3", "s3a", "foo"):
        out = f"{scheme}://bucket/x"
        line = arguments(kept, "--out", out)
        assert f"Spark cannot write to {out}: " in told(export_job.main, line, 2)
    backwards = ("--from", json.dumps({EVENTS: 500}), "--to", json.dumps({EVENTS: 100}))
    line = arguments(kept, "--out", "x", *backwards)
    assert "from offset 500 to 100" in told(export_job.main, line, 2)
    silent = ["--cluster", "shardlog://127.0.0.1:1", "--timeout", "0.3", "--shard", EVENTS]
    line = [*silent, "--out", "x"]
    assert "finding the beginning of 'events' was not done" in told(export_job.main, line, 8)
    stream = ["--out", "x", "--checkpoint", "y", "--once"]
    told(sessionize_job.main, [*silent, *stream], 8)
    unknown = ["--cluster", url, "--shard", "nosuch", *stream]
    assert "there is no shard 'nosuch'" in told(sessionize_job.main, unknown, 9)
    assert [each.name for each in tmp_path.iterdir()] == ["there"]
