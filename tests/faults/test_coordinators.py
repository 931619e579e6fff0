"""Three coordinators at once over one metadata file, all taking themselves for the only one.

Each of them elects when it sees fit.  Compare-and-swap and epochs alone decide who prevails.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from faults.cluster import FaultCluster
from faults.nursery import Nursery
from faults.ordeal import SHARD, TIMES, Ordeal, survive
from faults.processes import Process

STEPS = int(20 * TIMES)
PAUSE_MS = 1500
KINDS = ("leader", "coordinator", "both", "promote", "stale coordinator")


async def battle(ordeal: Ordeal) -> None:
    cluster, random = ordeal.cluster, ordeal.random
    for step in range(STEPS):
        leader, followers = await ordeal.leader(), await ordeal.followers()
        coordinator = random.choice([*cluster.coordinators.values()])
        kind = KINDS[step % len(KINDS)]
        if kind == "promote":
            asked = {"operation": "promote", "node": random.choice(followers)}
            await cluster.ask("POST", f"/v1/shards/{SHARD}/operations", asked)
        elif kind == "stale coordinator":
            await with_stale(ordeal, coordinator, cluster.nodes[leader])
            continue
        else:
            killed = [cluster.nodes[leader]] if kind in ("leader", "both") else []
            killed += [coordinator] if kind in ("coordinator", "both") else []
            for process in killed:
                process.kill()
            for process in killed:
                process.start()
        await ordeal.outage(kind)
        await ordeal.load.until_more(random.randint(1, 100))


async def with_stale(ordeal: Ordeal, stale: Process, leader: Process) -> None:
    """One that stands still over an election, and goes on with what it knew before."""
    stale.pause()
    leader.kill()
    leader.start()
    await ordeal.outage("leader, with a coordinator paused")
    await asyncio.sleep(ordeal.random.random() * PAUSE_MS / 1000)
    stale.resume()
    await ordeal.outage("coordinator going on")


def test_battling_coordinators_lose_nothing(tmp_path: Path, nursery: Nursery):
    survive(FaultCluster(tmp_path / "cluster", coordinators=3, nursery=nursery), battle)
