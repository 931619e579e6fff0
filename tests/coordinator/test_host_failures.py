"""What goes wrong with one shard, or with the store, and how far it reaches."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from coordinator.nodes import SHARD, Cluster, now_ms
from shardlog.coordinator.driver import DriverLimits
from shardlog.coordinator.host import CoordinatorHost
from shardlog.metadata.failures import Closed, Unavailable
from shardlog.metadata.memory import Memory, MemoryStore
from shardlog.metadata.records import decode_shard, encode_shard, shard_key
from shardlog.metadata.store import Listing, MetadataStore, Swapped
from shardlog.protocol.coordination import (
    Accepted,
    CoordinatorEffect,
    CoordinatorEvent,
    CreateShard,
    DeleteShard,
    Promote,
    Rejected,
)
from shardlog.protocol.coordinator import Coordinator
from shardlog.protocol.failures import ImpossibleState
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Status
from shardlog.protocol.states import Role

CREATE = CreateShard(("a", "b", "c"), QuorumPolicy())
LIMITS = DriverLimits(tick_ms=5, call_timeout_ms=1000, reread_ms=5)


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.01)


def is_steady(host: CoordinatorHost, shard: str = SHARD) -> bool:
    return shard in host.shards and host.shards[shard].status is Status.STEADY


class Unsteady(MemoryStore):
    """Fails to answer as often as it is told to; what was written stands."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        self.unanswered = 0

    def _fail(self) -> None:
        if self.unanswered:
            self.unanswered -= 1
            raise Unavailable("memory", "no answer")

    async def list(self, prefix: str) -> Listing:
        self._fail()
        return await super().list(prefix)

    async def compare_and_swap(self, key: str, version: int, value: bytes | None) -> Swapped:
        swapped = await super().compare_and_swap(key, version, value)
        self._fail()
        return swapped


def hosted(cluster: Cluster, store: MetadataStore) -> CoordinatorHost:
    return CoordinatorHost("operator", store, cluster, now_ms, driver_limits=LIMITS)


def test_a_shard_is_deleted_and_made_again():
    async def story() -> None:
        cluster = Cluster("a b c")
        host = cluster.host()
        async with cluster.running(host):
            await host.command(SHARD, CREATE)
            await until(lambda: is_steady(host))
            cluster.nodes["c"].kill()
            assert isinstance(await host.command(SHARD, DeleteShard()), Accepted)
            await until(lambda: host.shards[SHARD].status is Status.DELETING)
            refused = await host.command(SHARD, Promote("b"))
            assert isinstance(refused, Rejected)
            assert refused.reason == "the shard is being deleted"
            cluster.nodes["c"].start()
            await until(lambda: SHARD not in host.shards)
            roles = {node.driver.replica.role for node in cluster.nodes.values()}
            assert roles == {Role.NOT_MEMBER}
            assert await cluster.memory.handle().get(shard_key(SHARD)) is None
            made = await host.command(SHARD, CREATE)
            assert isinstance(made, Accepted), made
            await until(lambda: is_steady(host))
            assert host.shards[SHARD].epoch == 1

    asyncio.run(story())


def test_another_process_goes_on_with_a_deletion():
    async def story() -> None:
        cluster = Cluster("a b c")
        first, second = cluster.host("one"), cluster.host("two")
        async with cluster.running(first):
            await first.command(SHARD, CREATE)
            await until(lambda: is_steady(first))
            cluster.nodes["a"].kill()
            await first.command(SHARD, DeleteShard())
        async with cluster.running(second):
            cluster.nodes["a"].start()
            await second.begun.wait()
            await until(lambda: SHARD not in second.shards)

    asyncio.run(story())


def test_a_shard_that_does_not_exist_leaves_nothing_behind():
    async def story() -> None:
        cluster = Cluster("a")
        host = cluster.host()
        async with cluster.running(host):
            answer = await host.command("nowhere", DeleteShard())
            assert isinstance(answer, Rejected)
            assert answer.reason == "there is no such shard"
            assert not host._coordinators

    asyncio.run(story())


def test_a_name_that_no_key_can_have():
    async def story() -> None:
        cluster = Cluster("a")
        host = cluster.host()
        async with cluster.running(host):
            answer = await host.command("two words", CREATE)
            assert isinstance(answer, Rejected)
            assert "printable" in answer.reason

    asyncio.run(story())


def test_a_store_that_does_not_answer_is_asked_again():
    async def story() -> None:
        cluster = Cluster("a b c")
        store = Unsteady(cluster.memory)
        cluster.memory._handles.append(store)
        store.unanswered = 3
        host = hosted(cluster, store)
        async with cluster.running(host):
            await host.begun.wait()
            store.unanswered = 1
            await host.command(SHARD, CREATE)
            await until(lambda: is_steady(host))

    asyncio.run(story())


def test_a_store_that_is_closed_ends_it_all():
    async def story() -> None:
        cluster = Cluster("a b c")
        store = cluster.memory.handle()
        host = hosted(cluster, store)
        running = asyncio.create_task(host.run())
        await host.begun.wait()
        await store.close()
        with pytest.raises(Closed):
            await running

    asyncio.run(story())


class Broken(Coordinator):
    """A machine with a bug."""

    __slots__ = ()

    def step(self, now_ms: int, event: CoordinatorEvent) -> list[CoordinatorEffect]:
        raise ImpossibleState("a rule is broken")


def test_a_broken_invariant_ends_one_shard_and_no_other():
    async def story() -> None:
        cluster = Cluster("a b c")
        host = cluster.host()
        async with cluster.running(host):
            await host.command(SHARD, CREATE)
            await until(lambda: is_steady(host))
            store = cluster.memory.handle()
            other = host.shards[SHARD]
            host._coordinators[SHARD].machine = Broken("operator", SHARD, host.limits)
            answer = await host.command(SHARD, Promote("b"))
            assert isinstance(answer, Rejected)
            assert "a rule is broken" in answer.reason
            await until(lambda: SHARD in host.stopped)
            again = await host.command(SHARD, Promote("b"))
            assert isinstance(again, Rejected)
            key = shard_key("another")
            record = replace(other, name="another", status=Status.DELETING, leader=None, removed=())
            await store.compare_and_swap(key, 0, encode_shard(record))
            while await store.get(key) is not None:
                await asyncio.sleep(0.01)
            assert SHARD in host.stopped

    asyncio.run(story())


def test_a_record_that_cannot_be_read_any_more_may_become_readable():
    async def story() -> None:
        cluster = Cluster("a b c")
        host = cluster.host()
        store = cluster.memory.handle()
        key = shard_key(SHARD)
        async with cluster.running(host):
            await host.command(SHARD, CREATE)
            await until(lambda: is_steady(host))
            good = await store.get(key)
            assert good is not None
            await store.compare_and_swap(key, good.version, b"not a record")
            await until(lambda: SHARD in host.unreadable)
            bad = await store.get(key)
            assert bad is not None
            assert bad.value == b"not a record"
            await store.compare_and_swap(key, bad.version, good.value)
            await until(lambda: is_steady(host) and SHARD not in host.unreadable)
            epoch = decode_shard(key, good.value).epoch
            leader = host.shards[SHARD].leader
            assert leader is not None
            cluster.nodes[leader.node].kill()
            await until(lambda: is_steady(host) and host.shards[SHARD].epoch > epoch)

    asyncio.run(story())
