"""Nodes carry out the upkeep of a shard: retention, and entries that count before their sync."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from node.cluster import Cluster, registration
from shardlog.checksum import seal_body
from shardlog.protocol.coordination import CreateShard, Rejected, SetRetention
from shardlog.protocol.failures import NoReplica, NotLeader, NotReady, OffsetTrimmed
from shardlog.protocol.messages import (
    Append,
    Appended,
    ClientRefused,
    Message,
    Read,
    ReadResult,
    Registered,
)
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.upkeep import USUAL, Upkeep
from shardlog.storage.relaxing import MARK
from shardlog_node.keeping import Keeper

KEEP_MS = 10
BODY = b"x" * 8192
PASSING = (NotLeader, NotReady, NoReplica)


@asynccontextmanager
async def kept(directory: Path, upkeep: Upkeep = USUAL) -> AsyncIterator[Cluster]:
    cluster = Cluster(directory, "a b c")
    async with cluster.running():
        keepers = [
            asyncio.create_task(Keeper(node, KEEP_MS).run()) for node in cluster.nodes.values()
        ]
        answer = await cluster.coordinator.command(
            "orders", CreateShard(("a", "b", "c"), QuorumPolicy(), upkeep)
        )
        assert not isinstance(answer, Rejected)
        await cluster.leader("orders")
        try:
            yield cluster
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)


async def asked(cluster: Cluster, message: Message) -> Message:
    """The leader's answer, whoever leads by then: on a busy machine that may change."""
    while True:
        answer = await cluster.ask(await cluster.leader("orders"), "orders", message)
        if not (isinstance(answer, ClientRefused) and isinstance(answer.refusal, PASSING)):
            return answer
        await asyncio.sleep(0.05)


async def fill(cluster: Cluster, appends: int) -> None:
    registered = await asked(cluster, registration())
    assert isinstance(registered, Registered), registered
    for request in range(1, appends + 1):
        message = Append(registered.session, request, 1, BODY, seal_body(BODY))
        answer = await asked(cluster, message)
        assert isinstance(answer, Appended), answer


async def until(holds: Callable[[], bool]) -> None:
    """The timeout of the cluster ends a wait that is in vain."""
    while not holds():
        await asyncio.sleep(0.01)


def firsts(cluster: Cluster) -> set[int]:
    return {node.replicas["orders"].replica.log.first for node in cluster.nodes.values()}


def held_bytes(cluster: Cluster, name: str) -> int:
    items = cluster.nodes[name].replicas["orders"].store.files.segments.items
    return sum(segment.head.size for segment in items)


def test_rule_19_retention_by_bytes_is_followed_by_all_and_readers_are_told(tmp_path: Path):
    async def story() -> None:
        async with kept(tmp_path, Upkeep(retention_bytes=300_000)) as cluster:
            await fill(cluster, 150)
            await until(lambda: len(firsts(cluster)) == 1 and min(firsts(cluster)) > 0)
            await until(lambda: all(held_bytes(cluster, name) < 900_000 for name in "abc"))
            refused = await asked(cluster, Read(1, 0, 10))
            assert isinstance(refused, ClientRefused)
            assert isinstance(refused.refusal, OffsetTrimmed)
            first = refused.refusal.first
            found = await asked(cluster, Read(2, first, 10))
            assert isinstance(found, ReadResult)
            assert found.entries[0].header.base >= first

    asyncio.run(story())


def test_rule_19_retention_can_be_set_and_taken_back_at_any_time(tmp_path: Path):
    async def story() -> None:
        async with kept(tmp_path) as cluster:
            await fill(cluster, 100)
            assert firsts(cluster) == {0}
            command = cluster.coordinator.command
            assert not isinstance(await command("orders", SetRetention(1, 0)), Rejected)
            await until(lambda: len(firsts(cluster)) == 1 and min(firsts(cluster)) > 0)
            record = cluster.coordinator.shards["orders"]
            assert record.upkeep == Upkeep(version=1, retention_bytes=1)
            assert not isinstance(await command("orders", SetRetention(0, 0)), Rejected)
            await until(
                lambda: all(
                    node.replicas["orders"].replica.upkeep == Upkeep(version=2)
                    for node in cluster.nodes.values()
                )
            )

    asyncio.run(story())


def test_rule_19_retention_by_time_goes_by_the_clock_of_entries(tmp_path: Path):
    async def story() -> None:
        async with kept(tmp_path, Upkeep(retention_ms=1)) as cluster:
            await fill(cluster, 100)
            await until(lambda: len(firsts(cluster)) == 1 and min(firsts(cluster)) > 0)

    asyncio.run(story())


@pytest.mark.parametrize("relaxed", [True, False])
def test_M9_entries_count_before_they_are_synced_only_if_that_was_asked_for(
    tmp_path: Path, relaxed: bool
):
    async def story() -> None:
        async with kept(tmp_path, Upkeep(relaxed=relaxed)) as cluster:
            stores = [node.replicas["orders"].store for node in cluster.nodes.values()]
            if relaxed:
                await until(lambda: all(store.files.relaxed for store in stores))
            await fill(cluster, 20)
            assert all(store.files.relaxed is relaxed for store in stores)
            await until(lambda: not any(store.files.unsynced for store in stores))
        assert all(not store.files.relaxed for store in stores)
        assert not list(tmp_path.rglob(MARK))

    asyncio.run(story())
