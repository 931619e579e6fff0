"""Streaming reads of the live log.

An offset of the stream is where each shard goes on, as JSON: `{"orders": 1234}`.  Committed records
never change, so the range between two of them gives the same records whenever it is read, by
whatever leader; that is what makes sinks that can repeat a batch exactly-once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from shardlog.client import Client
from shardlog_spark import live
from shardlog_spark.failures import BadOption, CannotRead, translated
from shardlog_spark.options import LATEST, Options
from shardlog_spark.ranges import LiveRange, live_ranges
from shardlog_spark.reading import batches

Offset = dict[str, Any]


class ShardlogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Of all shards that are subscribed to."""

    def __init__(self, options: Options) -> None:
        if not options.is_live:
            raise BadOption("a snapshot never changes: readStream needs a cluster")
        if options.ending is not None:
            raise BadOption("option 'endingOffsets' is for batch reads")
        self.options = options
        self._until: Offset | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """The newest by default, as Kafka's source."""
        return {
            shard: live.within(self.options, shard, starting=LATEST)[0]
            for shard in self.options.shards
        }

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self.options.offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        self._check(start)
        newest = self._until or self._newest()
        if not isinstance(limit, ReadMaxRows):
            return {shard: max(newest[shard], start[shard]) for shard in start}
        return _limited(start, newest, limit.max_rows)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        return self._newest()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there now, and no more, in as many batches as the limit makes."""
        self._until = self._newest()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        self._check(start)
        return [
            each
            for shard in self.options.shards
            for each in live_ranges(shard, start[shard], end[shard], self.options.partitions_min)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LiveRange)
        with translated():
            yield from batches(self.options, partition, live.entries(self.options, partition))

    def commit(self, end: Offset) -> None:
        """The checkpoint is Spark's; nothing is kept here."""

    def stop(self) -> None:
        """Nothing is open."""

    def _newest(self) -> Offset:
        async def question(client: Client) -> Offset:
            return {shard: await client.end(shard) for shard in self.options.shards}

        return live.asked(self.options, question)

    def _check(self, start: Offset) -> None:
        """A checkpoint belongs to the shards it was made with."""
        if set(start) != set(self.options.shards):
            raise CannotRead(
                f"the checkpoint is of the shards {', '.join(sorted(start))}, "
                f"not of {', '.join(sorted(self.options.shards))}"
            )


def _limited(start: Offset, newest: Offset, most: int) -> Offset:
    """So many offsets of all shards together, each in proportion to what it has."""
    there = {shard: max(0, newest[shard] - start[shard]) for shard in start}
    total = sum(there.values())
    if total <= most:
        return {shard: start[shard] + there[shard] for shard in start}
    taken = {shard: there[shard] * most // total for shard in start}
    if not any(taken.values()):
        largest = max(there, key=lambda shard: there[shard])
        taken[largest] = 1
    return {shard: start[shard] + taken[shard] for shard in start}
