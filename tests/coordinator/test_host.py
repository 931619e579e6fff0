"""Coordinators that drive real replicas, over a metadata store that they share."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from node.cluster import registration

from coordinator.nodes import SHARD, Cluster, now_ms
from shardlog.checksum import seal_body
from shardlog.coordinator.driver import DriverLimits
from shardlog.coordinator.host import CoordinatorHost
from shardlog.coordinator.watching import NodeWatch
from shardlog.metadata.memory import Memory, MemoryStore
from shardlog.metadata.records import decode_shard, encode_shard, shard_key
from shardlog.metadata.store import ABSENT, CHANGES_KEPT, Listing, MetadataStore, Versioned
from shardlog.protocol.coordination import (
    Accepted,
    Contract,
    CreateShard,
    Expand,
    Promote,
    Rejected,
    Swap,
)
from shardlog.protocol.messages import Append, Appended, Registered
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Shard, Status
from shardlog.transport.control_calls import NodeNews

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


async def forget_changes(store: MetadataStore) -> None:
    """Write so much elsewhere that whoever lags behind is told a listing."""
    for _ in range(CHANGES_KEPT):
        noise = await store.get("noise")
        await store.compare_and_swap("noise", noise.version if noise else ABSENT, b"")


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
            await forget_changes(store)
            assert "other" in host.shards
            await until(host, lambda _: host.revision == cluster.memory.revision)
            assert set(host.shards) == {SHARD}

    asyncio.run(story())


def test_a_relisting_forgets_records_that_could_not_be_read():
    """Or the name could never be used again, and nobody would know where that shard is."""

    async def story() -> None:
        cluster = Cluster("a b c")
        host, store = cluster.host(), cluster.memory.handle()
        written = (await store.compare_and_swap(shard_key(SHARD), ABSENT, b"no record")).current
        assert written is not None
        async with cluster.running(host):
            await host.begun.wait()
            assert SHARD in host.unreadable
            await store.compare_and_swap(shard_key(SHARD), written.version, None)
            await forget_changes(store)
            while host.revision != cluster.memory.revision:
                await asyncio.sleep(0)
            assert not host.unreadable
            assert isinstance(await host.command(SHARD, CREATE), Accepted)
            await until(host, steady)

    asyncio.run(story())


class Overtaken(MemoryStore):
    """Another process writes when the records have been listed, before they are watched."""

    def __init__(self, memory: Memory, key: str, value: bytes) -> None:
        super().__init__(memory)
        self._write = memory.handle().compare_and_swap(key, ABSENT, value)

    async def list(self, prefix: str) -> Listing:
        listing = await super().list(prefix)
        await self._write
        return listing


def test_what_is_written_between_the_listing_and_the_watch_is_not_missed():
    async def story() -> None:
        cluster = Cluster("a b c")
        other = Shard("other", Status.STEADY, 1, None, (), QuorumPolicy(), halted="by hand")
        store = Overtaken(cluster.memory, shard_key("other"), encode_shard(other))
        cluster.memory._handles.append(store)
        host = CoordinatorHost("operator", store, cluster, now_ms)
        async with cluster.running(host):
            while "other" not in host.shards:
                await asyncio.sleep(0)
            assert host.revision == cluster.memory.revision

    asyncio.run(story())


class Restorable(Memory):
    """Can be set back to what it was."""

    def back_up(self) -> tuple[int, dict[str, Versioned]]:
        return self.revision, dict(self._records)

    def restore(self, backup: tuple[int, dict[str, Versioned]]) -> None:
        self.revision, self._records = backup
        self._changes.clear()
        for handle in self._handles:
            handle.bell.tell(self.revision)


def test_rule_21_a_version_that_comes_again_is_not_taken_for_the_record_that_had_it():
    """What was known of a shard when the store went back is no base for the next write."""

    async def story() -> None:
        cluster = Cluster("a b c")
        memory = cluster.memory = Restorable()
        host, store, key = cluster.host(), memory.handle(), shard_key(SHARD)
        async with cluster.running(host):
            await host.command(SHARD, CREATE)
            shard = await until(host, steady)
            backup = memory.back_up()
            other = next(each.node for each in shard.ensemble if each != shard.leader)
            assert isinstance(await host.command(SHARD, Promote(other)), Accepted)
            await until(host, lambda it: steady(it) and it.epoch > shard.epoch)
            last = await store.get(key)
            assert last is not None
            memory.restore(backup)
            halted = encode_shard(replace(shard, halted="by hand"))
            while (found := await store.get(key)) is not None and found.version < last.version:
                await store.compare_and_swap(key, found.version, halted)
                while host.revision > memory.revision:
                    await asyncio.sleep(0)
            answer = await host.command(SHARD, Promote(other))
            assert isinstance(answer, Rejected)
            found = await store.get(key)
            assert found is not None
            assert found.value == halted

    asyncio.run(story())


class Looked(Cluster):
    """Nodes have no news, in any of their lives."""

    def __init__(self, names: str) -> None:
        super().__init__(names)
        self.looks: Counter[str] = Counter()
        self.lives = dict.fromkeys(self.nodes, 1)

    async def look(self, node: str, life: int, since: int, timeout_ms: int) -> NodeNews:
        self.looks[node] += 1
        return NodeNews(self.lives[node], 0, ())

    async def looked(self, node: str, times: int) -> None:
        before = self.looks[node]
        while self.looks[node] < before + times:
            await asyncio.sleep(0)


def test_nodes_that_host_nothing_are_not_looked_at_any_more():
    async def story() -> None:
        cluster = Looked("a b c")
        host = cluster.host()
        async with cluster.running(host):
            await host.command(SHARD, CREATE)
            leader = (await until(host, steady)).leader
            assert leader is not None
            await cluster.looked(leader.node, 1)
            gone = next(name for name in cluster.nodes if name != leader.node)
            assert cluster.looks[gone]
            assert isinstance(await host.command(SHARD, Contract(gone)), Accepted)
            await until(host, lambda it: steady(it) and not it.removed and gone not in names(it))
            before = cluster.looks[gone]
            await cluster.looked(leader.node, 5)
            assert cluster.looks[gone] == before

    asyncio.run(story())


def test_a_node_in_another_life_brings_all_that_it_hosts_to_attention():
    """It was started again between two looks: nobody has seen it silent."""

    class Attention:
        def __init__(self) -> None:
            self.told: list[Iterable[str] | None] = []

        def hosted_changed(self, node: str, shards: Iterable[str] | None) -> None:
            self.told.append(shards)

        def fell_silent(self, node: str) -> None:
            raise AssertionError(node)

        nobody_listens = fell_silent

    async def story() -> None:
        cluster, attention = Looked("a"), Attention()
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            watch = NodeWatch(cluster, DriverLimits(look_ms=1), attention, group)
            watch.keep("a")
            await cluster.looked("a", 3)
            assert attention.told == [None]
            cluster.lives["a"] = 2
            await cluster.looked("a", 3)
            assert attention.told == [None, None]
            watch.drop("a")

    asyncio.run(story())
