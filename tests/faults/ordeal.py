"""One ordeal: a cluster under load, something done to it, and the judgement at the end.

A seed chooses what is done, to whom and when; which process gets how far in between is up to the
machine, so the same seed tells the same story but not the same one to the millisecond.

    FAULTS_SEED=7 pytest tests/faults/test_kills.py    that seed
    FAULTS_TIMES=10 pytest tests/faults                everything ten times as long
"""

from __future__ import annotations

import asyncio
import os
import statistics
from collections import defaultdict
from collections.abc import Awaitable, Callable
from random import Random

from faults.cluster import FaultCluster
from faults.disks import differences, read_disk, verified
from faults.history import Fate, History, contradictions
from faults.load import RECORD_BYTES, Load

SHARD = "orders"
SEED = int(os.environ.get("FAULTS_SEED", "1"))
TIMES = float(os.environ.get("FAULTS_TIMES", "1"))
TOLD_MAX = 20


class Ordeal:
    """What a test does to the cluster goes through here, and is counted."""

    def __init__(self, cluster: FaultCluster, load: Load, random: Random) -> None:
        self.cluster = cluster
        self.load = load
        self.random = random
        self.epochs = 0
        self.kills = 0
        self.ensembles: set[frozenset[str]] = set()
        self.outages_ms: dict[str, list[float]] = defaultdict(list)

    async def outage(self, kind: str) -> None:
        """Wait until a record that is sent from now on is acknowledged."""
        self.outages_ms[kind].append(await self.load.until_acknowledged())

    async def leader(self) -> str:
        """Whoever leads, or led last; anybody if no coordinator can tell."""
        return await self.cluster.leader(SHARD) or self.random.choice(list(self.cluster.nodes))

    async def followers(self) -> list[str]:
        leader = await self.leader()
        return [node for node in self.cluster.nodes if node != leader]


Doing = Callable[[Ordeal], Awaitable[None]]


def survive(cluster: FaultCluster, doing: Doing, *, record_bytes: int = RECORD_BYTES) -> Ordeal:
    """Fails with everything that contradicts what was acknowledged; names the seed then."""
    try:
        load = Load(cluster, SHARD, SEED, record_bytes=record_bytes)
        ordeal = Ordeal(cluster, load, Random(SEED))
        asyncio.run(live_through(ordeal, doing))
    except BaseException:
        print(f"FAULTS_SEED={SEED}; everything is in {cluster.layout.directory}")
        raise
    tell(ordeal)
    return ordeal


async def live_through(ordeal: Ordeal, doing: Doing, replicas: int = 3) -> None:
    cluster, load = ordeal.cluster, ordeal.load
    async with cluster.running():
        await cluster.create(SHARD, replicas)
        async with load.running():
            await doing(ordeal)
        found = await cluster.status(SHARD)
        ordeal.epochs = found["epoch"]
        ordeal.ensembles.add(frozenset(found["ensemble"]))
        ordeal.kills = cluster.kills
        for process in cluster.processes:
            process.kill()
        judge(cluster, found["ensemble"], load.history)


def judge(cluster: FaultCluster, ensemble: list[str], history: History) -> None:
    end = history.log[-1].offset + 1 if history.log else 0
    disks = {}
    for node in ensemble:
        verified(cluster.volume(node))
        disks[node] = read_disk(cluster.volume(node))
        history.disks[f"the disk of {node}"] = disks[node].records_below(end)
    found = [*contradictions(history), *differences(disks)]
    assert not found, "\n".join([f"{len(found)} contradictions:", *found[:TOLD_MAX]])


def tell(ordeal: Ordeal) -> None:
    """The figures, for whoever looks (`pytest -s`)."""
    history = ordeal.load.history
    print(
        f"\nseed {SEED}: {ordeal.kills} kills, {ordeal.epochs} epochs, "
        f"{len(history.sent)} records sent, {len(history.with_fate(Fate.ACKNOWLEDGED))} "
        f"acknowledged, {len(history.with_fate(Fate.UNKNOWN))} of unknown fate, "
        f"{len(history.log)} read, {len(history.reads)} confirmed reads, "
        f"{len(ordeal.ensembles)} ensembles"
    )
    for kind, found in sorted(ordeal.outages_ms.items()):
        median = statistics.median(found)
        print(f"{kind}: {len(found)} times, median {median:.0f} ms, worst {max(found):.0f} ms")
