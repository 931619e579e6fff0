"""A cluster that is saturated for minutes: nobody is elected, and no memory grows.

The log is trimmed behind the writer, so that the disk does not fill up; that is part of the load.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from node_cluster import Cluster
from node_load import Flood

from shardlog.client import Client

LOOK_S = 2.0
KEPT_RECORDS = 4_000_000


@dataclass(frozen=True, slots=True)
class Steady:
    seconds: float
    records_per_s: float
    elections: int
    """How much the epoch has risen."""
    resident_mib_max: dict[str, float]
    """By node."""


async def steady(cluster: Cluster, shard: str, seconds: float) -> Steady:
    found = await asyncio.to_thread(cluster.until_whole, shard)
    epoch = found["epoch"]
    nodes = {name: cluster.process(name) for name in found["ensemble"]}
    resident = dict.fromkeys(nodes, 0.0)
    trimmed = 0
    async with Client(cluster.url) as client:
        flood = Flood(client.producer(shard))
        begun = time.monotonic()
        async with flood.running():
            while time.monotonic() < begun + seconds:
                await asyncio.sleep(min(LOOK_S, seconds))
                for name, process in nodes.items():
                    mib = process.memory_info().rss / (1 << 20)
                    resident[name] = max(resident[name], mib)
                if flood.end > trimmed + 2 * KEPT_RECORDS:
                    trimmed = flood.end - KEPT_RECORDS
                    await asyncio.to_thread(cluster.trim, shard, trimmed)
            taken = time.monotonic() - begun
            acked = flood.acked
        found = await asyncio.to_thread(cluster.shard, shard)
    return Steady(taken, acked / taken, found["epoch"] - epoch, resident)
