"""Who runs: a key that goes by itself when its holder does."""

import asyncio
import secrets
from dataclasses import replace

import pytest
from etcd.cluster import EtcdCluster
from etcd.relay import relay_to

from metadata.backends import put, take
from shardlog.metadata.etcd.calls import LEASE_REVOKE
from shardlog.metadata.etcd.presence import OPERATORS, Operator, Presence, operators
from shardlog.metadata.etcd.settings import EtcdSettings
from shardlog.metadata.etcd.store import EtcdStore
from shardlog.metadata.failures import BadKey
from shardlog.metadata.generated import etcd_pb2 as pb
from shardlog.metadata.memory import Memory
from shardlog.metadata.store import Change

pytestmark = pytest.mark.needs("etcd")


@pytest.fixture
def settings(etcd: EtcdCluster) -> EtcdSettings:
    return etcd.settings(f"/test/{secrets.token_hex(8)}/")


async def until(store: EtcdStore, *names: str) -> None:
    while [each.name for each in await operators(store)] != list(names):
        await asyncio.sleep(0.02)


async def end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_those_who_run_are_listed_and_those_who_stop_are_not(settings: EtcdSettings):
    store = await EtcdStore.open(settings)
    one, two = (
        asyncio.create_task(Presence(store, name, "1.0", since).run())
        for name, since in (("one", 1), ("two", 2))
    )
    await until(store, "one", "two")
    assert await operators(store) == (Operator("one", "1.0", 1), Operator("two", "1.0", 2))
    await end(one)
    assert [each.name for each in await operators(store)] == ["two"]
    await end(two)
    await store.close()


async def test_one_that_is_cut_off_goes_after_its_lease_and_comes_back(settings: EtcdSettings):
    other = await EtcdStore.open(settings)
    async with relay_to(settings.endpoints[0]) as relay:
        near = replace(settings, endpoints=(relay.endpoint,), request_timeout_ms=500)
        store = await EtcdStore.open(near)
        running = asyncio.create_task(Presence(store, "one", "1.0", 1, ttl_s=1).run())
        await until(other, "one")
        relay.cut()
        await until(other)
        relay.mend()
        await until(other, "one")
        await end(running)
        await store.close()
    await other.close()


async def test_a_lease_that_somebody_revoked_is_taken_again(settings: EtcdSettings):
    store = await EtcdStore.open(settings)
    presence = Presence(store, "one", "1.0", 1, ttl_s=3)
    running = asyncio.create_task(presence.run())
    await until(store, "one")
    listing = await store.list("")
    async with store.watch(OPERATORS, listing.next_revision) as watch:
        await store.links.write(LEASE_REVOKE, pb.LeaseRevokeRequest(ID=presence._lease))
        values = [each.value for each in await take(watch, 2) if isinstance(each, Change)]
    assert values == [None, listing.records[0].value]
    await end(running)
    await store.close()


async def test_staying_writes_nothing(settings: EtcdSettings):
    store = await EtcdStore.open(settings)
    running = asyncio.create_task(Presence(store, "one", "1.0", 1, ttl_s=1).run())
    await until(store, "one")
    listings = [await store.list("")]
    while len(listings) < 5 and listings[-2:-1] != listings[-1:]:
        # Longer than the lease lasts; once more if it was lost because this machine stood still.
        await asyncio.sleep(2.5)
        listings.append(await store.list(""))
    assert listings[-2] == listings[-1]
    await end(running)
    await store.close()


async def test_one_that_starts_again_under_its_name_takes_its_place(settings: EtcdSettings):
    store, later = [await EtcdStore.open(settings) for _ in range(2)]
    listing = await later.list("")
    running = asyncio.create_task(Presence(store, "one", "1.0", 1).run())
    async with later.watch(OPERATORS, listing.next_revision) as watch:
        await until(store, "one")
        again = asyncio.create_task(Presence(later, "one", "1.1", 2).run())
        values = [each.value for each in await take(watch, 2) if isinstance(each, Change)]
    assert values == [
        b'{"format":1,"version":"1.0","since_ms":1}',
        b'{"format":1,"version":"1.1","since_ms":2}',
    ]
    # The lease of the one before goes; the key is no longer bound to it.
    await end(running)
    assert await operators(later) == (Operator("one", "1.1", 2),)
    await end(again)
    await store.close()
    await later.close()


async def test_what_a_newer_operator_says_is_not_misread():
    store = Memory().handle()
    await put(store, OPERATORS + "a", b'{"format":2,"since":"noon"}')
    await put(store, OPERATORS + "b", b"nonsense")
    await put(store, OPERATORS + "c", b'{"format":1,"version":"1","since_ms":3}')
    assert await operators(store) == (
        Operator("a", "", 0),
        Operator("b", "", 0),
        Operator("c", "1", 3),
    )
    await store.close()


async def test_a_name_is_a_key(settings: EtcdSettings):
    store = await EtcdStore.open(settings)
    with pytest.raises(BadKey):
        Presence(store, "a name", "1", 1)
    await store.close()
