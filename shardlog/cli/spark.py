"""`shardlog spark JOB`: the jobs for Spark, on this machine."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import rich_click as click
from click.exceptions import Exit

from shardlog.cli.failures import BadUsage

JOBS = {
    "export": "What is new to Parquet, by day, again and again.",
    "audit": "Whether all replicas hold the same log.",
    "profile": "Rates, sizes, keys and epochs, as a table and a page.",
    "compact": "The latest record of each key.",
    "sessionize": "What each key did without a long pause.",
}


@click.group()
def spark() -> None:
    """Run a job with Spark on this machine; `shardlog spark JOB --help` tells its options."""


def _job(name: str, told: str) -> click.Command:
    """Its arguments are its own, `--help` too: it is a script for `spark-submit` as well."""

    @click.command(
        name=name,
        help=told,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "help_option_names": []},
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def job(arguments: tuple[str, ...]) -> None:
        if find_spec("pyspark") is None or find_spec("shardlog_spark") is None:
            raise BadUsage("jobs need: pip install 'shardlog[spark]', and Java 17")
        status = import_module(f"shardlog_spark.{name}_job").main(list(arguments))
        raise Exit(int(status))

    return job


for _name, _told in JOBS.items():
    spark.add_command(_job(_name, _told))
