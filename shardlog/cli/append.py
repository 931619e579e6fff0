"""`shardlog append`: records from arguments, the standard input or a file, each exactly once."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import rich_click as click

from shardlog.cli.client import BadInput, client_options, shard_argument, until_pipe_closes
from shardlog.cli.failures import BadUsage
from shardlog.cli.record_input import Source

if TYPE_CHECKING:
    from shardlog.cli.appending import Appending, Blocks

SHOW_S = 0.1
COMPRESSIONS = ("none", "zstd", "lz4")


@click.command()
@shard_argument
@click.argument("records", nargs=-1, metavar="[RECORD]…")
@click.option("--file", "path", type=click.Path(path_type=Path), metavar="FILE",
              help="Take records from this file.")  # fmt: skip
@click.option("--key", metavar="TEXT", help="The key of all these records.")
@click.option("--lines", is_flag=True,
              help="A record on each line (this is the default).")  # fmt: skip
@click.option("--null", is_flag=True, help="A record before each NUL.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object on each line, as `shardlog "
              "read -o json` prints them: value, key, headers, timestamp_ms.")  # fmt: skip
@click.option("--offsets", is_flag=True, help="Print the offset of each record.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text",
              show_default=True, help="How to tell what was done.")  # fmt: skip
@click.option("--batch-bytes", type=click.IntRange(1, 4 << 20), default=256 << 10,
              show_default=True, help="How large a batch may become.")  # fmt: skip
@click.option("--linger-ms", type=click.FloatRange(min=0), default=2.0, show_default=True,
              help="How long a batch waits for more, while others are under way.")  # fmt: skip
@click.option("--compression", type=click.Choice(COMPRESSIONS), default="none", show_default=True,
              help="How batches are compressed.")  # fmt: skip
@client_options
def append(
    shard: str,
    records: tuple[str, ...],
    path: Path | None,
    key: str | None,
    lines: bool,
    null: bool,
    as_json: bool,
    offsets: bool,
    quiet: bool,
    output: str,
    batch_bytes: int,
    linger_ms: float,
    compression: str,
    url: str,
    timeout_ms: int,
) -> None:
    """Append RECORDs to SHARD; without any, those on the standard input.

    Whatever happens to the cluster meanwhile, each is appended once, and in this order. When this
    command succeeds, all are held by a quorum. For RECORDs the offset of each is printed, else how
    many there were.
    """
    if lines + null + as_json > 1:
        raise BadUsage("--lines, --null and --json exclude each other")
    how = "null" if null else "json" if as_json else "lines"
    if records and records != ("-",) and (path or how != "lines"):
        raise BadUsage("RECORDs cannot be given together with --file, --null or --json")
    if path and records:
        raise BadUsage("--file and - exclude each other")
    if key is not None and how == "json":
        raise BadUsage("--json has keys of its own")
    from shardlog.cli.appending import Appending

    given = bool(records) and records != ("-",)
    work = Appending(
        shard, url, timeout_ms, batch_bytes, linger_ms, compression,
        key=None if key is None else key.encode(errors="surrogateescape"),
        each=(offsets or given) and not quiet and output == "text",
    )  # fmt: skip
    begun = time.monotonic()
    with until_pipe_closes():
        if given:
            values = [each.encode(errors="surrogateescape") for each in records]
            _run(work, iter([values]))
        else:
            with _opened(path) as (file, name):
                source = Source(
                    file, name, b"\0" if how == "null" else b"\n", work.record_bytes_max
                )
                blocks = source.inputs() if how == "json" else source.values()
                size = path.stat().st_size if path else None
                with _bar(work, source, size, file.isatty()):
                    _run(work, blocks)
        if not quiet:
            _tell(work, output, time.monotonic() - begun)


def _run(work: Appending, blocks: Blocks) -> None:
    """Who presses Ctrl-C is told what was done until then."""
    from shardlog.cli.appending import append_all

    try:
        asyncio.run(append_all(work, blocks))
    except KeyboardInterrupt:
        click.echo(work.with_doubts(), err=True)
        raise


@contextmanager
def _bar(work: Appending, source: Source, size: int | None, is_typed: bool) -> Iterator[None]:
    """On the terminal, how far it is."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if is_typed or not console.is_terminal:
        yield
        return
    columns = (
        TextColumn("appending"), BarColumn(), DownloadColumn(),
        TextColumn("{task.fields[records]:,} records"), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=size, records=0)
        shown = 0.0

        def show() -> None:
            nonlocal shown
            if time.monotonic() - shown >= SHOW_S:
                shown = time.monotonic()
                progress.update(task, completed=source.position, records=work.count)

        work.on_progress = show
        yield


@contextmanager
def _opened(path: Path | None) -> Iterator[tuple[IO[bytes], str]]:
    """Without buffers: they have locks, and a thread that waits for input would keep one."""
    if path is None:
        buffered = sys.stdin.buffer
        yield getattr(buffered, "raw", buffered), "standard input"
        return
    try:
        file = path.open("rb", buffering=0)
    except OSError as failure:
        raise BadInput(f"{path}: {failure.strerror}") from failure
    with file:
        yield file, str(path)


def _tell(work: Appending, output: str, seconds: float) -> None:
    if output == "json":
        told = {
            "shard": work.shard,
            "records": work.count,
            "bytes": work.value_bytes,
            "first": work.first,
            "last": work.last,
            "seconds": round(seconds, 3),
        }
        click.echo(json.dumps(told))
    elif not work.each:
        click.echo(f"{work.done_so_far()}, {work.count / seconds:,.0f} records/s")
    sys.stdout.flush()
