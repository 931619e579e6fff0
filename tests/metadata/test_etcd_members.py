"""Members of a real etcd that die, pause or never were there: the store finds another."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

import pytest
from etcd.cluster import EtcdCluster

from metadata.backends import put, settle, take
from metadata.counting import Count
from shardlog.metadata.etcd.settings import KEEPALIVE_MS_MIN, EtcdSettings
from shardlog.metadata.etcd.store import EtcdStore
from shardlog.metadata.failures import CannotOpen, Closed, Unavailable, Unwritten
from shardlog.metadata.store import Change, Versioned

pytestmark = pytest.mark.needs("etcd")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """Whole again after each test."""
    with EtcdCluster(tmp_path_factory.mktemp("three"), members=3) as cluster:
        yield cluster


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    return f"/{request.node.name}/"


@pytest.mark.parametrize("who", ["leader", "the one that is asked"])
async def test_a_member_killed_under_load_loses_and_doubles_no_increment(
    three: EtcdCluster, who: str
):
    settings = replace(three.settings(f"/{who.replace(' ', '-')}/"), request_timeout_ms=3000)
    stores = [await EtcdStore.open(settings) for _ in range(3)]
    from_revision = (await stores[0].list("")).next_revision
    count = Count()
    writers = [
        asyncio.create_task(count.write(store, 2 * number + twin))
        for number, store in enumerate(stores)
        for twin in range(2)
    ]
    await count.reach(50)
    killed = three.leader() if who == "leader" else three.members[0]
    killed.kill()
    await count.reach(len(count.answered) + 100)
    await asyncio.to_thread(three.start)
    await count.reach(len(count.answered) + 50)
    count.stop.set()
    await asyncio.gather(*writers)
    async with stores[0].watch("", from_revision) as watch:
        assert await count.check(stores[1], watch) >= 200
    for store in stores:
        await store.close()


async def test_a_paused_leader_is_gone_around(three: EtcdCluster, prefix: str):
    leader = three.leader()
    others = [member.endpoint for member in three.members if member is not leader]
    settings = replace(
        three.settings(prefix), endpoints=(leader.endpoint, *others), request_timeout_ms=3000
    )
    store = await EtcdStore.open(settings)
    first = await put(store, "a", b"1")
    async with store.watch("", first.version) as watch:
        assert await anext(watch) == Change(first.version, "a", b"1")
        news = asyncio.create_task(take(watch, 1))
        leader.pause()
        try:
            record = await until_written(store, "a", b"2")
            assert await news == [Change(record.version, "a", b"2")]
        finally:
            leader.resume()
        assert await store.get("a") == record
    await store.close()


async def test_a_watch_alone_finds_out_that_its_member_is_paused(three: EtcdCluster, prefix: str):
    paused = three.members[0]
    settings = replace(three.settings(prefix), keepalive_ms=KEEPALIVE_MS_MIN)
    store = await EtcdStore.open(settings)
    other = await EtcdStore.open(replace(settings, endpoints=three.endpoints[1:]))
    first = await put(store, "a", b"1")
    async with store.watch("", first.version) as watch:
        assert await anext(watch) == Change(first.version, "a", b"1")
        news = asyncio.create_task(take(watch, 1))
        paused.pause()
        try:
            record = await until_written(other, "a", b"2")
            assert await news == [Change(record.version, "a", b"2")]
        finally:
            paused.resume()
    await other.close()
    await store.close()


async def until_written(store: EtcdStore, key: str, value: bytes) -> Versioned:
    """As a careful writer does it: what may stand is read before it is written again."""
    while True:
        try:
            found = await store.get(key)
            if found and found.value == value:
                return found
            swapped = await store.compare_and_swap(key, found.version if found else 0, value)
            if swapped.done and swapped.current:
                return swapped.current
        except Unavailable:
            continue


async def test_all_members_down_and_back(three: EtcdCluster, prefix: str):
    settings = replace(three.settings(prefix), request_timeout_ms=500, connect_timeout_ms=300)
    store = await EtcdStore.open(settings)
    record = await put(store, "a", b"1")
    async with store.watch("", record.version + 1) as watch:
        news = asyncio.create_task(take(watch, 1))
        await settle()
        for member in three.members:
            member.kill()
        with pytest.raises(Unavailable):
            await store.get("a")
        with pytest.raises(Unwritten) as caught:
            await store.compare_and_swap("a", record.version, b"2")
        assert all(endpoint in str(caught.value) for endpoint in three.endpoints)
        assert "\n" not in str(caught.value)
        health = await store.health()
        assert health.answering == 0
        await asyncio.to_thread(three.start)
        assert await until_written(store, "a", b"3") == await store.get("a")
        assert [each.value for each in await news if isinstance(each, Change)] == [b"3"]
    assert str(await store.health()) == "3 of 3 members answer"
    await store.close()


async def test_a_member_without_the_others_is_passed_over(three: EtcdCluster, prefix: str):
    """It still answers, but knows no leader: neither a call nor a watch may hang on it."""
    settings = replace(three.settings(prefix), connect_timeout_ms=500, request_timeout_ms=1000)
    store = await EtcdStore.open(settings)
    record = await put(store, "a", b"1")
    for member in three.members[1:]:
        member.kill()
    with pytest.raises(Unavailable):
        await forever(lambda: store.get("a"))
    health = await store.health()
    assert health.answering <= 1
    for member in three.members[1:]:
        member.start()
    three.members[0].kill()
    assert await until_written(store, "a", b"2") != record
    await asyncio.to_thread(three.start)
    await store.close()


async def forever(call: Callable[[], Awaitable[object]]) -> None:
    while True:
        await call()


async def test_an_endpoint_list_with_dead_ones_first(three: EtcdCluster, prefix: str):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dead = ("127.0.0.1:1", f"127.0.0.1:{silent.getsockname()[1]}", "no-such-host.invalid:1")
        settings = three.settings(prefix)
        settings = replace(settings, endpoints=(*dead, *three.endpoints), connect_timeout_ms=300)
        store = await EtcdStore.open(settings)
        record = await put(store, "a", b"1")
        assert await store.get("a") == record
        await store.close()
        with pytest.raises(Unwritten) as caught:
            await EtcdStore.open(replace(settings, endpoints=dead))
        assert not isinstance(caught.value, CannotOpen)
        assert all(endpoint in caught.value.why for endpoint in dead)


async def test_an_idle_store_writes_nothing(three: EtcdCluster, prefix: str):
    store = await EtcdStore.open(three.settings(prefix))
    before = await store.list("")
    async with store.watch("", before.next_revision) as watch:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await anext(watch)
    assert await store.list("") == before
    await store.close()


async def test_closing_a_store_that_waits_for_etcd_ends_the_wait():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"127.0.0.1:{silent.getsockname()[1]}"
        store = EtcdStore(EtcdSettings((endpoint,), connect_timeout_ms=10**9))
        waiting = [
            asyncio.create_task(step)
            for step in (
                take(store.watch("", 1), 1),
                store.get("a"),
                store.compare_and_swap("a", 0, b""),
            )
        ]
        await settle()
        await store.close()
        for each in waiting:
            with pytest.raises(Closed):
                await each
