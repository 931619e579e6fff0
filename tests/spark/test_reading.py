"""What Spark reads is what the log holds, from a snapshot and live; what it says if it cannot."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.readwriter import DataFrameReader

from shardlog.client.blocking import Client
from shardlog.client.records import Record
from spark.conftest import SHARD

pytestmark = [pytest.mark.needs("java"), pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def records(url: str) -> list[Record]:
    with Client(url) as client:
        return list(client.read(SHARD))


@pytest.fixture(params=["snapshot", "live"])
def read(request: pytest.FixtureRequest, spark: SparkSession, place: str, url: str) -> Any:
    """A reader with options, to be loaded."""

    def made(**options: object) -> DataFrame:
        reader = shardlog(spark).options(**{name: str(it) for name, it in options.items()})
        if request.param == "snapshot":
            return reader.load(place)
        return reader.option("shardlog.bootstrap.servers", url).load()

    return made


Read = Callable[..., DataFrame]


def shardlog(spark: SparkSession) -> DataFrameReader:
    return spark.read.format("shardlog").option("subscribe", SHARD)


def as_record(row: Row) -> Record:
    headers = tuple((each["key"], bytes(each["value"])) for each in row["headers"] or ())
    ms = round(row["timestamp"].replace(tzinfo=UTC).timestamp() * 1000)
    key = None if row["key"] is None else bytes(row["key"])
    return Record(row["offset"], key, bytes(row["value"]), ms, headers)


def told(reading: Callable[[], object]) -> str:
    """The one line that names the thing, out of what Spark makes of it."""
    with pytest.raises(Exception, match=r"shardlog_spark\.failures") as failure:
        reading()
    lines = [line for line in str(failure.value).splitlines() if "shardlog_spark.failures." in line]
    return lines[-1]


def test_every_record_is_there_once(read: Read, records: list[Record]):
    rows = read().orderBy("offset").collect()
    assert [as_record(row) for row in rows] == records
    assert {row["shard"] for row in rows} == {SHARD}
    assert all(row["epoch"] > 0 for row in rows)


def test_some_columns_some_offsets_in_more_parts(read: Read, records: list[Record]):
    found = read(
        columns="offset,value", minPartitions=5, startingOffsets=json.dumps({SHARD: 100}),
        endingOffsets=json.dumps({SHARD: 1000}),
    )  # fmt: skip
    assert found.columns == ["offset", "value"]
    assert found.rdd.getNumPartitions() >= 5
    rows = found.collect()
    wanted = [(each.offset, each.value) for each in records if 100 <= each.offset < 1000]
    assert sorted((row["offset"], bytes(row["value"])) for row in rows) == wanted


def test_filters_are_pushed(read: Read, records: list[Record]):
    offsets = [each.offset for each in records]
    found = read(filterPushdown="true").where("offset >= 500 and offset < 700")
    assert sorted(row["offset"] for row in found.select("offset").collect()) == [
        each for each in offsets if 500 <= each < 700
    ]
    when = datetime.fromtimestamp(2000, UTC)
    early = read(filterPushdown="true").where(f"timestamp <= timestamp '{when:%Y-%m-%d %H:%M:%S}'")
    assert sorted(row["offset"] for row in early.select("offset").collect()) == [
        each.offset for each in records if each.timestamp_ms <= 2_000_000
    ]


def test_nothing_before_a_time(read: Read, records: list[Record]):
    found = read(startingTimestamp=4_000_000_000_000, columns="offset")
    assert found.collect() == []
    assert read(startingTimestamp=0, columns="offset").count() == len(records)


def test_what_cannot_be_read(read: Read):
    beyond = json.dumps({SHARD: 99_999_999})
    assert "offset 99999999 is out of range" in told(lambda: read(endingOffsets=beyond).count())
    assert "'colour'" in told(lambda: read(colour="red"))
    backwards = {
        "startingOffsets": json.dumps({SHARD: 500}),
        "endingOffsets": json.dumps({SHARD: 100}),
    }
    assert "from offset 500 to 100" in told(lambda: read(**backwards).count())
    assert "BadOption" in told(
        lambda: read(startingOffsets="latest", endingOffsets="earliest").count()
    )


def test_what_is_not_there(spark: SparkSession, place: str, url: str, tmp_path: Path):
    source = spark.read.format("shardlog")
    assert "there is no snapshot of none" in told(
        lambda: source.option("subscribe", "none").load(place).count()
    )
    nowhere = f"file://{tmp_path}/nothing"
    assert "there is no such directory" in told(lambda: shardlog(spark).load(nowhere).count())
    live = spark.read.format("shardlog").option("shardlog.bootstrap.servers", url)
    assert "there is no shard 'none'" in told(
        lambda: live.option("subscribe", "none").load().count()
    )
    assert "is not that of shardlog" in told(
        lambda: shardlog(spark).schema("value string").load(place).count()
    )


def test_B8_a_table_of_the_catalog(
    spark: SparkSession, place: str, url: str, records: list[Record]
):
    """Options stand in CREATE TABLE, as for other sources."""
    live = f"`shardlog.bootstrap.servers` '{url}', subscribe '{SHARD}'"
    for given in (live, f"path '{place}', subscribe '{SHARD}'"):
        spark.sql(f"CREATE TABLE logged USING shardlog OPTIONS ({given})")
        try:
            assert spark.sql("SELECT count(*) FROM logged").collect() == [(len(records),)]
            rows = spark.table("logged").where("offset < 10").orderBy("offset").collect()
            assert [as_record(row) for row in rows] == [it for it in records if it.offset < 10]
        finally:
            spark.sql("DROP TABLE logged")
    assert shardlog(spark).load(place).count() == len(records)
