"""Streaming queries that begin again when Spark gave up on the process that plans them."""

from __future__ import annotations

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

STARTS_MAX = 10
_NOT_CONNECTED = "Python worker failed to connect back"


def run_stream(writing: DataStreamWriter, starts_max: int = STARTS_MAX) -> StreamingQuery:
    """Start the query and return when it has ended; raises what ends it otherwise.

    Spark waits 10 s for the Python process that plans a stream, which no setting changes, and a
    busy machine may take longer to start one.  The query is started again then, up to `starts_max`
    times, and goes on from its checkpoint, which it must have.
    """
    for left in reversed(range(starts_max)):
        query = writing.start()
        try:
            query.awaitTermination()
            break
        except StreamingQueryException as failure:
            if not left or _NOT_CONNECTED not in str(failure):
                raise
    return query
