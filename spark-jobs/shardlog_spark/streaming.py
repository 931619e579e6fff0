"""Streaming reads of the live log.

An offset of the stream says where each shard goes on, and which log that is, as JSON:
`{"orders": {"offset": 1234, "chain": "9c0e..."}}`.  The chain is the checksum of the last entry
before: logs that agree on it agree on everything before it.  So a shard that was deleted and made
again, or restored, under the same name is noticed, and fails the stream.  An offset alone,
`{"orders": 1234}`, is taken as it is.

Committed records never change, so the range between two offsets gives the same records whenever it
is read, by whatever leader; that is what makes sinks that can repeat a batch exactly-once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
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
from shardlog.client.failures import OffsetTrimmed
from shardlog_spark import live
from shardlog_spark.failures import BadOption, CannotRead, DataLost, OtherLog, translated
from shardlog_spark.options import LATEST, Options
from shardlog_spark.ranges import LiveRange, live_ranges
from shardlog_spark.reading import batches

Offset = dict[str, Any]
Places = dict[str, int]


class ShardlogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Of all shards that are subscribed to."""

    def __init__(self, options: Options) -> None:
        if not options.is_live:
            raise BadOption("a snapshot never changes: readStream needs a cluster")
        if options.ending is not None or options.ending_ms is not None:
            raise BadOption("options 'endingOffsets' and 'endingTimestamp' are for batch reads")
        self.options = options
        self._until: Places | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """The newest by default, as Kafka's source."""
        options = self.options
        shards = live.asked(options, partial(live.shards_of, options=options))
        places = {shard: live.within(options, shard, starting=LATEST)[0] for shard in shards}
        return live.asked(options, partial(_named, places=places))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self.options.offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        self._require_same_shards(start)

        async def question(client: Client) -> Offset:
            newest = self._until or await self._newest(client)
            places = await self._places(client, start, newest)
            if isinstance(limit, ReadMaxRows):
                return await _named(client, _limited(places, newest, limit.max_rows))
            return await _named(client, {it: max(newest[it], places[it]) for it in places})

        return live.asked(self.options, question)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        newest = live.asked(self.options, self._newest)
        return {shard: {"offset": offset} for shard, offset in newest.items()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there now, and no more, in as many batches as the limit makes."""
        self._until = live.asked(self.options, self._newest)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        self._require_same_shards(start)

        async def question(client: Client) -> tuple[Places, Places]:
            last = {shard: await _place(client, shard, it) for shard, it in end.items()}
            return await self._places(client, start, last), last

        first, last = live.asked(self.options, question)
        return [
            each
            for shard in last
            for each in live_ranges(shard, first[shard], last[shard], self.options.partitions_min)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LiveRange)
        with translated():
            yield from batches(self.options, partition, live.entries(self.options, partition))

    def commit(self, end: Offset) -> None:
        """The checkpoint is Spark's; nothing is kept here."""

    def stop(self) -> None:
        """Nothing is open."""

    def _require_same_shards(self, start: Offset) -> None:
        """A checkpoint belongs to the shards it was made with, unless a pattern chooses them."""
        if self.options.pattern is None and set(start) != set(self.options.shards):
            raise CannotRead(
                f"the checkpoint is of the shards {', '.join(sorted(start))}, "
                f"not of {', '.join(sorted(self.options.shards))}"
            )

    async def _newest(self, client: Client) -> Places:
        shards = await live.shards_of(client, self.options)
        return {shard: await client.end(shard) for shard in shards}

    async def _places(self, client: Client, start: Offset, shards: Places) -> Places:
        """Where each of the shards goes on; `OtherLog` if it is not the log that is there now.

        With a pattern there may be new ones, which are read from their beginning.
        """
        gone = sorted(set(start) - set(shards))
        if gone and self.options.fail_on_data_loss:
            raise DataLost(
                f"the shards {', '.join(gone)} of the checkpoint are gone; "
                "option failOnDataLoss=false goes on without them"
            )
        return {
            shard: await _place(client, shard, start[shard])
            if shard in start
            else await client.first(shard)
            for shard in shards
        }


async def _named(client: Client, places: Places) -> Offset:
    return {
        shard: {"offset": offset, "chain": await _chain(client, shard, offset)}
        for shard, offset in places.items()
    }


async def _chain(client: Client, shard: str, offset: int) -> str | None:
    """The checksum of the entry before; None if there is nothing to tell it by."""
    log = client.raw(shard)
    if offset:
        with suppress(OffsetTrimmed):
            return _hex((await log.entry_at(offset - 1)).header.checksum)
    if offset < await client.end(shard):
        with suppress(OffsetTrimmed):
            header = (await log.entry_at(offset)).header
            return _hex(header.parent) if header.base == offset else None
    return None


def _hex(checksum: int) -> str:
    return f"{checksum:016x}"


async def _place(client: Client, shard: str, given: int | dict[str, Any]) -> int:
    if isinstance(given, int):
        return given
    offset, chain = int(given["offset"]), given.get("chain")
    end = await client.end(shard)
    if offset > end:
        raise OtherLog(
            f"the checkpoint of {shard!r} is at offset {offset}, and the shard ends at {end}: it "
            "is another one under the same name, or has lost records; begin with a new checkpoint"
        )
    now = await _chain(client, shard, offset)
    if None not in (chain, now) and chain != now:
        raise OtherLog(
            f"{shard!r} is another shard than that of the checkpoint, under the same name: they "
            f"differ before offset {offset}; begin with a new checkpoint"
        )
    return offset


def _limited(start: Places, newest: Places, most: int) -> Places:
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
