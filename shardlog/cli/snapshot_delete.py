"""`shardlog snapshot delete`."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from shardlog.cli.client import shard_argument
from shardlog.cli.confirming import confirm
from shardlog.cli.failures import BadUsage
from shardlog.cli.output import Json, is_for_programs, output_option, print_value
from shardlog.cli.snapshot_place import archive_of, older_option, snapshot_failures, url_argument
from shardlog.cli.snapshot_report import names_told, report_option, reported


@click.command()
@shard_argument
@url_argument
@click.argument("ids", nargs=-1, metavar="[ID]…")
@click.option("--keep", type=click.IntRange(min=0), metavar="N",
              help="All but the last N, counted for each --node apart.")  # fmt: skip
@older_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@report_option
@output_option
def delete(
    shard: str,
    place: str,
    ids: tuple[str, ...],
    keep: int | None,
    older_ms: int | None,
    yes: bool,
    report: Path | None,
    output: str,
) -> None:
    """Delete snapshots of SHARD at URL, and segments that no other snapshot names.

    While a snapshot is being created no segments are collected; the next `delete` does it.
    """
    by_rule = keep is not None or older_ms is not None
    if bool(ids) == by_rule:
        raise BadUsage("either IDs, or --keep N and --older-than TIME, say which are meant")
    with reported(report) as told, snapshot_failures():
        from shardlog.snapshots.collecting import delete as deleted
        from shardlog.snapshots.collecting import surplus

        archive = archive_of(shard, place)
        if by_rule:
            ids = tuple(surplus(archive.readable()[0], keep or 0, older_ms))
        else:
            _require_there(shard, ids, archive.ids())
        if ids and not yes:
            confirm(f"Delete {_counted(ids)} of {shard}?")
        collected = deleted(archive, ids)
        told |= {"deleted": names_told(collected.snapshots), "bytes": collected.size}
    found: Json = {
        "deleted": list(collected.snapshots),
        "collected_segments": collected.segments,
        "collected_bytes": collected.size,
        "not_collected": collected.why_not,
    }
    if is_for_programs(output):
        print_value(found, output)
        return
    click.echo(
        f"{_counted(collected.snapshots)} deleted, {collected.segments} segments of "
        f"{collected.size:,} bytes collected"
    )
    if collected.why_not is not None:
        click.echo(f"segments were left: {collected.why_not}", err=True)


def _counted(ids: tuple[str, ...]) -> str:
    return f"{len(ids)} snapshot{'' if len(ids) == 1 else 's'}"


def _require_there(shard: str, ids: tuple[str, ...], there: list[str]) -> None:
    from shardlog.snapshots.failures import NoSuchSnapshot

    for each in ids:
        if each not in there:
            raise NoSuchSnapshot(f"there is no snapshot {each} of {shard}")
