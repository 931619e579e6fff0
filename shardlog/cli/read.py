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
from shardlog.cli.escaping import escaped
from shardlog.cli.places import at_option, from_option
from shardlog.cli.record_format import FORMATS, renderer, table_heading

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from shardlog.client import EntryBatch, Record
    from shardlog.client.records import Start

    F = TypeVar("F", bound=Callable[..., Any])

BLOCK_RECORDS = 1024


skip_option = click.option(
    "--skip-unreadable", "skip", is_flag=True, help="Pass over entries that are no batches of "
    "records, and name them on the error output.",
)  # fmt: skip


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
@skip_option
@output_options
@client_options
def read(
    shard: str,
    start: int | None,
    start_ms: int | None,
    end: int | None,
    count: int | None,
    skip: bool,
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
            source = Source(
                shard, lambda at: client.batches(shard, at, end, deadline_ms=timeout_ms), skip
            )
            left = count
            for block in source.blocks(place(start, start_ms), start or 0, end):
                show(block[:left])
                left = None if left is None else left - min(left, len(block))
                if left == 0:
                    return


class Source:
    """The entries of a shard; `open_at` yields them from a place on.

    One that is no batch of records raises `UnreadableBatch`, or is told and passed over (`skip`).
    """

    def __init__(
        self, shard: str, open_at: Callable[[Start], Iterable[EntryBatch]], skip: bool
    ) -> None:
        self._shard = shard
        self._open_at = open_at
        self._skip = skip

    def blocks(self, begin: Start, start: int, end: int | None) -> Iterator[list[Record]]:
        """Records with offsets in `[start, end)`, some of one entry at a time."""
        from shardlog.client.failures import UnreadableBatch

        while True:
            try:
                for batch in self._open_at(begin):
                    yield from self._blocks_of(batch, start, end)
                return
            except UnreadableBatch as failure:
                if not self._skip:
                    raise
                click.echo(escaped(f"skipped: {failure}"), err=True)
                begin = start = failure.next

    def _blocks_of(self, batch: EntryBatch, start: int, end: int | None) -> Iterator[list[Record]]:
        """Those before a record whose headers cannot be read are there."""
        from shardlog.client.failures import UnreadableBatch
        from shardlog.transport.failures import MalformedBatch

        found = batch.records(start, end)
        block: list[Record] = []
        try:
            while True:
                block = []
                block.extend(islice(found, BLOCK_RECORDS))
                if not block:
                    return
                yield block
        except MalformedBatch as failure:
            if block:
                yield block
            raise UnreadableBatch(
                self._shard, batch.base_offset, batch.end, str(failure)
            ) from failure


class Printer:
    """Records to the standard output."""

    def __init__(self, output: str, null: bool) -> None:
        width = None
        if output == "table":
            if sys.stdout.isatty():
                import shutil

                width = shutil.get_terminal_size().columns
            click.echo(table_heading())
        self._render = renderer(output, null, width, sys.stdout.isatty())

    def __call__(self, found: Iterable[Record]) -> None:
        sys.stdout.buffer.write(self._render(found))
        sys.stdout.buffer.flush()
