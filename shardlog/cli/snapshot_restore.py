"""`shardlog snapshot restore`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import rich_click as click

from shardlog.cli.client import DamagedLog, client_options
from shardlog.cli.cluster import Cluster
from shardlog.cli.failures import ClusterRefused, ClusterUnavailable
from shardlog.cli.output import Json, is_for_programs, output_option, print_table, print_value
from shardlog.cli.snapshot_place import (
    DestinationDown,
    DestinationSaidNo,
    archive_of,
    bar,
    chosen,
    id_option,
    snapshot_failures,
    url_argument,
)
from shardlog.cli.waiting import wait_until

if TYPE_CHECKING:
    from shardlog.snapshots.archive import Archive
    from shardlog.snapshots.manifest import Manifest
    from shardlog.snapshots.restoring import Restored

COLUMNS = "shard from records> skipped> moved> given_up> seconds>"
CREATE_TIMEOUT_S = 60.0


@click.command()
@click.argument("shard")
@url_argument
@click.option("--from", "source", metavar="NAME", help="Whose snapshot it is.  [default: SHARD]")
@id_option
@click.option("--replicas", type=int, default=3, show_default=True, help="Of the new shard.")
@click.option("--check", is_flag=True, help="Restore nothing: tell how many records of the "
              "snapshot SHARD has; status 9 unless it has all.")  # fmt: skip
@output_option
@client_options
def restore(
    shard: str,
    place: str,
    source: str | None,
    snapshot_id: str | None,
    replicas: int,
    check: bool,
    output: str,
    url: str,
    timeout_ms: int,
) -> None:
    """Make SHARD out of a snapshot at URL.

    Keys, values, headers, times and the order of records are kept; offsets too if the snapshot
    begins with the log's first record, and no election comes in between. Interrupted, it goes on
    where it was when it is run again; `--check` tells whether it is complete. SHARD is created if
    it is not there, else it must be empty or of the same restore.
    """
    from shardlog.snapshots.verifying import require_there

    begun = time.monotonic()
    with snapshot_failures():
        archive = archive_of(source or shard, place)
        manifest = chosen(archive, snapshot_id)
        if check:
            _check(shard, manifest, asyncio.run(_held(archive, manifest, shard, url, timeout_ms)))
            return
        require_there(archive, manifest)
        if not url.startswith("shardlog://"):
            _create(Cluster(url), shard, replicas)
    with bar(f"restoring {shard}", is_bytes=False) as show:
        restored = _all_restored(archive, manifest, shard, url, timeout_ms, show)
    found: Json = {
        "shard": shard,
        "from": manifest.id,
        "records": restored.records,
        "skipped": restored.skipped,
        "moved": restored.moved,
        "given_up": restored.given_up,
        "seconds": round(time.monotonic() - begun, 3),
    }
    if is_for_programs(output):
        print_value(found, output)
    else:
        print_table(COLUMNS, [list(found.values())])


def _check(shard: str, manifest: Manifest, records: int) -> None:
    if records < manifest.records:
        raise DestinationSaidNo(_incomplete(shard, manifest, f"{records:,}"))
    click.echo(f"{shard} has all {manifest.records:,} records of {manifest.id}")


def _incomplete(shard: str, manifest: Manifest, records: str) -> str:
    return f"{shard} is not complete: it has {records} of {manifest.records:,} records"


def _all_restored(
    archive: Archive,
    manifest: Manifest,
    shard: str,
    url: str,
    timeout_ms: int,
    show: Callable[[float, float], None],
) -> Restored:
    """A failure on the way says what it leaves behind."""
    latest: Restored | None = None

    def on_progress(it: Restored) -> None:
        nonlocal latest
        latest = it
        show(it.records, manifest.records)

    try:
        with snapshot_failures():
            return asyncio.run(_restored(archive, manifest, shard, url, timeout_ms, on_progress))
    except (DamagedLog, DestinationDown, ClusterUnavailable) as failure:
        if latest is None:
            raise
        left = _incomplete(shard, manifest, f"at least {latest.records:,}")
        raise type(failure)(
            f"{failure.message}; {left}: the same command goes on there once this is mended, "
            f"`shardlog shard delete {shard}` gives it up"
        ) from failure


def _create(cluster: Cluster, shard: str, replicas: int) -> None:
    try:
        cluster.post("shards", body={"name": shard, "replicas": replicas})
    except ClusterRefused as refusal:
        if refusal.kind != "ShardExists":
            raise
    wait_until(
        cluster,
        shard,
        lambda it: it is not None and it["status"] == "STEADY" and bool(it["leader"]),
        CREATE_TIMEOUT_S,
        f"create {shard}",
    )


async def _restored(
    archive: Archive,
    manifest: Manifest,
    shard: str,
    url: str,
    timeout_ms: int,
    on_progress: Callable[[Restored], None],
) -> Restored:
    from shardlog.client import Client, ClientLimits
    from shardlog.snapshots.restoring import restore as restored

    async with Client(url, limits=ClientLimits(deadline_ms=timeout_ms)) as client:
        return await restored(client, archive, manifest, shard, on_progress=on_progress)


async def _held(archive: Archive, manifest: Manifest, shard: str, url: str, timeout_ms: int) -> int:
    from shardlog.client import Client, ClientLimits
    from shardlog.snapshots.restoring import held

    async with Client(url, limits=ClientLimits(deadline_ms=timeout_ms)) as client:
        return await held(client, archive, manifest, shard)
