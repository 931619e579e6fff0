"""`SIGSTOP`: processes that stand still for longer than a leader is waited for, and go on.

A leader that wakes up still takes itself for the leader; what it says and what it was sent
meanwhile must do no harm.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from faults.cluster import FaultCluster
from faults.nursery import Nursery
from faults.ordeal import TIMES, Ordeal, survive
from shardlog.protocol.coordination import CoordinatorLimits

PAUSES = int(12 * TIMES)
PAUSE_MS = 3 * CoordinatorLimits().leader_timeout_ms
"""A silent leader is deposed after twice its timeout."""
KINDS = (
    "leader paused",
    "follower paused",
    "leader paused",
    "leader and coordinator paused",
    "leader paused",
    "everybody paused",
)


async def pause_on(ordeal: Ordeal) -> None:
    cluster, random = ordeal.cluster, ordeal.random
    for number in range(PAUSES):
        leader, followers = await ordeal.leader(), await ordeal.followers()
        (coordinator,) = cluster.coordinators.values()
        kind = KINDS[number % len(KINDS)]
        paused = {
            "leader paused": [cluster.nodes[leader]],
            "follower paused": [cluster.nodes[random.choice(followers)]],
            "leader and coordinator paused": [cluster.nodes[leader], coordinator],
            "everybody paused": cluster.processes,
        }[kind]
        for process in paused:
            process.pause()
        if len(paused) == 1:
            await ordeal.outage(kind)
        await asyncio.sleep(random.uniform(0.5, 1) * PAUSE_MS / 1000)
        for process in paused:
            process.resume()
        if len(paused) > 1:
            await ordeal.outage(f"{kind}, then going on")
        await ordeal.load.until_more(random.randint(1, 200))


def test_nothing_is_lost_when_processes_stand_still(tmp_path: Path, nursery: Nursery):
    survive(FaultCluster(tmp_path / "cluster", nursery=nursery), pause_on)
