"""Reconfigurations under load while processes are killed: grown, shrunk and swapped, five nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from faults.cluster import FaultCluster
from faults.nursery import Nursery
from faults.ordeal import SHARD, TIMES, Ordeal, survive

CHANGES = int(10 * TIMES)
REPLICAS = (3, 4, 5)
WITHIN_MS = 1500
"""How long after a change was asked for somebody is killed, at most."""


async def change_on(ordeal: Ordeal) -> None:
    cluster, random = ordeal.cluster, ordeal.random
    for _ in range(CHANGES):
        asked = await ask(ordeal)
        await asyncio.sleep(random.random() * WITHIN_MS / 1000)
        coordinator = next(iter(cluster.coordinators.values()))
        victims = random.choice(
            [
                [cluster.nodes[await ordeal.leader()]],
                [cluster.nodes[random.choice([*cluster.nodes])]],
                [coordinator],
                [coordinator, cluster.nodes[await ordeal.leader()]],
                [],
            ]
        )
        for victim in victims:
            victim.kill()
        for victim in victims:
            victim.start()
        await ordeal.outage(f"{asked}, {len(victims)} killed")
        await ordeal.load.until_more(random.randint(1, 300))


async def ask(ordeal: Ordeal) -> str:
    """One that is not possible just now, because another is under way, is none: no matter."""
    cluster, random = ordeal.cluster, ordeal.random
    found = await cluster.shard(SHARD)
    members = found["ensemble"] if found is not None else []
    ordeal.ensembles.add(frozenset(members))
    others = [node for node in cluster.nodes if node not in members]
    if members and others and random.random() < 0.4:
        swap = {
            "operation": "swap",
            "old": random.choice(members),
            "new": random.choice(others),
        }
        await cluster.ask("POST", f"/v1/shards/{SHARD}/operations", swap)
        return "swap"
    replicas = {"replicas": random.choice(REPLICAS)}
    await cluster.ask("PUT", f"/v1/shards/{SHARD}/replicas", replicas)
    return "scale"


def test_nothing_is_lost_over_changes_and_kills(tmp_path: Path, nursery: Nursery):
    cluster = FaultCluster(tmp_path / "cluster", nodes=5, nursery=nursery)
    ordeal = survive(cluster, change_on)
    assert len(ordeal.ensembles) > CHANGES // 4, "hardly anything changed"
