"""Nodes in this process, and the coordinator's administration of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from node.cluster import Cluster

from shardlog.local.administration import Administration
from shardlog.local.wanted import WantedReplicas
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Shard, Status

MAJORITY = QuorumPolicy()
NAMES = "node-1 node-2 node-3 node-4 node-5"


@asynccontextmanager
async def administered(
    directory: Path, names: str = NAMES
) -> AsyncIterator[tuple[Cluster, Administration]]:
    cluster = Cluster(directory, names)
    async with cluster.running(), administration_of(cluster) as administration:
        yield cluster, administration


@asynccontextmanager
async def administration_of(cluster: Cluster) -> AsyncIterator[Administration]:
    """For as long as this lasts: what ends it is as good as a kill."""
    host = cluster.coordinator
    wanted = WantedReplicas(host.store)
    administration = Administration(
        host, cluster, wanted, lambda: cluster.names, lambda: list(cluster.nodes)
    )
    tasks = [asyncio.create_task(each.run()) for each in (wanted, administration)]
    await host.begun.wait()
    await wanted.begun.wait()
    try:
        yield administration
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(
    administration: Administration, name: str, wanted: Callable[[Shard], bool]
) -> Shard:
    """The timeout of the cluster ends a wait that is in vain."""
    while True:
        shard = administration.host.shards.get(name)
        if shard is not None and wanted(shard):
            return shard
        await asyncio.sleep(0.01)


def is_settled(shard: Shard) -> bool:
    busy = shard.change or shard.joining
    return shard.status is Status.STEADY and shard.leader is not None and not busy


async def settled(administration: Administration, name: str, replicas: int) -> Shard:
    return await until(
        administration, name, lambda it: is_settled(it) and len(it.ensemble) == replicas
    )
