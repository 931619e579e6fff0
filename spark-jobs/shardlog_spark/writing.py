"""`df.write.format("shardlog")`: appends, each row once, though tasks may run again.

The driver opens sessions before any task starts, one for each partition there may be.  A task sends
its rows under its partition's session, numbered from 1, so what an earlier attempt of it appended
is known by its numbers and not appended again.  That holds as long as a partition has the same rows
in the same order when it is computed again, which Spark says of its own retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructType

from shardlog.client import Client, Compression
from shardlog_spark.bodies import bodies
from shardlog_spark.failures import BadOption, CannotWrite, translated
from shardlog_spark.live import asked, client_of
from shardlog_spark.options import Options

WRITTEN = ("key", "value", "timestamp", "headers")


@dataclass
class Written(WriterCommitMessage):
    partition: int
    records: int


class ShardlogWriter(DataSourceArrowWriter):
    """`sessions` are by partition."""

    def __init__(self, options: Options, compression: Compression, sessions: list[int]) -> None:
        self.options = options
        self.compression = compression
        self.sessions = sessions

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
        names = schema.fieldNames()
        for name in names:
            if name not in WRITTEN:
                raise BadOption(f"column {name!r} cannot be written: {', '.join(WRITTEN)}")
        if "value" not in names:
            raise BadOption("there is no column 'value'")
        for name in {"key", "value"} & set(names):
            if not isinstance(schema[name].dataType, BinaryType | StringType):
                raise BadOption(f"column {name!r} must be binary or string")
        shard = options.shards[0]

        async def question(client: Client) -> list[int]:
            opened = [client.register(shard) for _ in range(options.sessions)]
            return list(await asyncio.gather(*opened))

        return cls(options, compression, asked(options, question, CannotWrite))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None, "this runs within a task"
        partition = context.partitionId()
        if partition >= len(self.sessions):
            raise CannotWrite(
                f"there are more than {len(self.sessions)} partitions: option 'sessions' says how "
                "many there may be"
            )
        with translated(CannotWrite):
            count = asyncio.run(self._appended(iterator, self.sessions[partition]))
        return Written(partition, count)

    async def _appended(self, iterator: Iterator[pa.RecordBatch], session: int) -> int:
        count = 0
        shard = self.options.shards[0]
        async with (
            client_of(self.options) as client,
            client.numbered(shard, session) as producer,
        ):
            for batch in iterator:
                for body, records in bodies(batch, self.compression):
                    await producer.append(body, records)
                    count += records
        return count
