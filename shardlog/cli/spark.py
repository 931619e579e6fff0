"""`shardlog spark JOB`: the jobs for Spark, on this machine."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import rich_click as click
from click.exceptions import Exit

from shardlog.cli.failures import BadUsage

JOBS = ("export", "audit", "profile", "compact", "sessionize")


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("job", type=click.Choice(JOBS))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def spark(job: str, arguments: tuple[str, ...]) -> None:
    """Run a job with Spark on this machine; `shardlog spark JOB --help` tells its options.

    export: records to Parquet, by day. audit: whether all replicas hold the same log.
    profile: rates, sizes, keys and epochs, as a table and a page. compact: the latest record of
    each key. sessionize: what each key did without a long pause.
    """
    if find_spec("pyspark") is None or find_spec("shardlog_spark") is None:
        raise BadUsage("jobs need: pip install 'shardlog[spark]', and Java 17")
    status = import_module(f"shardlog_spark.{job}_job").main(list(arguments))
    raise Exit(int(status))
