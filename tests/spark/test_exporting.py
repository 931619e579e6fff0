"""`export` runs again and again: what it publishes is what came, once, whatever was killed."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from local.commands import LocalCluster
from pyspark.sql import SparkSession

from shardlog.client.blocking import Client
from shardlog_spark import export_job
from shardlog_spark.export_book import Book

pytestmark = [pytest.mark.needs("java"), pytest.mark.xdist_group("spark")]
RUNS = 10
STEPS = 7
"""A run of one file changes so many names or less."""


class Killed(BaseException):
    """The driver ends here."""


class Clock:
    """Kills whoever changes the name of a file for the `left`th time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        rename = Book._rename

        def counted(book: Book, old: str, new: str) -> None:
            if self.left == 0:
                raise Killed
            if self.left is not None:
                self.left -= 1
            rename(book, old, new)

        monkeypatch.setattr(Book, "_rename", counted)


def rows_of(spark: SparkSession, out: Path) -> list[tuple[str, int, bytes]]:
    rows = spark.read.parquet(str(out)).select("shard", "offset", "value").collect()
    return sorted((row["shard"], row["offset"], bytes(row["value"])) for row in rows)


def test_ten_runs_beside_a_writer_with_kills(
    spark: SparkSession,
    cluster: LocalCluster,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    shards = ("piped", "piped-2")
    for name in shards:
        cluster.run(f"shard create {name} --replicas 1")
    out, html = tmp_path / "out", tmp_path / "page.html"
    line = ["--cluster", url, "--shard", ",".join(shards), "--out", str(out), "--html", str(html)]
    rng, clock, killed = Random(1), Clock(monkeypatch), 0
    with Client(url) as client, client.producer("piped") as one, client.producer(shards[1]) as two:
        for number in range(RUNS):
            one.append_many([b"%d.%d" % (number, each) for each in range(50)])
            two.append(b"%d" % number, timestamp_ms=86_400_000 * number)
            two.flush()
            clock.left = rng.randrange(STEPS) if number % 2 else None
            one.append_many([b"beside %d" % number] * 50)  # while it reads
            try:
                assert export_job.main(line) == 0
            except Killed:
                killed += 1
            if (out / "_SUCCESS").exists() and killed == 0:
                assert rows_of(spark, out)
    clock.left = None
    assert export_job.main([*line, "--compact", "3"]) == 0
    assert killed >= 3
    with Client(url) as client:
        wanted = sorted((name, it.offset, it.value) for name in shards for it in client.read(name))
    assert rows_of(spark, out) == wanted
    told = capsys.readouterr().out.splitlines()
    assert f"{len(wanted):,} rows" in told[-3]
    assert html.read_text().count("<svg") == 4
    assert not (out / "_shardlog" / "staging").exists()
    runs: list[dict[str, Any]] = [
        json.loads(each.read_text()) for each in sorted((out / "_shardlog").glob("*.json"))
    ]
    for before, after in pairwise(runs):
        assert {shard: end["offset"] for shard, end in before["ends"].items()} == after["starts"]
    assert export_job.main(line) == 0  # nothing is new
    assert len(list((out / "_shardlog").glob("*.json"))) == len(runs)
    assert rows_of(spark, out) == wanted


def test_what_does_not_fit_goes_to_another_table(
    spark: SparkSession, cluster: LocalCluster, url: str, tmp_path: Path
):
    cluster.run("shard create parsed --replicas 1")
    values = [b'{"id": 1, "name": "a"}', b'{"id": "x"}', b"no JSON", b'{"name": "b"}', b"\xff"]
    cluster.append("parsed", values)
    out = tmp_path / "out"
    line = ["--cluster", url, "--shard", "parsed", "--out", str(out)]
    assert export_job.main([*line, "--json", "id bigint, name string"]) == 0
    rows = spark.read.parquet(str(out)).selectExpr("data.id", "data.name").collect()
    assert sorted(map(tuple, rows), key=str) == [(1, "a"), (None, "b")]
    rejects = spark.read.parquet(str(out / "_rejects")).select("value").collect()
    assert sorted(bytes(row["value"]) for row in rejects) == sorted(
        [values[1], values[2], values[4]]
    )
    book = Book(spark, str(out)).runs()
    assert (book[0].rows, book[0].rejects) == ({"parsed": 2}, {"parsed": 3})
    cluster.run("shard delete parsed --yes")
    cluster.run("shard create parsed --replicas 1")
    cluster.append("parsed", values * 2)
    assert export_job.main(line) == 9  # another shard under the same name
