"""Coordinators that drive real replicas, over a metadata store that they share."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from node.cluster import registration

from coordinator.nodes import SHARD, Cluster
from shardlog.checksum import seal_body
from shardlog.coordinator.host import CoordinatorHost
from shardlog.metadata.records import decode_shard, encode_shard, shard_key
from shardlog.metadata.store import ABSENT, CHANGES_KEPT
from shardlog.protocol.coordination import Accepted, Contract, CreateShard, Expand, Rejected, Swap
from shardlog.protocol.messages import Append, Appended, Registered
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Shard, Status

CREATE = CreateShard(("a", "b", "c"), QuorumPolicy())


async def until(host: CoordinatorHost, wanted: Callable[[Shard], bool]) -> Shard:
    """Wait for a record; the test's timeout ends a wait that is in vain."""
    while True:
        shard = host.shards.get(SHARD)
        if shard is not None and wanted(shard):
            return shard
        await asyncio.sleep(0.01)


def steady(shard: Shard) -> bool:
    return shard.status is Status.STEADY and shard.change is None and shard.joining is None


def names(shard: Shard) -> set[str]:
    return {member.node for member in shard.ensemble}


async def append(cluster: Cluster, leader: str, session: int, request: int) -> int:
    body = b"record %d" % request
    answer = await cluster.ask(leader, Append(session, request, 1, body, seal_body(body)))
    assert isinstance(answer, Appended), answer
    return answer.base


async def registered(cluster: Cluster, leader: str) -> int:
    answer = await cluster.ask(leader, registration())
    assert isinstance(answer, Registered), answer
    return answer.session


def test_a_shard_is_created_and_written_to():
    async def story() -> None:
        cluster = Cluster("a b c")
        host = cluster.host()
        async with cluster.running(host):
            assert isinstance(await host.command(SHARD, CREATE), Accepted)
            shard = await until(host, steady)
            assert shard.leader is not None
            session = await registered(cluster, shard.leader.node)
            bases = [await append(cluster, shard.leader.node, session, n) for n in range(1, 6)]
            assert bases == sorted(set(bases))

    asyncio.run(story())


def test_a_dead_leader_is_replaced_and_nothing_is_lost():
    async def story() -> None:
        cluster = Cluster("a b c")
        host = cluster.host()
        async with cluster.running(host):
            await host.command(SHARD, CREATE)
            before = (await until(host, steady)).leader
            assert before is not None
            session = await registered(cluster, before.node)
            base = await append(cluster, before.node, session, 1)
            cluster.nodes[before.node].kill()
            after = (await until(host, lambda s: steady(s) and s.leader != before)).leader
            assert after is not None
            assert await append(cluster, after.node, session, 1) == base
            assert await append(cluster, after.node, session, 2) > base

    asyncio.run(story())


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        pytest.param(Expand("d"), {"a", "b", "c", "d"}, id="expand"),
        pytest.param(Swap("c", "d"), {"a", "b", "d"}, id="swap"),
        pytest.param(Contract("c"), {"a", "b"}, id="contract"),
    ],
)
def test_O4_changes_of_the_ensemble(command, expected):
    async def story() -> None:
        cluster = Cluster("a b c d")
        host = cluster.host()
        async with cluster.running(host):
            await host.command(SHARD, CREATE)
            await until(host, steady)
            asked = await host.command(SHARD, command)
            while isinstance(asked, Rejected):
                await asyncio.sleep(0.05)
                asked = await host.command(SHARD, command)
            await until(host, lambda shard: steady(shard) and names(shard) == expected)

    asyncio.run(story())


def test_O6_what_cannot_be_done_is_rejected():
    async def story() -> None:
        cluster = Cluster("a b c")
        host = cluster.host()
        async with cluster.running(host):
            await host.command(SHARD, CREATE)
            await until(host, steady)
            again = await host.command(SHARD, CREATE)
            stranger = await host.command(SHARD, Contract("z"))
            assert isinstance(again, Rejected)
            assert isinstance(stranger, Rejected)

    asyncio.run(story())


def test_O7_two_processes_coordinate_one_shard():
    async def story() -> None:
        cluster = Cluster("a b c")
        first, second = cluster.host("one"), cluster.host("two")
        async with cluster.running(first, second):
            await first.command(SHARD, CREATE)
            shard = await until(second, steady)
            assert shard.leader is not None
            cluster.nodes[shard.leader.node].kill()
            after = await until(second, lambda s: steady(s) and s.leader != shard.leader)
            assert after.leader is not None
            session = await registered(cluster, after.leader.node)
            assert await append(cluster, after.leader.node, session, 1)

    asyncio.run(story())


def test_a_process_goes_on_with_what_another_began():
    async def story() -> None:
        cluster = Cluster("a b c")
        first = cluster.host("one")
        async with cluster.running(first):
            await first.command(SHARD, CREATE)
            before = await until(first, steady)
        second = cluster.host("two")
        async with cluster.running(second):
            assert before.leader is not None
            cluster.nodes[before.leader.node].kill()
            after = await until(second, lambda s: steady(s) and s.leader != before.leader)
            assert after.epoch > before.epoch

    asyncio.run(story())


def test_a_record_that_cannot_be_read_is_left_alone():
    async def story() -> None:
        cluster = Cluster("a b c")
        store = cluster.memory.handle()
        await store.compare_and_swap(shard_key("broken"), 0, b"not a record")
        host = cluster.host()
        async with cluster.running(host):
            answer = await host.command("broken", CREATE)
            assert isinstance(answer, Rejected)
            assert "broken" in answer.reason
            await host.command(SHARD, CREATE)
            await until(host, steady)
        found = await store.get(shard_key("broken"))
        assert found is not None
        assert found.value == b"not a record"
        ours = await store.get(shard_key(SHARD))
        assert ours is not None
        assert decode_shard(shard_key(SHARD), ours.value).name == SHARD

    asyncio.run(story())


def test_a_relisting_forgets_shards_that_were_deleted_meanwhile():
    """A host that lags behind all kept changes is never told of the one that deleted the shard."""

    async def story() -> None:
        cluster = Cluster("a b c")
        host, store = cluster.host(), cluster.memory.handle()
        async with cluster.running(host):
            await host.command(SHARD, CREATE)
            other = replace(await until(host, steady), name="other", halted="by hand")
            key = shard_key("other")
            written = (await store.compare_and_swap(key, ABSENT, encode_shard(other))).current
            assert written is not None
            await until(host, lambda _: "other" in host.shards)
            # A store in memory does not yield, so that the host sees nothing of this until it ends.
            await store.compare_and_swap(key, written.version, None)
            for _ in range(CHANGES_KEPT):
                noise = await store.get("noise")
                await store.compare_and_swap("noise", noise.version if noise else ABSENT, b"")
            assert "other" in host.shards
            await until(host, lambda _: host.revision == cluster.memory.revision)
            assert set(host.shards) == {SHARD}

    asyncio.run(story())
