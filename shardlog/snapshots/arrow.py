"""Snapshots as Arrow, for whatever reads Arrow: DuckDB, Polars, pandas, PyArrow.

    scan = scan_snapshot("s3://backups/prod", "orders", columns=("offset", "value"))
    duckdb.sql("SELECT count(*) FROM scan")

A scan holds a few MiB at a time, and verifies every entry against the chain as it comes by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from shardlog.client.batching import TIMESTAMP_MS_MAX, TIMESTAMP_MS_MIN
from shardlog.protocol.entry import Header, Kind
from shardlog.snapshots.archive import Archive
from shardlog.snapshots.arrow_columns import (
    COLUMNS,
    TIMESTAMP,
    TYPES,
    Packer,
    arrow_schema,
    plain_bytes,
    record_batch,
)
from shardlog.snapshots.destination import Destination
from shardlog.snapshots.failures import Damaged, NotPossible, RecordsLost
from shardlog.snapshots.manifest import Manifest
from shardlog.snapshots.reading import Wanted, given_up, read_entries
from shardlog.transport.compression import CompressionMissing
from shardlog.transport.failures import MalformedBatch

Entries = Iterable[tuple[Header, memoryview]]
Keep = Callable[[Header, pa.RecordBatch], pa.RecordBatch]


def record_batches(
    entries: Entries, shard: str, schema: pa.Schema, start: int, end: int, keep: Keep
) -> Iterator[pa.RecordBatch]:
    """Records of data entries with offsets in `[start, end)`, many at a time.

    `keep` gets the rows of each entry, and leaves those that are wanted.  `Damaged` if an entry is
    no batch, and `NotPossible` if a library is missing that decompresses it.
    """
    packer = Packer(schema)
    for header, body in entries:
        if header.kind is not Kind.DATA or header.base >= end or header.end <= start:
            continue
        try:
            rows = record_batch(header, body, shard, schema)
        except MalformedBatch as failure:
            raise Damaged(repr(shard), str(failure), header.base) from failure
        except CompressionMissing as failure:
            raise NotPossible(f"{shard!r} at offset {header.base}: {failure}") from failure
        skip = max(0, start - header.base)
        rows = keep(header, rows.slice(skip, min(header.count, end - header.base) - skip))
        if rows.num_rows:
            yield from packer.add(rows, plain_bytes(body))
    yield from packer.flush()


def times_within(
    rows: pa.RecordBatch, earliest_ms: int | None, latest_ms: int | None
) -> pa.RecordBatch:
    """The rows whose `timestamp` is in `[earliest_ms, latest_ms]`; None is without a bound."""
    for bound_ms, compare in ((earliest_ms, pc.greater_equal), (latest_ms, pc.less_equal)):
        if bound_ms is not None:
            rows = rows.filter(compare(rows.column("timestamp"), _instant(bound_ms)))
    return rows


def _instant(ms: int) -> pa.Scalar:
    ms = min(max(ms, TIMESTAMP_MS_MIN), TIMESTAMP_MS_MAX)
    return pa.scalar(ms * 1000, pa.int64()).cast(TIMESTAMP)


@dataclass(frozen=True)
class SnapshotScan:
    """Records of one shard's snapshot, read anew each time that somebody asks for them.

    The snapshot is the newest of what led, if none is named, as of the first time it is asked for.
    Offsets are in `[start, end)`, and records' own times in `[earliest_ms, latest_ms]`; None is
    without a bound.
    """

    archive: Archive
    snapshot: str | None
    columns: tuple[str, ...]
    start: int
    end: int | None
    earliest_ms: int | None
    latest_ms: int | None
    skip_lost: bool

    @property
    def schema(self) -> pa.Schema:
        return arrow_schema(self.columns)

    @cached_property
    def manifest(self) -> Manifest:
        archive = self.archive
        return archive.newest() if self.snapshot is None else archive.manifest(self.snapshot)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """In the order of the log.

        `Damaged` if what is read is not what was written, and `RecordsLost` if records were given
        up in what is read, unless `skip_lost`.
        """
        wanted = Wanted(self.start, self.end, self.earliest_ms, self.latest_ms)
        segments = [each for each in self.manifest.segments if wanted.segment(each)]
        if not self.skip_lost:
            for lost in given_up(self.archive, segments, Wanted(self.start, self.end)):
                raise RecordsLost(f"offsets {lost} of {self.archive.shard!r} were given up")
        has_times = self.earliest_ms is not None or self.latest_ms is not None
        hidden = ("timestamp",) if has_times and "timestamp" not in self.columns else ()
        schema = arrow_schema((*self.columns, *hidden))
        entries = (
            entry
            for segment in segments
            for found in read_entries(self.archive, segment, wanted)
            for entry in found
        )
        end = self.manifest.end if self.end is None else self.end
        for rows in record_batches(
            entries, self.archive.shard, schema, self.start, end, self._within
        ):
            yield rows.select(list(self.columns)) if hidden else rows

    def _within(self, _: Header, rows: pa.RecordBatch) -> pa.RecordBatch:
        return times_within(rows, self.earliest_ms, self.latest_ms)

    def reader(self) -> pa.RecordBatchReader:
        """The batches, as PyArrow passes them on."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """What other libraries take Arrow by."""
        return self.reader().__arrow_c_stream__(requested_schema)


def scan_snapshot(
    url: str,
    shard: str,
    *,
    snapshot: str | None = None,
    columns: Sequence[str] = COLUMNS,
    start: int = 0,
    end: int | None = None,
    earliest_ms: int | None = None,
    latest_ms: int | None = None,
    skip_lost: bool = False,
) -> SnapshotScan:
    """What to read; nothing is read yet.  `NotPossible` if there is no such column."""
    for name in columns:
        if name not in TYPES:
            raise NotPossible(f"there is no column {name!r}: {', '.join(TYPES)}")
    return SnapshotScan(
        Archive(Destination(url), shard), snapshot, tuple(columns), start, end, earliest_ms,
        latest_ms, skip_lost,
    )  # fmt: skip
