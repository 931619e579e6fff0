"""`df.write.format("shardlog")`, and of streams: each row once, though work is done again.

All attempts of a task append under the session of its partition (`partition_append`), which is
named by the write (`write_job`).  At least once is cheaper: each attempt opens a session of its
own, and appends everything again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, StringType, StructType

from shardlog.client import Client, Compression
from shardlog_spark.bodies import bodies
from shardlog_spark.failures import BadOption, CannotWrite, translated
from shardlog_spark.live import asked, client_of
from shardlog_spark.options import AT_LEAST_ONCE, Options
from shardlog_spark.partition_append import PartitionAppend, append_all
from shardlog_spark.write_job import WriteJob, begun, begun_or_claimed

WRITTEN = ("key", "value", "timestamp", "headers")
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties of a stream's tasks; the first is the same after a restart."""


@dataclass
class Written(WriterCommitMessage):
    partition: int
    records: int


class _Appending:
    """A write to one shard; `job` is None where tasks begin it, or at least once is enough."""

    def __init__(
        self, options: Options, compression: Compression, job: WriteJob | None = None
    ) -> None:
        self.options = options
        self.compression = compression
        self.job = job

    def write_as(self, name: str | None, batches: Iterator[pa.RecordBatch]) -> Written:
        """In a task; `name` is that of a write whose job is not known yet."""
        context = TaskContext.get()
        assert context is not None, "this runs within a task"
        partition = context.partitionId()
        with translated(CannotWrite):
            return Written(partition, asyncio.run(self.append_partition(partition, batches, name)))

    async def append_partition(
        self, partition: int, batches: Iterator[pa.RecordBatch], name: str | None = None
    ) -> int:
        """How many rows it has, all of them in the log now."""
        async with client_of(self.options) as client:
            if self.options.delivery == AT_LEAST_ONCE:
                return await self._at_least_once(client, batches)
            job = self.job or await self._claimed(client, name)
            return await self._exactly_once(client, job, partition, batches)

    async def _claimed(self, client: Client, name: str | None) -> WriteJob:
        shard, journal = self.options.shards[0], self.options.journal
        assert journal is not None, "options were checked"
        assert name is not None, "a write that its tasks begin has a name"
        return await begun_or_claimed(client, shard, journal, name)

    async def _exactly_once(
        self, client: Client, job: WriteJob, partition: int, batches: Iterator[pa.RecordBatch]
    ) -> int:
        shard, nonce = self.options.shards[0], job.nonce(partition)
        append = PartitionAppend(client, shard, nonce, job.since, self.compression)
        try:
            await append.open()
            if not await job.is_whole(client, shard):
                await append.read_all()
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


class ShardlogWriter(_Appending, DataSourceArrowWriter):
    """A batch: the driver begins it, or finds it begun if it has a name."""

    @classmethod
    def to(cls, options: Options, schema: StructType, overwrite: bool) -> ShardlogWriter:
        compression, shard = _checked(options, schema, overwrite)

        async def question(client: Client) -> WriteJob | None:
            if options.delivery == AT_LEAST_ONCE:
                await client.end(shard)
                return None
            if options.write_name is None or options.journal is None:
                return await begun(client, shard, secrets.token_hex(8))
            return await begun_or_claimed(client, shard, options.journal, options.write_name)

        return cls(options, compression, asked(options, question, CannotWrite))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self.write_as(None, iterator)


class ShardlogStreamWriter(_Appending, DataSourceStreamArrowWriter):
    """A stream: each micro-batch is a write with the name of the query and its number.

    Spark makes this when a query starts, and may repeat the last micro-batch of an earlier run.
    """

    @classmethod
    def to(cls, options: Options, schema: StructType, overwrite: bool) -> ShardlogStreamWriter:
        compression, _ = _checked(options, schema, overwrite)
        if options.write_name is not None:
            raise BadOption("option 'txnAppId' is for batches: a stream has its query's name")
        if options.delivery != AT_LEAST_ONCE and options.journal is None:
            raise BadOption(
                "a stream needs option 'journal', a shard for claims, to write each row once; "
                f"delivery={AT_LEAST_ONCE} does not"
            )
        return cls(options, compression)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None, "this runs within a task"
        query, batch = map(context.getLocalProperty, (_QUERY, _BATCH))
        if query is None or batch is None:
            raise CannotWrite("Spark does not tell the task its query and micro-batch")
        return self.write_as(f"{query}/{batch}", iterator)


def _checked(options: Options, schema: StructType, overwrite: bool) -> tuple[Compression, str]:
    if overwrite:
        raise BadOption("a log cannot be overwritten: mode('append')")
    if not options.is_live or len(options.shards) != 1:
        raise BadOption("a write needs a cluster, and one shard in option 'shard'")
    try:
        compression = Compression[options.compression.upper()]
    except KeyError as failure:
        raise BadOption("option 'compression' is none, zstd or lz4") from failure
    _require_writable(schema)
    return compression, options.shards[0]


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
