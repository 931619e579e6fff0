"""The rows of one partition, each in the log once, whatever was appended of them before.

All attempts of a task share the session of its partition (`write_job`).  An attempt appends one
request at a time, under the next number, and only when it has accounted for the rows under every
number before: it appended them itself, or has read them from the log and leaves out that many of
its own.  If another attempt was there, before or at the same time, the number is taken; then this
one reads on and tries again with what is left.  So nothing depends on the order of the rows: if two
attempts have the same rows, each of them stands in the log once.  If they have not, the attempt
fails when it ends, and nothing of its own is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pyarrow as pa

from shardlog.client import Client, Compression
from shardlog.client.failures import (
    FateUnknown,
    NumberTaken,
    OffsetForgotten,
    OffsetTrimmed,
    SessionEvicted,
)
from shardlog.client.numbered import NumberedProducer
from shardlog.client.patience import Deadline
from shardlog.protocol.entry import Header, Kind
from shardlog.protocol.sessions import session_of
from shardlog_spark.bodies import body_of, pieces
from shardlog_spark.failures import CannotWrite, OtherRows
from shardlog_spark.row_counts import RowCounts, digests_of

CATCH_UP_AGAIN_S = 0.02
OPENINGS_MAX = 16


class PartitionAppend:
    """`since` is an offset before all sessions that were opened with `nonce`."""

    def __init__(
        self, client: Client, shard: str, nonce: int, since: int, compression: Compression
    ) -> None:
        self.count = 0
        """Rows that are in the log."""
        self._client = client
        self._shard = shard
        self._nonce = nonce
        self._compression = compression
        self._session = 0
        """The one that this attempt appends under; 0 until it is open."""
        self._accounted: dict[int, int] = {}
        """By session: the rows of all its requests up to this one are accounted for."""
        self._read_to = since
        self._read_session = self._read_last = 0
        """How far the partition's entries have been read: the log before an offset, and whose."""
        self._end = 0
        """Whatever this attempt appends next gets an offset from here on."""
        self._producer: NumberedProducer | None = None
        self._unmatched = RowCounts()
        """Rows that other attempts appended, and this one has not come to."""

        self._openings = 0

    async def open(self) -> None:
        """Take the session that the nonce stands for, or open it."""
        self._openings += 1
        if self._openings > OPENINGS_MAX:
            raise CannotWrite(
                f"the leader of {self._shard!r} forgot the session of this partition "
                f"{OPENINGS_MAX} times: more are written to at once than it keeps; coalesce() "
                "makes fewer partitions"
            )
        self._session = await self._client.register(self._shard, nonce=self._nonce)
        self._end = await self._client.end(self._shard)

    async def read_all(self) -> None:
        """Account for all that was appended under sessions with the nonce, forgotten ones too."""
        await self._read_on()

    async def append(self, batch: pa.RecordBatch) -> None:
        """Return when all its rows are in the log."""
        for rows in pieces(batch):
            left = self._without_matched(rows)
            while left.num_rows and not await self._appended(left):
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
        """Whether these rows stand under the next number; else what others appended is read."""
        last = self._accounted.get(self._session, 0)
        if self._producer is None:
            self._producer = self._client.numbered(self._shard, self._session, last)
        body = body_of(rows, self._compression)
        try:
            base = await (await self._producer.append(body, rows.num_rows))
        except (NumberTaken, OffsetForgotten):
            base = -1
        except (SessionEvicted, FateUnknown) as failure:
            if isinstance(failure, FateUnknown) and not isinstance(failure.last, SessionEvicted):
                raise
            await self._close_producer()
            await self.open()
            await self.read_all()
            return False
        if base < self._end:
            await self._catch_up()
            return False
        self._accounted[self._session] = last + 1
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
        before = self._accounted.get(self._session, 0)
        await self._read_on()
        deadline = Deadline(self._client.limits.deadline_ms, asyncio.get_running_loop().time)
        while self._accounted.get(self._session, 0) == before:  # it is not committed yet
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
        if header.kind is Kind.REGISTER and header.request == self._nonce:
            self._read_session, self._read_last = session_of(header), 0
        elif header.kind is Kind.DATA and (header.session, header.request) == (
            self._read_session, self._read_last + 1
        ):  # fmt: skip
            self._read_last += 1
            if self._read_last > self._accounted.get(self._read_session, 0):
                self._accounted[self._read_session] = self._read_last
                self._unmatched.add(digests_of(body, header.count))

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
