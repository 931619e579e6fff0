"""`shardlog read`: records of a shard, from one offset or time to another."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import rich_click as click

from shardlog.cli.client import (
    client_options,
    failures_as_exit_codes,
    shard_argument,
    until_pipe_closes,
)
from shardlog.cli.places import at_option, from_option
from shardlog.cli.record_format import FORMATS, renderer, table_heading

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from shardlog.client import EntryBatch, Record

    F = TypeVar("F", bound=Callable[..., Any])

BLOCK_RECORDS = 1024


def output_options(command: F) -> F:
    """Gives a command the arguments `output` and `null`."""
    command = click.option(
        "--null", is_flag=True, help="With raw: a NUL behind each record, no newline."
    )(command)
    return click.option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        default="raw",
        show_default=True,
        help="The bytes of each value and a newline; one JSON object on a line; a table.",
    )(command)


@click.command()
@shard_argument
@from_option
@at_option
@click.option("--to", "end", type=click.IntRange(min=0), metavar="OFFSET",
              help="Only records before this offset.")  # fmt: skip
@click.option("--count", type=click.IntRange(min=0), metavar="N", help="Not more than so many.")
@output_options
@client_options
def read(
    shard: str,
    start: int | None,
    start_ms: int | None,
    end: int | None,
    count: int | None,
    output: str,
    null: bool,
    url: str,
    timeout_ms: int,
) -> None:
    """Print the records of SHARD, from the first that is kept to the last one committed.

    Every record printed is held by a quorum. `shardlog tail -f` goes on with those to come.
    """
    with failures_as_exit_codes(), until_pipe_closes():
        from shardlog.cli.places import place
        from shardlog.cli.tls import tls_of_environment
        from shardlog.client.blocking import Client

        show = Printer(output, null)
        if count == 0:
            return
        with Client(url, tls=tls_of_environment()) as client:
            batches = client.batches(shard, place(start, start_ms), end, deadline_ms=timeout_ms)
            found = records(batches, start or 0, end)
            for block in blocks(found if count is None else islice(found, count)):
                show(block)


def records(batches: Iterable[EntryBatch], start: int, end: int | None) -> Iterator[Record]:
    for batch in batches:
        yield from batch.records(start, end)


def blocks(found: Iterator[Record]) -> Iterator[list[Record]]:
    while block := list(islice(found, BLOCK_RECORDS)):
        yield block


class Printer:
    """Records to the standard output."""

    def __init__(self, output: str, null: bool) -> None:
        width = None
        if output == "table":
            if sys.stdout.isatty():
                import shutil

                width = shutil.get_terminal_size().columns
            click.echo(table_heading())
        self._render = renderer(output, null, width)

    def __call__(self, found: Iterable[Record]) -> None:
        sys.stdout.buffer.write(self._render(found))
        sys.stdout.buffer.flush()
