"""How Spark is set up in these tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

CONNECT_TIMES_MAX = 10
_NOT_CONNECTED = "Python worker failed to connect back"
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that ends before compiling well would pay."""


def configured(builder: SparkSession.Builder, warehouse: Path) -> SparkSession.Builder:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        builder.appName("shardlog tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", SHORT_LIVED)
        .config("spark.python.authenticate.socketTimeout", "120s")
        .config("spark.sql.warehouse.dir", str(warehouse / "warehouse"))
    )


def finished(start: Callable[[], StreamingQuery], timeout_s: int) -> StreamingQuery:
    """A query that ended well, begun again when Spark gave up on the process that plans it.

    Spark waits 10 s for that process, which no setting changes, and a busy machine may take longer
    to start one.  Beginning again is what a stream is made for.
    """
    for _ in range(CONNECT_TIMES_MAX - 1):
        query = start()
        try:
            assert query.awaitTermination(timeout_s), "the stream does not end"
            return query
        except StreamingQueryException as failure:
            if _NOT_CONNECTED not in str(failure):
                raise
    query = start()
    assert query.awaitTermination(timeout_s), "the stream does not end"
    return query
