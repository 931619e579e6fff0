"""Snapshots as Arrow, read by DuckDB, Polars, pandas and by SQL on the command line."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner
from client.cluster import SHARD, Story, story
from spark.made_snapshots import MADE_MS, Made

from shardlog.cli.main import main
from shardlog.client import Record
from shardlog.snapshots.arrow import scan_snapshot
from shardlog.snapshots.arrow_columns import BYTES
from shardlog.snapshots.creating import create
from shardlog.snapshots.failures import Damaged, NoSuchSnapshot, NotPossible, RecordsLost
from shardlog.snapshots.reading import READ_BYTES
from snapshots.logs import SEGMENT_BYTES, archive_at, fill, log_of


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Record]]:
    """A snapshot in several segments, and what was in the shard."""
    top = tmp_path_factory.mktemp("arrow")
    found: list[Record] = []

    @story(top / "cluster", names="a")
    async def _(s: Story) -> None:
        await fill(s.client, 60)
        await create(s.client, archive_at(f"file://{top}/s"), segment_bytes=SEGMENT_BYTES)
        found.extend(await log_of(s.client))

    return f"file://{top}/s", found


Place = tuple[str, list[Record]]


def as_record(row: dict[str, Any]) -> Record:
    headers = tuple((each["key"], each["value"]) for each in row["headers"] or ())
    ms = round(row["timestamp"].timestamp() * 1000)
    return Record(row["offset"], row["key"], row["value"], ms, headers)


def test_a_scan_gives_what_the_log_has(place: Place):
    scan = scan_snapshot(place[0], SHARD)
    assert len(scan.manifest.segments) > 2
    rows = scan.reader().read_all()
    assert [as_record(row) for row in rows.to_pylist()] == place[1]
    assert pa.table(scan).equals(rows)  # as often as one likes


def test_ranges_and_columns(place: Place):
    url, records = place
    scan = scan_snapshot(url, SHARD, columns=["value", "offset"], start=101, end=1000)
    assert scan.reader().read_all().to_pylist() == [
        {"value": each.value, "offset": each.offset}
        for each in records
        if 101 <= each.offset < 1000
    ]
    timed = scan_snapshot(url, SHARD, columns=["offset"], earliest_ms=10, latest_ms=19)
    found = timed.reader().read_all()
    assert found.column_names == ["offset"]
    assert found["offset"].to_pylist() == [
        each.offset for each in records if 10 <= each.timestamp_ms <= 19
    ]


def test_duckdb_polars_and_pandas(place: Place):
    url, records = place
    scan = scan_snapshot(url, SHARD, columns=["key", "offset", "value"])
    keyed = sum(each.key is not None for each in records)
    total = sum(len(each.value) for each in records)
    asked = "SELECT count(*), count(key), sum(octet_length(value)) FROM scan"
    for _ in range(2):
        found = duckdb.sql(asked)
        assert found is not None
        assert found.fetchall() == [(len(records), keyed, total)]
    frame = pl.DataFrame(scan)
    assert (frame.height, frame["key"].count()) == (len(records), keyed)
    assert frame.filter(pl.col("offset") >= 100)["offset"].min() == next(
        each.offset for each in records if each.offset >= 100
    )
    table = scan.reader().read_pandas()
    assert isinstance(table, pd.DataFrame)
    assert table["value"].map(len).sum() == total


def test_memory_does_not_grow_with_the_snapshot(tmp_path: Path):
    url = f"file://{tmp_path}"
    made = Made("big")
    for request in range(1, 41):
        made.append(request, [bytes(1 << 20)])
    made.put(url, "one")
    batches = scan_snapshot(url, "big", columns=["value"]).batches()
    tracemalloc.start()
    try:
        before = pa.total_allocated_bytes()
        rows = most = 0
        for each in batches:
            rows += each.num_rows
            most = max(most, pa.total_allocated_bytes() - before)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == 40
    assert peak + most < 4 * (READ_BYTES + BYTES)


def test_what_cannot_be_scanned(place: Place, tmp_path: Path):
    with pytest.raises(NotPossible, match="no column 'colour'"):
        scan_snapshot(place[0], SHARD, columns=["colour"])
    with pytest.raises(NoSuchSnapshot, match="no snapshot of none"):
        scan_snapshot(place[0], "none").reader().read_all()
    url = f"file://{tmp_path}"
    manifest = Made("x").append(1, [b"a"] * 3).lose(2, 4).append(3, [b"b"]).put(url, "one")
    with pytest.raises(RecordsLost, match=r"offsets \[3, 7\) of 'x' were given up"):
        scan_snapshot(url, "x").reader().read_all()
    assert scan_snapshot(url, "x", start=7).reader().read_all().num_rows == 1
    assert scan_snapshot(url, "x", skip_lost=True).reader().read_all().num_rows == 4
    file = tmp_path / "x" / "segments" / manifest.segments[0].name
    whole = bytearray(file.read_bytes())
    whole[150] ^= 1
    file.write_bytes(whole)
    with pytest.raises(Damaged, match=file.name):
        scan_snapshot(url, "x", skip_lost=True).reader().read_all()


def query(url: str, sql: str, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["snapshot", "query", url, sql, *options])
    return result.exit_code, result.output


def test_sql_on_the_command_line(place: Place, tmp_path: Path):
    url, records = place
    sql = f'SELECT count(*) AS n, max("offset") AS last FROM {SHARD}'
    status, told = query(url, sql, "-o", "json")
    assert status == 0
    assert json.loads(told) == {"rows": [{"n": len(records), "last": records[-1].offset}]}
    status, told = query(url, f"SELECT key, value FROM {SHARD} WHERE key IS NOT NULL LIMIT 1")
    assert (status, told.split()) == (0, ["KEY", "VALUE", "key", "0", "with", "all"])
    other = f"file://{tmp_path}"
    Made("a-b").append(1, [b'{"n": 5}']).put(other, "one")
    sql = """SELECT (decode(value)::JSON->>'n')::INT AS n, appended FROM "a-b" """
    status, told = query(other, sql, "--columns", "value,appended", "-o", "json")
    (row,) = json.loads(told)["rows"]
    assert (status, row["n"]) == (0, 5)
    assert row["appended"].startswith("2023-11-1")
    assert MADE_MS


@pytest.mark.parametrize(
    ("sql", "status", "told"),
    [
        ("SELEC 1", 2, "Parser Error"),
        (f"SELECT colour FROM {SHARD}", 2, "colour"),
        ("SELECT 1 FROM none", 9, "there is no snapshot of none"),
    ],
)
def test_what_cannot_be_asked(place: Place, sql: str, status: int, told: str):
    found, output = query(place[0], sql)
    assert (found, len(output.splitlines())) == (status, 1)
    assert told in output


def test_damage_is_told_with_its_file(tmp_path: Path):
    url = f"file://{tmp_path}"
    manifest = Made("x").append(1, [b"a" * 100]).put(url, "one")
    file = tmp_path / "x" / "segments" / manifest.segments[0].name
    whole = bytearray(file.read_bytes())
    whole[180] ^= 1
    file.write_bytes(whole)
    status, told = query(url, "SELECT count(value) FROM x")
    assert status == 7
    assert file.name in told


def test_the_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    status, told = query("file:///x", "SELECT 1")
    assert status == 2
    assert "pip install 'shardlog[query]'" in told
