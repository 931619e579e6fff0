"""`audit`: whether the replicas of a shard hold the same log.

It compares snapshots that were taken with `--node`, one for each replica.  Every segment is read
and verified, the chain within it, and that it continues the one before; so a gap or a changed byte
is found and placed.  Then the replicas' entries are compared by offset and checksum, and every
request of every session must be there once.  Segments that replicas share are one file, read once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from shardlog.protocol.entry import Kind
from shardlog.snapshots.archive import Archive
from shardlog.snapshots.destination import Destination
from shardlog.snapshots.failures import Damaged
from shardlog.snapshots.manifest import Manifest, SegmentInfo
from shardlog.snapshots.reading import Wanted, read_entries
from shardlog.snapshots.verifying import verify_segment
from shardlog_spark.failures import CannotRead
from shardlog_spark.job import DAMAGED, OK, run

SHOWN = 20
ENTRIES = (
    "segment string, base long, checksum long, session long, request long, damage string, lost long"
)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="audit", description="Compares the newest snapshot of each node of a shard."
    )
    made.add_argument("--snapshots", required=True, metavar="URL", help="where they are")
    made.add_argument("--shard", required=True)
    return made


def newest_of_each(archive: Archive) -> list[Manifest]:
    found: dict[str, Manifest] = {}
    for manifest in archive.manifests():
        if manifest.node is not None:
            found[manifest.node] = manifest
    if not found:
        raise CannotRead(
            f"there is no snapshot of a node of {archive.shard}: shardlog snapshot create --node"
        )
    return [found[node] for node in sorted(found)]


def entries_of(url: str, shard: str, segment: SegmentInfo) -> Iterator[tuple[Any, ...]]:
    """Every entry of a segment, or where it is damaged."""
    archive = Archive(Destination(url), shard)
    try:
        verify_segment(archive, segment)
        for found in read_entries(archive, segment, Wanted()):
            for header, _ in found:
                is_data = header.kind is Kind.DATA
                checksum = header.checksum - (1 << 63)  # a signed number for Spark
                session, request = (header.session, header.request) if is_data else (None, None)
                lost = header.end if header.kind is Kind.LOST else None
                yield (segment.name, header.base, checksum, session, request, None, lost)
    except Damaged as failure:
        at = segment.base if failure.offset is None else failure.offset
        yield (segment.name, at, None, None, None, str(failure), None)


def audit(spark: SparkSession, given: argparse.Namespace) -> int:
    manifests = newest_of_each(Archive(Destination(given.snapshots), given.shard))
    segments = {segment.name: segment for each in manifests for segment in each.segments}
    url, shard = given.snapshots, given.shard
    work = spark.sparkContext.parallelize(list(segments.values()), max(1, len(segments)))
    entries = spark.createDataFrame(
        work.flatMap(lambda segment: entries_of(url, shard, segment)), ENTRIES
    ).cache()
    held = spark.createDataFrame(
        [(each.node, segment.name) for each in manifests for segment in each.segments],
        "node string, segment string",
    )
    count = entries.where("damage is null").count()
    print(f"{shard}: {len(manifests)} replicas, {len(segments)} segments, {count} entries")
    for each in manifests:
        print(f"  {each.node}: [{each.first}, {each.end}), snapshot {each.id}")
    damage = _damage(entries, held)
    found = damage + _apart(entries, held, manifests, not damage) + _twice(entries, held)
    for line in _given_up(entries, held) + found:
        print(line)
    if not found:
        print("same chain, no gap, no request twice")
    return DAMAGED if found else OK


def _given_up(entries: DataFrame, held: DataFrame) -> list[str]:
    """Said by people, so it is no damage; but these records are nowhere."""
    rows = entries.where("lost is not null").join(held, "segment")
    told = rows.groupBy("base", "lost").agg(F.sort_array(F.collect_set("node")).alias("nodes"))
    return [
        f"offsets [{row['base']}, {row['lost']}) were given up, in the copies of "
        f"{', '.join(row['nodes'])}"
        for row in told.orderBy("base").limit(SHOWN).collect()
    ]


def _damage(entries: DataFrame, held: DataFrame) -> list[str]:
    rows = entries.where("damage is not null").join(held, "segment")
    told = rows.groupBy("damage", "base").agg(F.sort_array(F.collect_list("node")).alias("nodes"))
    return [
        f"damaged in the copy of {', '.join(row['nodes'])}: {row['damage']}"
        for row in told.orderBy("base").limit(SHOWN).collect()
    ]


def _apart(
    entries: DataFrame, held: DataFrame, manifests: list[Manifest], is_whole: bool
) -> list[str]:
    """Where two replicas have different entries, in what all of them hold.

    Where something is damaged its entries are missing, and that is told already.
    """
    first = max(each.first for each in manifests)
    end = min(each.end for each in manifests)
    inside = entries.where(F.col("damage").isNull() & F.col("base").between(first, end - 1))
    apart = (
        inside.join(held, "segment")
        .groupBy("base")
        .agg(
            F.collect_set("checksum").alias("checksums"),
            F.sort_array(F.collect_set("node")).alias("nodes"),
        )
        .where((F.size("checksums") > 1) | (F.lit(is_whole) & (F.size("nodes") < len(manifests))))
        .orderBy("base")
    )
    rows: list[Row] = apart.limit(SHOWN).collect()
    return [
        f"at offset {row['base']} the replicas differ: {', '.join(row['nodes'])} have "
        f"{len(row['checksums'])} different entries"
        for row in rows
    ]


def _twice(entries: DataFrame, held: DataFrame) -> list[str]:
    rows = (
        entries.where("session is not null and session <> 0")
        .join(held, "segment")
        .groupBy("node", "session", "request")
        .agg(F.count("*").alias("times"), F.min("base").alias("base"))
        .where("times > 1")
        .orderBy("base", "node")
        .limit(SHOWN)
        .collect()
    )
    return [
        f"request {row['request']} of session {row['session']} is there {row['times']} times in "
        f"the copy of {row['node']}, first at offset {row['base']}"
        for row in rows
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    return run("audit", parser(), audit, sys.argv[1:] if arguments is None else arguments)
