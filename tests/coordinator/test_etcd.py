"""Coordinators whose metadata is in a real etcd: its failures, its backups, its newer users."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from etcd.cluster import EtcdCluster
from node.cluster import Cluster, now_ms

from shardlog.coordinator.driver import DriverLimits
from shardlog.coordinator.host import CoordinatorHost
from shardlog.metadata.etcd.store import EtcdStore
from shardlog.metadata.failures import NewerRecord
from shardlog.metadata.records import FORMAT, encode_shard, shard_key
from shardlog.protocol.coordination import (
    Accepted,
    Command,
    Contract,
    CreateShard,
    Expand,
    Promote,
    Rejected,
)
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Shard

pytestmark = pytest.mark.needs("etcd")

SHARD = "orders"
NAMES = "a b c d"
CREATE = CreateShard(("a", "b", "c"), QuorumPolicy())


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path / "etcd") as cluster:
        yield cluster


@asynccontextmanager
async def opened(etcd: EtcdCluster) -> AsyncIterator[EtcdStore]:
    settings = replace(etcd.settings(), connect_timeout_ms=500, request_timeout_ms=2000)
    store = await EtcdStore.open(settings)
    try:
        yield store
    finally:
        await store.close()


def played(
    etcd: EtcdCluster,
    directory: Path,
    story: Callable[[EtcdStore, Cluster], Coroutine[None, None, None]],
) -> None:
    async def play() -> None:
        async with opened(etcd) as store:
            cluster = Cluster(directory / "nodes", NAMES, store)
            async with cluster.running():
                await story(store, cluster)

    asyncio.run(play())


async def command(host: CoordinatorHost, wanted: Command) -> None:
    """As a person does who is told that the shard is busy, or changed meanwhile."""
    while isinstance(answer := await host.command(SHARD, wanted), Rejected):
        await asyncio.sleep(0.05)
    assert isinstance(answer, Accepted)


def is_quiet(shard: Shard) -> bool:
    return shard.change is None and shard.joining is None


def has(*nodes: str) -> Callable[[Shard], bool]:
    return lambda it: is_quiet(it) and {each.node for each in it.ensemble} == set(nodes)


async def append(cluster: Cluster, acknowledged: list[bytes], session: int) -> None:
    """One record, wherever the leader is by then, exactly once."""
    number = len(acknowledged) + 1
    body = b"record %d" % number
    while True:
        shard = cluster.coordinator.shards.get(SHARD)
        leader = shard.leader.node if shard and shard.leader else None
        if leader in cluster.nodes:
            done = await cluster.appended(str(leader), SHARD, session, number, body)
            if done is not None:
                acknowledged.append(body)
                return
        await asyncio.sleep(0.05)


async def raise_the_epoch(cluster: Cluster, times: int) -> Shard:
    """By handing the leadership to and fro."""
    shard = await cluster.until(SHARD, is_quiet)
    for _ in range(times):
        assert shard.leader
        other = next(each.node for each in shard.ensemble if each != shard.leader)
        before = shard.epoch
        await command(cluster.coordinator, Promote(other))
        shard = await cluster.until(
            SHARD,
            lambda it: it.epoch > before and is_quiet(it),  # noqa: B023 - awaited here
        )
    return shard


def test_a_shard_is_created_elected_and_scaled_by_two_coordinators(
    etcd: EtcdCluster, tmp_path: Path
):
    async def story(store: EtcdStore, cluster: Cluster) -> None:
        async with opened(etcd) as other:
            limits = DriverLimits(tick_ms=5, call_timeout_ms=1000)
            second = CoordinatorHost("second", other, cluster, now_ms, driver_limits=limits)
            coordinating = asyncio.create_task(second.run())
            await command(cluster.coordinator, CREATE)
            leader = await cluster.leader(SHARD)
            session = await cluster.session(leader, SHARD)
            acknowledged: list[bytes] = []
            await append(cluster, acknowledged, session)
            await command(second, Expand("d"))
            await cluster.until(SHARD, has("a", "b", "c", "d"))
            await append(cluster, acknowledged, session)
            leader = await cluster.leader(SHARD)
            leaving = next(name for name in ("a", "b", "c", "d") if name != leader)
            await command(cluster.coordinator, Contract(leaving))
            shard = await cluster.until(SHARD, lambda it: is_quiet(it) and len(it.ensemble) == 3)
            while second.shards.get(SHARD) != shard:
                await asyncio.sleep(0.01)
            assert shard.leader
            await cluster.stop(shard.leader.node)
            await cluster.leader(SHARD, other_than=shard.leader.node)
            await append(cluster, acknowledged, session)
            coordinating.cancel()
            await asyncio.gather(coordinating, return_exceptions=True)

    played(etcd, tmp_path, story)


def test_an_idle_shard_writes_nothing_to_etcd(etcd: EtcdCluster, tmp_path: Path):
    async def story(store: EtcdStore, cluster: Cluster) -> None:
        await command(cluster.coordinator, CREATE)
        await cluster.until(SHARD, is_quiet)
        machine = cluster.coordinator._coordinators[SHARD].machine
        revision = (await store.list("")).revision
        looks = {machine.polled_ms}
        while len(looks) < 4:  # each of them at all replicas
            await asyncio.sleep(0.01)
            looks.add(machine.polled_ms)
        assert (await store.list("")).revision == revision

    played(etcd, tmp_path, story)


def test_writes_go_on_while_etcd_is_down_and_elections_when_it_is_back(
    etcd: EtcdCluster, tmp_path: Path
):
    async def story(store: EtcdStore, cluster: Cluster) -> None:
        await command(cluster.coordinator, CREATE)
        leader = await cluster.leader(SHARD)
        session = await cluster.session(leader, SHARD)
        acknowledged: list[bytes] = []
        await append(cluster, acknowledged, session)
        etcd.members[0].kill()
        for _ in range(50):
            await append(cluster, acknowledged, session)
        assert cluster.coordinator.shards[SHARD].leader
        await cluster.stop(leader)
        await asyncio.to_thread(etcd.start)
        await cluster.leader(SHARD, other_than=leader)
        await append(cluster, acknowledged, session)
        assert len(acknowledged) == 52

    played(etcd, tmp_path, story)


@pytest.mark.parametrize("flags", [(), ("--bump-revision=1000000", "--mark-compacted")])
def test_rule_21_metadata_from_an_old_backup(
    etcd: EtcdCluster, tmp_path: Path, flags: tuple[str, ...]
):
    """Nodes that know a higher epoch are believed, and no acknowledged record is lost."""

    async def story(store: EtcdStore, cluster: Cluster) -> None:
        await command(cluster.coordinator, CREATE)
        leader = await cluster.leader(SHARD)
        session = await cluster.session(leader, SHARD)
        acknowledged: list[bytes] = []
        await append(cluster, acknowledged, session)
        await asyncio.to_thread(etcd.back_up, tmp_path / "backup")
        promised = (await raise_the_epoch(cluster, times=3)).epoch
        await append(cluster, acknowledged, session)
        await asyncio.to_thread(etcd.restore, tmp_path / "backup", *flags)
        shard = await cluster.until(SHARD, lambda it: it.epoch > promised)
        assert shard.halted is None
        await append(cluster, acknowledged, session)
        assert len(acknowledged) == 3

    played(etcd, tmp_path, story)


def test_a_record_of_a_newer_version_is_left_alone(etcd: EtcdCluster, tmp_path: Path):
    async def story(store: EtcdStore, cluster: Cluster) -> None:
        host = cluster.coordinator
        await command(host, CREATE)
        shard = await cluster.until(SHARD, is_quiet)
        plain = json.loads(encode_shard(shard))
        newer = json.dumps({**plain, "format": FORMAT + 1, "colour": "blue"}).encode()
        found = await store.get(shard_key(SHARD))
        while not found or found.value != newer:
            assert found
            swapped = await store.compare_and_swap(shard_key(SHARD), found.version, newer)
            found = swapped.current
        while SHARD not in host.unreadable:
            await asyncio.sleep(0.01)
        assert isinstance(host.unreadable[SHARD], NewerRecord)
        assert shard.leader
        await cluster.stop(shard.leader.node)
        answer = await host.command(SHARD, Promote("b"))
        assert isinstance(answer, Rejected)
        assert "upgrade Shardlog" in answer.reason
        # Another shard is coordinated meanwhile, so it is not that nothing happens at all.
        others = tuple(name for name in "abcd" if name in cluster.nodes)
        await host.command("other", CreateShard(others, QuorumPolicy()))
        await cluster.leader("other")
        assert await store.get(shard_key(SHARD)) == found

    played(etcd, tmp_path, story)
