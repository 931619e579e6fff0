"""What all jobs share: a session, the arguments that say where records are, and how they fail.

What to read is planned once before Spark is asked for anything: what is wrong with it is told in
one line, before a task starts and before a directory is made for what it would have written.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition

from shardlog_spark.failures import (
    BadOption,
    CannotWrite,
    DamagedSource,
    NoAnswer,
    SparkFailure,
    translated,
)
from shardlog_spark.java import why_no_java
from shardlog_spark.options import read_options
from shardlog_spark.reading import ShardlogReader

OK, USAGE, DAMAGED, UNAVAILABLE, REFUSED = 0, 2, 7, 8, 9
"""As the exit codes of `shardlog`."""
_STATUSES: dict[type[SparkFailure], int] = {
    BadOption: USAGE,
    DamagedSource: DAMAGED,
    NoAnswer: UNAVAILABLE,
}
_OURS = "shardlog_spark.failures."

Work = Callable[[SparkSession, argparse.Namespace], int]
Check = Callable[[argparse.Namespace], None]


def source_arguments(parser: argparse.ArgumentParser) -> None:
    """Where records are: a snapshot or a cluster."""
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--snapshots", metavar="URL", help="where snapshots are")
    place.add_argument("--cluster", metavar="URL", help="where a cluster is")
    parser.add_argument("--shard", required=True, help="several with commas between")
    parser.add_argument("--snapshot", metavar="ID", help="which one (the newest of what led; of "
                        "any node only if there is no other)")  # fmt: skip
    parser.add_argument("--from", dest="start", metavar="OFFSETS",
                        help='earliest, latest or JSON, {"SHARD": OFFSET}')  # fmt: skip
    parser.add_argument("--to", dest="end", metavar="OFFSETS", help="as --from; latest")
    parser.add_argument("--timeout", type=float, metavar="SECONDS",
                        help="how long the cluster may take to answer (30)")  # fmt: skip
    parser.add_argument("--skip-lost", action="store_true",
                        help="go on where records were trimmed or given up")  # fmt: skip


def source_options(given: argparse.Namespace, columns: str | None = None) -> dict[str, str]:
    found = {
        "path": given.snapshots,
        "shardlog.bootstrap.servers": given.cluster,
        "subscribe": given.shard,
        "snapshot": given.snapshot,
        "startingOffsets": given.start,
        "endingOffsets": given.end,
        "columns": columns,
        "timeoutMs": None if given.timeout is None else str(int(given.timeout * 1000)),
        "failOnDataLoss": "false" if given.skip_lost else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def source(spark: SparkSession, given: argparse.Namespace, columns: str | None = None) -> DataFrame:
    """The records, after a look whether they can be read."""
    planned(given, columns)
    return loaded(spark, given, columns)


def planned(given: argparse.Namespace, columns: str | None = None) -> list[InputPartition]:
    """What would be read; or what is wrong with it."""
    return ShardlogReader(read_options(source_options(given, columns))).partitions()


def loaded(spark: SparkSession, given: argparse.Namespace, columns: str | None = None) -> DataFrame:
    return spark.read.format("shardlog").options(**source_options(given, columns)).load()


def run(
    name: str,
    parser: argparse.ArgumentParser,
    work: Work,
    arguments: Sequence[str],
    check: Check = lambda given: None,
) -> int:
    """The status to exit with; what goes wrong is one line.

    Where it runs is Spark's to say: `spark-submit --master`, or all cores of this machine.  What
    `check` finds is told before Spark is started.
    """
    given = parser.parse_args(arguments)
    running = SparkSession.getActiveSession()
    try:
        check(given)
        if running is None and (missing := why_no_java()) is not None:
            raise BadOption(missing)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        spark = running or _session(name)
        try:
            with translated():
                return work(spark, given)
        finally:
            if running is None:
                spark.stop()
    except (PySparkException, SparkFailure, Py4JJavaError) as failure:
        print(f"{name}: {one_line(failure)}", file=sys.stderr)
        return status_of(failure)


def _session(name: str) -> SparkSession:
    spark = (
        SparkSession.builder.appName(f"shardlog {name}")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .config("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def status_of(failure: Exception) -> int:
    if isinstance(failure, SparkFailure):
        return _STATUSES.get(type(failure), REFUSED)
    ours = _said_by_us(failure)
    if ours is None:
        return UNAVAILABLE
    by_name = {kind.__name__: status for kind, status in _STATUSES.items()}
    return by_name.get(ours[0], REFUSED)


def one_line(failure: Exception) -> str:
    """What we said, out of what Spark makes of it."""
    ours = _said_by_us(failure)
    if ours is not None:
        return ours[1]
    if isinstance(failure, Py4JJavaError):
        return java_line(failure)
    lines = str(failure).splitlines()
    return lines[0] if lines else type(failure).__name__


def _said_by_us(failure: Exception) -> tuple[str, str] | None:
    """The failure of a task: the name of its class, and its message."""
    lines = [line.strip() for line in str(failure).splitlines()]
    ours = [line for line in lines if line.startswith(_OURS)]
    if not ours:
        return None
    name, _, said = ours[-1].removeprefix(_OURS).partition(": ")
    return name, said


def java_line(failure: Py4JJavaError) -> str:
    lines = str(failure.java_exception.toString()).splitlines()
    return lines[0] if lines else "Java failed"


def require_writable(spark: SparkSession, out: str) -> tuple[Any, Any]:
    """Its file system and its path, for Hadoop; `BadOption` if Spark knows none for it."""
    jvm = spark._jvm
    assert jvm is not None, "jobs run where the driver is"
    try:
        path = jvm.org.apache.hadoop.fs.Path(out)
        return path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), path
    except Py4JJavaError as failure:
        raise BadOption(
            f"Spark cannot write to {out}: {java_line(failure)}; S3 is s3a://BUCKET/PREFIX there, "
            "and needs hadoop-aws"
        ) from failure


def is_there(spark: SparkSession, out: str) -> bool:
    files, path = require_writable(spark, out)
    try:
        return bool(files.exists(path))
    except Py4JJavaError as failure:
        raise CannotWrite(f"{out}: {java_line(failure)}") from failure


@contextmanager
def new_directory(spark: SparkSession, out: str) -> Iterator[None]:
    """Spark makes the directory before it reads; if the work fails it is taken away again."""
    if is_there(spark, out):
        raise CannotWrite(f"{out} exists")
    files, path = require_writable(spark, out)
    try:
        yield
    except BaseException:
        files.delete(path, True)
        raise
