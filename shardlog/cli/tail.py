"""`shardlog tail`: the last records of a shard, and those to come."""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING

import rich_click as click

from shardlog.cli.client import (
    client_options,
    failures_as_exit_codes,
    leave_when_pipe_closes,
    shard_argument,
    until_pipe_closes,
)
from shardlog.cli.places import at_option, from_option
from shardlog.cli.read import Printer, Source, output_options, skip_option

if TYPE_CHECKING:
    from shardlog.client import Record
    from shardlog.client.blocking import Client

RECORDS_DEFAULT = 10


@click.command()
@shard_argument
@click.option("-n", "--count", type=click.IntRange(min=0), metavar="N",
              help=f"How many of the last records.  [default: {RECORDS_DEFAULT}]")  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Go on with what is appended from now on, until "
              "Ctrl-C.")  # fmt: skip
@from_option
@at_option
@skip_option
@output_options
@client_options
def tail(
    shard: str,
    count: int | None,
    follow: bool,
    start: int | None,
    start_ms: int | None,
    skip: bool,
    output: str,
    null: bool,
    url: str,
    timeout_ms: int,
) -> None:
    """Print the last records of SHARD; with -f go on with the next ones, failovers or not."""
    with failures_as_exit_codes(), until_pipe_closes():
        from shardlog.cli.failures import BadUsage
        from shardlog.cli.places import place
        from shardlog.cli.tls import tls_of_environment
        from shardlog.client.blocking import Client

        if follow:
            leave_when_pipe_closes()
        begins = place(start, start_ms)
        given = start is not None or start_ms is not None
        if given and count is not None:
            raise BadUsage("--count tells where to start, and so do --from and --from-time")
        show = Printer(output, null)
        with Client(url, tls=tls_of_environment()) as client:
            if not given:
                end = client.end(shard, deadline_ms=timeout_ms)
                wanted = RECORDS_DEFAULT if count is None else count
                show(last(client, shard, wanted, end, timeout_ms, skip))
                begins = start = end
            if follow or given:
                batches = client.tail_batches if follow else client.batches
                source = Source(shard, lambda at: batches(shard, at, deadline_ms=timeout_ms), skip)
                for block in source.blocks(begins, start or 0, None):
                    show(block)


def last(
    client: Client, shard: str, count: int, end: int, timeout_ms: int, skip: bool
) -> list[Record]:
    """The last records before `end`.  Not every offset has one: elections leave entries too."""
    if not count:
        return []
    first = client.first(shard, deadline_ms=timeout_ms)
    reach = count + 8
    while True:
        start = max(first, end - reach)
        source = Source(
            shard,
            lambda at: client.batches(shard, at, end, deadline_ms=timeout_ms, from_first_kept=True),
            skip,
        )
        blocks = source.blocks(start, start, end)
        found = deque(chain.from_iterable(blocks), maxlen=count)
        if len(found) == count or start == first:
            return list(found)
        reach *= 4
