"""`spark.read.format("shardlog")`: what Spark asks first."""

from __future__ import annotations

import json

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from shardlog_spark.failures import BadOption
from shardlog_spark.options import Options, read_options

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "shard": StringType(),
    "offset": LongType(),
    "epoch": LongType(),
    "timestamp": TimestampType(),
    "headers": ArrayType(_HEADER),
    "appended": TimestampType(),
}


_OF_TABLE = "shardlog.options"
"""Where the options of a table are kept: in the metadata of its first column.

Spark asks for the schema of a table with its options, and for its reader without.
"""


def schema_of(columns: tuple[str, ...]) -> StructType:
    return StructType([StructField(name, _TYPES[name]) for name in columns])


class ShardlogSource(DataSource):
    """Options are checked by whoever is made first."""

    @classmethod
    def name(cls) -> str:
        return "shardlog"

    def schema(self) -> StructType:
        found = schema_of(read_options(self.options).columns)
        if "provider" in self.options:  # it becomes a table
            found.fields[0].metadata = {_OF_TABLE: json.dumps(dict(self.options))}
        return found

    def _options(self, schema: StructType) -> Options:
        """Those of the query before those of the table, if it is one."""
        table = schema.fields[0].metadata.get(_OF_TABLE, "{}") if schema.fields else "{}"
        options = read_options({**json.loads(table), **self.options})
        self._require_same(options, schema)
        return options

    def _require_same(self, options: Options, schema: StructType) -> None:
        given = [(field.name, field.dataType) for field in schema.fields]
        wanted = [(field.name, field.dataType) for field in schema_of(options.columns).fields]
        if given != wanted:
            names = ", ".join(name for name, _ in given)
            raise BadOption(
                f"the schema ({names}) is not that of shardlog: option 'columns' chooses columns"
            )

    def reader(self, schema: StructType) -> DataSourceReader:
        from shardlog_spark.reading import FilteringReader, ShardlogReader

        options = self._options(schema)
        return FilteringReader(options) if options.filter_pushdown else ShardlogReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from shardlog_spark.streaming import ShardlogStreamReader

        options = self._options(schema)
        return ShardlogStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from shardlog_spark.writing import ShardlogWriter

        return ShardlogWriter.to(read_options(self.options), schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from shardlog_spark.writing import ShardlogStreamWriter

        return ShardlogStreamWriter.to(read_options(self.options), schema, overwrite)
