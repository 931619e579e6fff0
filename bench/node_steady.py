"""A cluster that is saturated for minutes: nobody is elected, and no memory grows.

The shard keeps a bounded log: it is trimmed behind the writer, which is part of the load.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from node_cluster import Cluster
from node_load import Flood

from shardlog.client import Client

LOOK_S = 2.0


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
    async with Client(cluster.url) as client:
        flood = Flood(client.producer(shard))
        begun = time.monotonic()
        async with flood.running():
            while time.monotonic() < begun + seconds:
                await asyncio.sleep(min(LOOK_S, seconds))
                for name, process in nodes.items():
                    mib = process.memory_info().rss / (1 << 20)
                    resident[name] = max(resident[name], mib)
            taken = time.monotonic() - begun
            acked = flood.acked
        found = await asyncio.to_thread(cluster.shard, shard)
    return Steady(taken, acked / taken, found["epoch"] - epoch, resident)
