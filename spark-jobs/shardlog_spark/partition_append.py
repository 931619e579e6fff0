"""The rows of one partition, each in the log once, whatever was appended of them before.

All attempts of a task share the session of its partition.  An attempt appends one request at a
time, under the next number, and only when it has accounted for the rows under every number before:
it appended them itself, or has read them from the log and leaves out that many of its own.  If
another attempt was there, before or at the same time, the number is taken; then this one reads on
and tries again with what is left.  So nothing depends on the order of the rows: if two attempts
have the same rows, each of them stands in the log once.  If they have not, the attempt fails when
it ends, and nothing of its own is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pyarrow as pa

from shardlog.client import Client, Compression
from shardlog.client.failures import NumberTaken, OffsetForgotten, OffsetTrimmed
from shardlog.client.numbered import NumberedProducer
from shardlog.client.patience import Deadline
from shardlog.protocol.entry import Header, Kind
from shardlog_spark.bodies import body_of, pieces
from shardlog_spark.failures import CannotWrite, OtherRows
from shardlog_spark.row_counts import RowCounts, digests_of

CATCH_UP_AGAIN_S = 0.02


class PartitionAppend:
    """`since` is an offset before all entries of the session, `end` where the log ends now."""

    def __init__(
        self,
        client: Client,
        shard: str,
        session: int,
        since: int,
        end: int,
        compression: Compression,
    ) -> None:
        self.count = 0
        """Rows that are in the log."""
        self._client = client
        self._shard = shard
        self._session = session
        self._compression = compression
        self._last = 0
        """The rows of all requests up to this one are accounted for."""
        self._read_to = since
        """The entries of the session before this offset have been read, if any were."""
        self._end = end
        """Whatever this attempt appends next gets an offset from here on."""
        self._producer: NumberedProducer | None = None
        self._unmatched = RowCounts()
        """Rows that other attempts appended, and this one has not come to."""

    async def append(self, batch: pa.RecordBatch) -> None:
        """Return when all its rows are in the log."""
        for rows in pieces(batch):
            left = self._without_matched(rows)
            while left.num_rows and not await self._appended(left):
                await self._catch_up()
                left = self._without_matched(left)
            self.count += rows.num_rows

    def finish(self) -> None:
        """`OtherRows` if another attempt appended rows that this one has not."""
        if self._unmatched.total:
            raise OtherRows(
                f"another attempt of this partition appended {self._unmatched.total} rows that "
                "this one does not have: the log has the rows of both. What is written must give "
                "the same rows when it is computed again, in any order"
            )

    async def close(self) -> None:
        self._unmatched.close()
        await self._close_producer()

    async def _appended(self, rows: pa.RecordBatch) -> bool:
        """Whether these rows stand under the next number; else others do."""
        if self._producer is None:
            self._producer = self._client.numbered(self._shard, self._session, self._last)
        body = body_of(rows, self._compression)
        try:
            base = await (await self._producer.append(body, rows.num_rows))
        except (NumberTaken, OffsetForgotten):
            return False
        if base < self._end:
            return False
        self._last += 1
        return True

    def _without_matched(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if not self._unmatched.total:
            return rows
        digests = digests_of(body_of(rows, Compression.NONE), rows.num_rows)
        left = [number for number, it in enumerate(digests) if not self._unmatched.take(it)]
        return rows if len(left) == rows.num_rows else rows.take(pa.array(left, pa.int64()))

    # --- what other attempts appended ------------------------------------------------------------

    async def _catch_up(self) -> None:
        """Return when the request that took the number has been read."""
        await self._close_producer()
        before = self._last
        await self._read_on()
        deadline = Deadline(self._client.limits.deadline_ms, asyncio.get_running_loop().time)
        while self._last == before:  # it is not committed yet
            if deadline.passed:
                raise CannotWrite(
                    f"request {before + 1} of session {self._session} of {self._shard!r} is "
                    "another attempt's, and does not come to be in the log"
                )
            await asyncio.sleep(CATCH_UP_AGAIN_S)
            await self._read_on()

    async def _read_on(self) -> None:
        end = await self._client.end(self._shard)
        try:
            async for entries in self._client.raw(self._shard).entries(self._read_to, end):
                for entry in entries:
                    self._account(entry.header, entry.body)
        except OffsetTrimmed as failure:
            raise CannotWrite(
                f"what earlier attempts appended to {self._shard!r} has been trimmed up to offset "
                f"{failure.first}: nobody can tell which rows are missing"
            ) from failure
        self._read_to = self._end = end

    def _account(self, header: Header, body: memoryview) -> None:
        if header.kind in (Kind.LOST, Kind.UNKNOWN):
            raise CannotWrite(
                f"offsets [{header.base}, {header.end}) of {self._shard!r} were given up while "
                "this was written: nobody can tell which rows are missing"
            )
        ours = header.kind is Kind.DATA and header.session == self._session
        if ours and header.request == self._last + 1:
            self._unmatched.add(digests_of(body, header.count))
            self._last = header.request

    async def _close_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close()


async def append_all(
    append: Callable[[pa.RecordBatch], Awaitable[None]], batches: Iterator[pa.RecordBatch]
) -> None:
    """The next batch is computed while one is appended."""
    following = _following(batches)
    try:
        while (batch := await following) is not None:
            following = _following(batches)
            await append(batch)
    finally:
        following.cancel()


def _following(batches: Iterator[pa.RecordBatch]) -> asyncio.Task[pa.RecordBatch | None]:
    """The next batch, computed in a thread: the connection is served meanwhile."""
    return asyncio.create_task(asyncio.to_thread(next, batches, None))
