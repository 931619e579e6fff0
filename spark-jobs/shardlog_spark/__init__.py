"""Spark over shards: batch from snapshots and from the live log, streaming, and a writer.

`docs/spark.md` says how it is used.
"""
