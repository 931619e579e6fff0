"""What all jobs share: a session, the arguments that say where records are, and how they fail.

What to read is planned once before Spark is asked for anything: what is wrong with it is told in
one line, before a task starts and before a directory is made for what it would have written.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from shardlog.client.failures import Unavailable
from shardlog.snapshots.failures import Damaged, DestinationUnavailable, SnapshotFailure
from shardlog_spark.failures import BadOption, CannotRead, SparkFailure
from shardlog_spark.options import read_options
from shardlog_spark.reading import ShardlogReader

OK, USAGE, DAMAGED, UNAVAILABLE, REFUSED = 0, 2, 7, 8, 9
"""As the exit codes of `shardlog`."""
_OURS = "shardlog_spark.failures."
_JAVA_MISSING = "Spark needs Java 17: apt-get install openjdk-17-jre-headless, or set JAVA_HOME"

Work = Callable[[SparkSession, argparse.Namespace], int]


def source_arguments(parser: argparse.ArgumentParser) -> None:
    """Where records are: a snapshot or a cluster."""
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--snapshots", metavar="URL", help="where snapshots are")
    place.add_argument("--cluster", metavar="URL", help="where a cluster is")
    parser.add_argument("--shard", required=True, help="several with commas between")
    parser.add_argument("--snapshot", metavar="ID", help="which one (the newest)")
    parser.add_argument("--from", dest="start", metavar="OFFSETS",
                        help='earliest, latest or JSON, {"SHARD": OFFSET}')  # fmt: skip
    parser.add_argument("--to", dest="end", metavar="OFFSETS", help="as --from; latest")
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
        "failOnDataLoss": "false" if given.skip_lost else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def source(spark: SparkSession, given: argparse.Namespace, columns: str | None = None) -> DataFrame:
    """The records, after a look whether they can be read."""
    options = source_options(given, columns)
    ShardlogReader(read_options(options)).partitions()
    return spark.read.format("shardlog").options(**options).load()


def run(name: str, parser: argparse.ArgumentParser, work: Work, arguments: Sequence[str]) -> int:
    """The status to exit with; what goes wrong is one line.

    Where it runs is Spark's to say: `spark-submit --master`, or all cores of this machine.
    """
    given = parser.parse_args(arguments)
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        print(f"{name}: {_JAVA_MISSING}", file=sys.stderr)
        return USAGE
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    running = SparkSession.getActiveSession()
    try:
        spark = running or _session(name)
        try:
            return work(spark, given)
        finally:
            if running is None:
                spark.stop()
    except (PySparkException, SparkFailure, SnapshotFailure) as failure:
        print(f"{name}: {one_line(failure)}", file=sys.stderr)
        return status_of(failure)


def _session(name: str) -> SparkSession:
    spark = (
        SparkSession.builder.appName(f"shardlog {name}")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def status_of(failure: Exception) -> int:
    cause = failure if failure.__cause__ is None else failure.__cause__
    if isinstance(cause, Damaged) or "is damaged" in one_line(failure):
        return DAMAGED
    if isinstance(failure, BadOption):
        return USAGE
    if isinstance(cause, DestinationUnavailable | Unavailable | PySparkException):
        return UNAVAILABLE
    return REFUSED


def one_line(failure: Exception) -> str:
    """What we said, out of what Spark makes of it."""
    lines = str(failure).splitlines()
    ours = [line for line in lines if line.strip().startswith(_OURS)]
    if ours:
        return ours[-1].partition(": ")[2]
    return lines[0] if lines else type(failure).__name__


@contextmanager
def new_directory(spark: SparkSession, out: str) -> Iterator[None]:
    """Spark makes the directory before it reads; if the work fails it is taken away again."""
    jvm = spark._jvm
    assert jvm is not None, "jobs run where the driver is"
    path = jvm.org.apache.hadoop.fs.Path(out)
    files = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    if files.exists(path):
        raise CannotRead(f"{out} exists")
    try:
        yield
    except BaseException:
        files.delete(path, True)
        raise
