"""A disk without room: the others go on, and the node does when there is room again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from faults.cluster import FaultCluster, until
from faults.nursery import Nursery
from faults.ordeal import SHARD, TIMES, Ordeal, survive
from faults.small_volume import SmallVolume, small_volume

TIMES_FULL = int(4 * TIMES)
VOLUME_MIB = int(64 * max(1, TIMES))
RECORD_BYTES = 1024
SETTINGS = {"SEGMENT_BYTES_MIN": "512KiB", "SEGMENT_BYTES_MAX": "1MiB"}
NODE, OTHER = "node-1", "node-2"


async def fill_on(ordeal: Ordeal, volume: SmallVolume) -> None:
    """As a leader and as a follower, the last time with a kill."""
    cluster = ordeal.cluster
    for number in range(TIMES_FULL):
        await lead(ordeal, NODE if number % 2 == 0 else OTHER)
        stalls, goings_on = told(cluster, "replica stalled"), told(cluster, "replica goes on")
        volume.fill()
        await until(partial(is_told, cluster, "replica stalled", stalls), "it never fills up")
        await ordeal.outage("disk full")
        await ordeal.load.until_more(ordeal.random.randint(100, 2000))
        if number == TIMES_FULL - 1:
            cluster.nodes[NODE].kill()
            cluster.nodes[NODE].start()
            await ordeal.outage("killed with its disk full")
            volume.make_room()
        else:
            volume.make_room()
            await until(partial(is_told, cluster, "replica goes on", goings_on), "it stands still")
        await ordeal.outage("room again")


def told(cluster: FaultCluster, event: str) -> int:
    return len(cluster.told(NODE, event))


def is_told(cluster: FaultCluster, event: str, before: int) -> bool:
    return told(cluster, event) > before


async def lead(ordeal: Ordeal, node: str) -> None:
    """Make it the leader; that something else is under way is no reason to give up."""
    cluster = ordeal.cluster
    asked = {"operation": "promote", "node": node}
    while await cluster.leader(SHARD) != node:
        await cluster.ask("POST", f"/v1/shards/{SHARD}/operations", asked)
        await ordeal.outage("promoted")


def test_a_full_disk_stops_nobody_else(tmp_path: Path, nursery: Nursery):
    cluster = FaultCluster(tmp_path / "cluster", settings=SETTINGS, nursery=nursery)
    with small_volume(cluster.volume(NODE), VOLUME_MIB) as volume:
        cluster.volumes[NODE] = volume.path
        cluster.before_start = lambda: volume.keep(cluster.nodes[NODE])
        survive(cluster, lambda ordeal: fill_on(ordeal, volume), record_bytes=RECORD_BYTES)
