"""Spark takes the `DefaultSource` of every module that is named `pyspark_…`: this is "shardlog"."""

from shardlog_spark.source import ShardlogSource as DefaultSource

__all__ = ["DefaultSource"]
