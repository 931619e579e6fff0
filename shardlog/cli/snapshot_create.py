"""`shardlog snapshot create`."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from shardlog.cli.client import client_options, shard_argument
from shardlog.cli.cluster import complete_node
from shardlog.cli.output import Json, is_for_programs, output_option, print_table, print_value
from shardlog.cli.snapshot_place import (
    archive_of,
    bar,
    older_option,
    snapshot_failures,
    url_argument,
)
from shardlog.cli.snapshot_report import names_told, report_option, reported

if TYPE_CHECKING:
    from shardlog.snapshots.archive import Archive
    from shardlog.snapshots.collecting import Collected
    from shardlog.snapshots.creating import Progress
    from shardlog.snapshots.manifest import Manifest
    from shardlog.snapshots.reading import GivenUp

COLUMNS = "id first> end> records> bytes> written> reused> seconds>"


def _named(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    from shardlog.snapshots.archive import is_id

    if value is not None and not is_id(value):
        raise click.BadParameter(f"{value!r:.100} is no name: letters, digits, '.' and '-'")
    return value


@click.command()
@shard_argument
@url_argument
@click.option("--node", shell_complete=complete_node, metavar="NAME",
              help="What this node has, leader or not, every byte of it read.")  # fmt: skip
@click.option("--end", type=click.IntRange(min=0), metavar="OFFSET", help="Only what is below it, "
              "to the end of its batch.  [default: all that is committed]")  # fmt: skip
@click.option("--keep", type=click.IntRange(min=1), metavar="N", help="Delete all older ones but "
              "the last N, this one included.")  # fmt: skip
@older_option
@click.option("--id", "id_", metavar="ID", callback=_named, help="What it shall be called. One "
              "that is there already is left as it is, and told.")  # fmt: skip
@click.option("--segment-bytes", type=click.IntRange(64 << 10, 1 << 30), default=32 << 20,
              show_default=True, help="How long a new segment becomes.")  # fmt: skip
@report_option
@output_option
@client_options
def create(
    shard: str,
    place: str,
    node: str | None,
    end: int | None,
    keep: int | None,
    older_ms: int | None,
    id_: str | None,
    segment_bytes: int,
    report: Path | None,
    output: str,
    url: str,
    timeout_ms: int,
) -> None:
    """Take a snapshot of SHARD at URL, while everybody goes on.

    All that is committed when it begins is in it, and nothing else. What earlier snapshots at the
    same URL hold is neither read nor written again. If it is interrupted there is no snapshot, and
    the next one goes on with what was written.
    """
    from shardlog.snapshots.creating import Progress
    from shardlog.snapshots.reading import Wanted, given_up

    begun = time.monotonic()
    with reported(report) as told, snapshot_failures():
        archive = archive_of(shard, place, make=True)
        progress = Progress()
        with bar(f"snapshot of {shard}", is_bytes=False) as show:
            progress.on_change = lambda it: show(it.at - it.first, it.end - it.first)
            manifest = asyncio.run(
                _created(archive, node, end, segment_bytes, url, timeout_ms, id_, progress)
            )
        collected = None
        if keep is not None or older_ms is not None:
            collected = _kept(archive, keep or 1, older_ms)
        lost = given_up(archive, manifest.segments, Wanted())
        told |= _short(archive, manifest, progress, collected, lost)
    _print(manifest, progress, collected, lost, time.monotonic() - begun, output)


async def _created(
    archive: Archive,
    node: str | None,
    end: int | None,
    segment_bytes: int,
    url: str,
    timeout_ms: int,
    id_: str | None,
    progress: Progress,
) -> Manifest:
    from shardlog.client import Client, ClientLimits
    from shardlog.snapshots.creating import create as created

    async with Client(url, limits=ClientLimits(deadline_ms=timeout_ms)) as client:
        return await created(
            client, archive, node=node, end=end, segment_bytes=segment_bytes, id_=id_,
            progress=progress,
        )  # fmt: skip


def _short(
    archive: Archive,
    manifest: Manifest,
    progress: Progress,
    collected: Collected | None,
    lost: list[GivenUp],
) -> Json:
    """What the operator writes into the status of a ShardSnapshot."""
    return {
        "id": manifest.id,
        "manifest": archive.manifest_url(manifest.id),
        "first": manifest.first,
        "end": manifest.end,
        "epoch": manifest.history[-1].epoch if manifest.history else 0,
        "records": manifest.records,
        "bytes": manifest.size,
        "segments": len(manifest.segments),
        "written_bytes": progress.written_bytes,
        "written_segments": progress.written_segments,
        "reused_bytes": progress.reused_bytes,
        "reused_segments": progress.reused_segments,
        "given_up": sum(each.end - each.first for each in lost),
        "deleted": names_told(collected.snapshots) if collected else [],
    }


def _kept(archive: Archive, keep: int, older_ms: int | None) -> Collected:
    from shardlog.snapshots.collecting import delete, surplus

    return delete(archive, surplus(archive.readable()[0], keep, older_ms))


def _print(
    manifest: Manifest,
    progress: Progress,
    collected: Collected | None,
    lost: list[GivenUp],
    seconds: float,
    output: str,
) -> None:
    found: Json = {
        "id": manifest.id,
        "shard": manifest.shard,
        "node": manifest.node,
        "first": manifest.first,
        "end": manifest.end,
        "records": manifest.records,
        "bytes": manifest.size,
        "written_bytes": progress.written_bytes,
        "written_segments": progress.written_segments,
        "reused_bytes": progress.reused_bytes,
        "reused_segments": progress.reused_segments,
        "given_up": [{"first": each.first, "end": each.end} for each in lost],
        "seconds": round(seconds, 3),
        "deleted": list(collected.snapshots) if collected else [],
        "collected_segments": collected.segments if collected else 0,
        "not_collected": collected.why_not if collected else None,
        "damaged": list(progress.damaged),
    }
    if is_for_programs(output):
        print_value(found, output)
        return
    print_table(COLUMNS, [(
        manifest.id, manifest.first, manifest.end, manifest.records, manifest.size,
        progress.written_bytes, progress.reused_bytes, f"{seconds:.1f}",
    )])  # fmt: skip
    for manifest_damaged in progress.damaged:
        click.echo(f"an earlier snapshot: {manifest_damaged}", err=True)
    for each in lost:
        click.echo(f"offsets {each} are not in it: they were given up", err=True)
    if collected is not None and collected.why_not is not None:
        click.echo(f"segments were not collected: {collected.why_not}", err=True)
