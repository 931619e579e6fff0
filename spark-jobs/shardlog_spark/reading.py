"""Batch reads, from snapshots or from a cluster.

What to read is decided once, on the driver: the newest snapshot, or where the log ends by a
quorum's word.  Whatever can be wrong with that is found before a task starts.  A task opens its own
connections, and holds a few batches at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from shardlog.protocol.entry import Header, Kind
from shardlog.snapshots.archive import Archive, shards_at
from shardlog.snapshots.arrow import Entries, record_batches, times_within
from shardlog.snapshots.arrow_columns import arrow_schema
from shardlog.snapshots.destination import Destination
from shardlog.snapshots.reading import Wanted, given_up, read_entries
from shardlog_spark import live
from shardlog_spark.failures import BadOption, CannotRead, DataLost, translated
from shardlog_spark.options import EARLIEST, LATEST, Options, place, require_order
from shardlog_spark.ranges import LiveRange, SnapshotRange, live_ranges, snapshot_ranges

if TYPE_CHECKING:
    from shardlog.snapshots.manifest import Manifest

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What filters leave: offsets in `[start, end)`, times in `[earliest, latest]`, some shards."""

    start: int = 0
    end: int | None = None
    earliest_ms: int | None = None
    latest_ms: int | None = None
    shards: frozenset[str] | None = None

    def has_shard(self, shard: str) -> bool:
        return self.shards is None or shard in self.shards


EVERYTHING = Bounds()


class ShardlogReader(DataSourceReader):
    """`bounds` come from filters, if they are pushed here."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        with translated():
            plan = self._live if self.options.is_live else self._snapshot
            shards = filter(self.bounds.has_shard, self._shards())
            return [each for shard in shards for each in plan(shard)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Spark asks for None where there are no partitions."""
        with translated():
            if isinstance(partition, LiveRange):
                found = live.entries(self.options, partition)
                yield from batches(self.options, partition, found, self.bounds)
            elif isinstance(partition, SnapshotRange):
                found = self._snapshot_entries(partition)
                yield from batches(self.options, partition, found, self.bounds)

    # --- planning --------------------------------------------------------------------------------

    def _shards(self) -> tuple[str, ...]:
        options = self.options
        if options.is_live:
            return live.asked(options, partial(live.shards_of, options=options))
        if options.pattern is None or options.path is None:
            return options.shards
        found = options.matching(shards_at(Destination(options.path)))
        if not found:
            raise CannotRead(
                f"there is no snapshot of a shard whose name matches {options.pattern.pattern!r}"
            )
        return found

    def _snapshot(self, shard: str) -> list[SnapshotRange]:
        options = self.options
        archive = archive_of(options, shard)
        manifest = (
            archive.newest() if options.snapshot is None else archive.manifest(options.snapshot)
        )
        start, end = self._within(shard, manifest)
        starting_ms, ending_ms = options.times(shard)
        segments = [
            each
            for each in manifest.segments
            if (starting_ms is None or each.latest_ms >= starting_ms)
            and (ending_ms is None or each.earliest_ms < ending_ms)
        ]
        wanted = self._wanted(start, end)
        segments = [each for each in segments if wanted.segment(each)]
        start, end = max(start, self.bounds.start), _lower(end, self.bounds.end)
        archive.require_segments(segments)
        if options.fail_on_data_loss:
            for lost in given_up(archive, segments, Wanted(start, end)):
                raise lost_for_good(shard, *lost)
        return snapshot_ranges(shard, segments, start, end, options.partitions_min)

    def _within(self, shard: str, manifest: Manifest) -> tuple[int, int]:
        options = self.options
        start = place(options.starting, shard, EARLIEST)
        end = place(options.ending, shard, LATEST)
        start = {EARLIEST: manifest.first, LATEST: manifest.end}.get(start, start)
        end = {EARLIEST: manifest.first, LATEST: manifest.end}.get(end, end)
        has = f"the snapshot {manifest.id} of {shard!r} has [{manifest.first}, {manifest.end})"
        if end > manifest.end or start > manifest.end:
            raise CannotRead(f"offset {max(start, end)} is out of range: {has}")
        if place(options.starting, shard, EARLIEST) != EARLIEST:
            require_order(shard, start, end)
        if start < manifest.first:
            if options.fail_on_data_loss:
                raise DataLost(f"offset {start} is not there: {has}")
            start = manifest.first
        return start, end

    def _live(self, shard: str) -> list[LiveRange]:
        start, end = live.within(self.options, shard)
        start, end = max(start, self.bounds.start), _lower(end, self.bounds.end)
        return live_ranges(shard, start, end, self.options.partitions_min)

    # --- reading ---------------------------------------------------------------------------------

    def _wanted(self, start: int, end: int) -> Wanted:
        return Wanted(start, end, self.bounds.earliest_ms, self.bounds.latest_ms)

    def _snapshot_entries(self, partition: SnapshotRange) -> Iterator[tuple[Header, memoryview]]:
        archive = archive_of(self.options, partition.shard)
        wanted = self._wanted(partition.start, partition.end)
        for found in read_entries(archive, partition.segment, wanted):
            yield from found


class FilteringReader(ShardlogReader):
    """Takes filters; Spark refuses one that does unless it was told to push them."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Offsets and shards are kept to exactly; times to the millisecond, and Spark looks too."""
        for each in filters:
            bounds = _bounded(self.bounds, each)
            if bounds is not None:
                self.bounds = bounds
            if bounds is None or each.attribute == ("timestamp",):  # type: ignore[attr-defined]
                yield each


def _bounded(bounds: Bounds, given: Filter) -> Bounds | None:
    if isinstance(given, EqualTo | In) and given.attribute == ("shard",):
        named = {given.value} if isinstance(given, EqualTo) else set(given.value)
        return replace(bounds, shards=frozenset(filter(bounds.has_shard, named)))
    kinds = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
    if not isinstance(given, kinds):
        return None
    low = isinstance(given, EqualTo | GreaterThan | GreaterThanOrEqual)
    high = isinstance(given, EqualTo | LessThan | LessThanOrEqual)
    value: Any = given.value
    if given.attribute == ("offset",) and isinstance(value, int):
        if low:
            start = value + isinstance(given, GreaterThan)
            bounds = replace(bounds, start=max(bounds.start, start))
        if high:
            end = value + (not isinstance(given, LessThan))
            bounds = replace(bounds, end=max(0, _lower(end, bounds.end)))
        return bounds
    if given.attribute == ("timestamp",) and isinstance(value, datetime):
        ms = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000
        if low:
            earliest = max(int(ms // 1), bounds.earliest_ms or 0)
            bounds = replace(bounds, earliest_ms=earliest)
        if high:
            bounds = replace(bounds, latest_ms=_lower(int(-(-ms // 1)), bounds.latest_ms))
        return bounds
    return None


def _lower(one: int, other: int | None) -> int:
    return one if other is None else min(one, other)


def archive_of(options: Options, shard: str) -> Archive:
    if options.path is None:
        raise BadOption("there is no URL of snapshots")
    return Archive(Destination(options.path), shard)


def _require_outside(lost: Header, partition: LiveRange | SnapshotRange) -> None:
    if lost.base < partition.end and lost.end > partition.start:
        raise lost_for_good(partition.shard, lost.base, lost.end)


def lost_for_good(shard: str, first: int, end: int) -> DataLost:
    return DataLost(
        f"offsets [{first}, {end}) of {shard!r} were given up, and nobody has them; "
        "option failOnDataLoss=false skips them"
    )


def batches(
    options: Options,
    partition: LiveRange | SnapshotRange,
    entries: Entries,
    bounds: Bounds = EVERYTHING,
) -> Iterator[pa.RecordBatch]:
    """Records with offsets in the partition's range, as Arrow's batches."""
    schema = arrow_schema(options.columns)
    bad_times = 0

    def keep(header: Header, rows: pa.RecordBatch) -> pa.RecordBatch:
        nonlocal bad_times
        bad_times += _bad_times(options, partition, header, rows)
        return times_within(rows, bounds.earliest_ms, bounds.latest_ms)

    wanted = _wanted_entries(options, partition, entries)
    yield from record_batches(wanted, partition.shard, schema, partition.start, partition.end, keep)
    if bad_times:
        _log.warning("%d timestamps of %r are no dates, and are null", bad_times, partition.shard)


def _wanted_entries(
    options: Options, partition: LiveRange | SnapshotRange, entries: Entries
) -> Entries:
    starting_ms, ending_ms = options.times(partition.shard)
    for header, body in entries:
        if header.kind is Kind.LOST and options.fail_on_data_loss:
            _require_outside(header, partition)
        if (starting_ms is None or header.timestamp_ms >= starting_ms) and (
            ending_ms is None or header.timestamp_ms < ending_ms
        ):
            yield header, body


def _bad_times(
    options: Options, partition: LiveRange | SnapshotRange, header: Header, rows: pa.RecordBatch
) -> int:
    """How many of an entry's records have a time that is no date; `CannotRead` if none may."""
    if "timestamp" not in options.columns:
        return 0
    count: int = rows.column("timestamp").null_count
    if count and options.fail_on_bad_timestamp:
        raise CannotRead(
            f"{count} timestamps of {partition.shard!r} from offset {header.base} on are outside "
            "the years 1 to 9999; option failOnBadTimestamp=false reads them as null"
        )
    return count
