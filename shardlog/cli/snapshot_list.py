"""`shardlog snapshot list`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import rich_click as click

from shardlog.cli.client import DamagedLog, shard_argument
from shardlog.cli.output import Json, is_for_programs, output_option, print_table, print_value
from shardlog.cli.snapshot_place import archive_of, snapshot_failures, url_argument

if TYPE_CHECKING:
    from shardlog.snapshots.manifest import Manifest

COLUMNS = "id node created first> end> records> bytes>"
WIDE_COLUMNS = f"{COLUMNS} segments> epochs> head"


@click.command(name="list")
@shard_argument
@url_argument
@output_option
def list_snapshots(shard: str, place: str, output: str) -> None:
    """List the snapshots of SHARD at URL, the oldest first; status 9 if there is none."""
    found: list[Manifest] = []
    damaged: list[str] = []
    with snapshot_failures():
        from shardlog.snapshots.failures import Damaged, NoSuchSnapshot

        archive = archive_of(shard, place)
        ids = archive.ids()
        if not ids:
            raise NoSuchSnapshot(f"there is no snapshot of {shard} in {place}")
        for each in ids:
            try:
                found.append(archive.manifest(each))
            except Damaged as failure:
                damaged.append(str(failure))
    if is_for_programs(output):
        print_value({"snapshots": [_json(each) for each in found], "damaged": damaged}, output)
    elif output == "wide":
        print_table(WIDE_COLUMNS, [(*_row(each), *_more(each)) for each in found])
    else:
        print_table(COLUMNS, [_row(each) for each in found])
    if damaged:
        raise DamagedLog("; ".join(damaged))


def _row(manifest: Manifest) -> tuple[object, ...]:
    created = datetime.fromtimestamp(manifest.created_ms / 1000, UTC)
    return (
        manifest.id, manifest.node, f"{created:%Y-%m-%dT%H:%M:%SZ}", manifest.first, manifest.end,
        manifest.records, manifest.size,
    )  # fmt: skip


def _more(manifest: Manifest) -> tuple[object, ...]:
    return len(manifest.segments), len(manifest.history), f"{manifest.head:016x}"


def _json(manifest: Manifest) -> Json:
    found = manifest.to_json()
    return {
        **{name: found[name] for name in (
            "id", "shard", "node", "created_ms", "first", "end", "entries", "records", "bytes",
            "commit", "history",
        )},
        "segments": len(manifest.segments),
    }  # fmt: skip
