"""`df.write.format("shardlog")`: appends, each row once, though tasks may run again.

All attempts of a task append under the session of its partition (`partition_append`).  The driver
opens these before any task starts, one for each partition there may be; or tasks open them, and
tell each other by a journal (`claims`).  At least once is cheaper: each attempt opens a session of
its own, and appends everything again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructType

from shardlog.client import Client, Compression
from shardlog_spark.bodies import bodies
from shardlog_spark.claims import claimed_session
from shardlog_spark.failures import BadOption, CannotWrite, translated
from shardlog_spark.live import asked, client_of
from shardlog_spark.options import AT_LEAST_ONCE, SESSIONS_MAX, Options
from shardlog_spark.partition_append import PartitionAppend, append_all

WRITTEN = ("key", "value", "timestamp", "headers")


@dataclass
class Written(WriterCommitMessage):
    partition: int
    records: int


class ShardlogWriter(DataSourceArrowWriter):
    """`sessions` are by partition, and `since` is an offset before all of them.

    There are none with a journal, which has claims behind `journal_since`, and none where at least
    once is enough.
    """

    def __init__(
        self,
        options: Options,
        compression: Compression,
        since: int,
        sessions: list[int],
        journal_since: int = 0,
    ) -> None:
        self.options = options
        self.compression = compression
        self.since = since
        self.sessions = sessions
        self.journal_since = journal_since
        self.job = secrets.token_hex(8)

    @classmethod
    def to(cls, options: Options, schema: StructType, overwrite: bool) -> ShardlogWriter:
        if overwrite:
            raise BadOption("a log cannot be overwritten: mode('append')")
        if not options.is_live or len(options.shards) != 1:
            raise BadOption("a write needs a cluster, and one shard in option 'shard'")
        try:
            compression = Compression[options.compression.upper()]
        except KeyError as failure:
            raise BadOption("option 'compression' is none, zstd or lz4") from failure
        _require_writable(schema)
        shard = options.shards[0]

        async def question(client: Client) -> tuple[int, list[int], int]:
            since = await client.end(shard)
            if options.delivery == AT_LEAST_ONCE:
                return since, [], 0
            if options.journal is not None:
                return since, [], await client.end(options.journal)
            opened = [client.register(shard) for _ in range(options.sessions)]
            return since, list(await asyncio.gather(*opened)), 0

        return cls(options, compression, *asked(options, question, CannotWrite))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None, "this runs within a task"
        partition = context.partitionId()
        with translated(CannotWrite):
            return Written(partition, asyncio.run(self.append_partition(partition, iterator)))

    async def append_partition(self, partition: int, batches: Iterator[pa.RecordBatch]) -> int:
        """How many rows it has, all of them in the log now."""
        async with client_of(self.options) as client:
            if self.options.delivery == AT_LEAST_ONCE:
                return await self._at_least_once(client, batches)
            session = await self._session(client, partition)
            return await self._exactly_once(client, session, batches)

    async def _session(self, client: Client, partition: int) -> int:
        """The same for all attempts."""
        journal = self.options.journal
        if journal is not None:
            shard, name = self.options.shards[0], f"{self.job}/{partition}"
            return await claimed_session(client, shard, journal, self.journal_since, name)
        if partition >= len(self.sessions):
            raise CannotWrite(
                f"there are more than {len(self.sessions)} partitions: option 'sessions' says how "
                f"many there may be, {SESSIONS_MAX} at most; coalesce() makes fewer, and option "
                f"'journal' and delivery={AT_LEAST_ONCE} take any number"
            )
        return self.sessions[partition]

    async def _exactly_once(
        self, client: Client, session: int, batches: Iterator[pa.RecordBatch]
    ) -> int:
        shard = self.options.shards[0]
        end = await client.end(shard)
        append = PartitionAppend(client, shard, session, self.since, end, self.compression)
        try:
            await append_all(append.append, batches)
            append.finish()
        finally:
            await append.close()
        return append.count

    async def _at_least_once(self, client: Client, batches: Iterator[pa.RecordBatch]) -> int:
        shard, count = self.options.shards[0], 0
        session = await client.register(shard)
        async with client.numbered(shard, session) as producer:

            async def append(batch: pa.RecordBatch) -> None:
                nonlocal count
                for body, records in bodies(batch, self.compression):
                    await producer.append(body, records)
                    count += records

            await append_all(append, batches)
        return count


def _require_writable(schema: StructType) -> None:
    names = schema.fieldNames()
    for name in names:
        if name not in WRITTEN:
            raise BadOption(f"column {name!r} cannot be written: {', '.join(WRITTEN)}")
    if "value" not in names:
        raise BadOption("there is no column 'value'")
    for name in {"key", "value"} & set(names):
        if not isinstance(schema[name].dataType, BinaryType | StringType):
            raise BadOption(f"column {name!r} must be binary or string")
