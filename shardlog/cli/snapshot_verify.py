"""`shardlog snapshot verify`."""

from __future__ import annotations

import rich_click as click

from shardlog.cli.client import DamagedLog, shard_argument
from shardlog.cli.output import Json, is_for_programs, output_option, print_table, print_value
from shardlog.cli.snapshot_place import (
    archive_of,
    bar,
    chosen,
    id_option,
    snapshot_failures,
    url_argument,
)

COLUMNS = "id records> bytes> damaged> given_up>"


@click.command()
@shard_argument
@url_argument
@id_option
@output_option
def verify(shard: str, place: str, snapshot_id: str | None, output: str) -> None:
    """Read a snapshot of SHARD at URL whole: every checksum, and that it is one chain.

    Status 7 if anything is not as it was written, with a line for each damaged segment. Records
    that were given up before it was taken are told, and are no damage.
    """
    with snapshot_failures():
        from shardlog.snapshots.reading import GivenUp
        from shardlog.snapshots.verifying import verify as verified

        archive = archive_of(shard, place)
        manifest = chosen(archive, snapshot_id)
        read = 0
        with bar(f"verifying {manifest.id}", is_bytes=True) as show:

            def on_read(size: int) -> None:
                nonlocal read
                read += size
                show(read, manifest.size)

            found_out = list(verified(archive, manifest, on_read))
    lost = [each for each in found_out if isinstance(each, GivenUp)]
    damaged = [each for each in found_out if not isinstance(each, GivenUp)]
    found: Json = {
        "id": manifest.id,
        "records": manifest.records,
        "bytes": manifest.size,
        "damaged": [
            {"segment": each.name, "offset": each.offset, "reason": each.reason} for each in damaged
        ],
        "given_up": [{"first": each.first, "end": each.end} for each in lost],
    }
    if is_for_programs(output):
        print_value(found, output)
    else:
        row = (
            manifest.id,
            manifest.records,
            manifest.size,
            len(damaged),
            sum(it.end - it.first for it in lost),
        )
        print_table(COLUMNS, [row])
        for each in damaged:
            click.echo(str(each), err=True)
        for gone in lost:
            click.echo(f"offsets {gone} were given up before it was taken", err=True)
    if damaged:
        count = len(damaged)
        raise DamagedLog(f"{count} of {len(manifest.segments)} segments are damaged")
