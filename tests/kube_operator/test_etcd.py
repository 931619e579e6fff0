"""Operators on a real etcd: its members killed and started again, and who runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from etcd.cluster import EtcdCluster

from kube_operator.installation import Installation, shard_body, told
from shardlog.metadata.etcd.store import EtcdStore
from shardlog.metadata.failures import OutOfSpace
from shardlog.metadata.store import VALUE_BYTES_MAX
from shardlog.protocol.contradiction import ADVICE
from shardlog_operator.process import OperatorProcess

pytestmark = pytest.mark.needs("etcd")

THREE = "node-0 node-1 node-2"


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path / "etcd", members=3) as cluster:
        yield cluster


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


async def start(it: Installation, etcd: EtcdCluster, name: str) -> OperatorProcess:
    settings = replace(etcd.settings(), connect_timeout_ms=500, request_timeout_ms=1000)
    process = await it.start_operator(name, EtcdStore(settings))
    await it.api.until(lambda: process.address)
    return process


def names(*wanted: str) -> Callable[[Any], bool]:
    return lambda found: [each["name"] for each in found.get("operators", [])] == list(wanted)


def test_those_who_run_are_listed(etcd: EtcdCluster, tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, THREE).running(operators=0) as it:
            one = await start(it, etcd, "operator-0")
            two = await start(it, etcd, "operator-1")
            await it.api.create("shards", shard_body(replicas=3))
            await it.ready()
            for process in (one, two):
                found = await told(process, "/v1/operators", names("operator-0", "operator-1"))
                assert all(each["version"] and each["since_ms"] for each in found["operators"])
            await it.end_operator("operator-0")
            await told(two, "/v1/operators", names("operator-1"))

    run(story())


def test_operators_wait_for_etcd_and_go_on_when_it_is_back(etcd: EtcdCluster, tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, f"{THREE} node-3").running(operators=0) as it:
            process = await start(it, etcd, "operator-0")
            await it.api.create("shards", shard_body(replicas=3))
            await it.ready()
            etcd.members[0].kill()
            await it.api.change("shards", "orders", {"spec": {"replicas": 4}})
            await it.ready(replicas=4)
            for member in etcd.members[1:]:
                member.kill()
            found = await told(process, "/readyz", lambda it: it["metadata"] is not None)
            assert all(endpoint in found["metadata"] for endpoint in etcd.endpoints)
            await it.api.change("shards", "orders", {"spec": {"replicas": 3}})
            await asyncio.to_thread(etcd.start)
            await told(process, "/readyz", lambda it: it["metadata"] is None)
            await it.ready(replicas=3)

    run(story())


def test_a_shard_that_is_not_in_a_restored_backup_is_not_made_anew(tmp_path: Path):
    """It served once: a person decides what becomes of the records on its nodes."""

    async def story(etcd: EtcdCluster) -> None:
        async with Installation(tmp_path, THREE).running(operators=0) as it:
            process = await start(it, etcd, "operator-0")
            await told(process, "/readyz", lambda it: it["metadata"] is None)
            await asyncio.to_thread(etcd.back_up, tmp_path / "backup")
            await it.api.create("shards", shard_body(replicas=3))
            before = await it.ready()
            await it.api.until(lambda: it.api.get("endpointslices", "orders")["endpoints"])
            await asyncio.to_thread(etcd.restore, tmp_path / "backup")
            await it.api.until(lambda: it.condition("Ready")["reason"] == "RecordMissing")
            assert it.condition("Ready")["status"] == "Unknown"
            assert it.status()["epoch"] == before["epoch"]
            assert all(
                each["node"] in it.condition("Ready")["message"] for each in before["ensemble"]
            )
            assert await process.store.get("shards/orders") is None
            slice_ = it.api.get("endpointslices", "orders")
            assert slice_["endpoints"][0]["targetRef"]["name"] == before["leader"]
            # Another is made meanwhile.  Created again on the same nodes, it has their records.
            await it.api.create("shards", shard_body("other", replicas=3))
            await it.ready("other")
            assert await process.store.get("shards/orders") is None
            await it.api.delete("shards", "orders")
            await it.api.until(lambda: it.api.find("shards", "orders") is None)
            await it.api.create("shards", shard_body(replicas=3))
            after = await it.ready()
            assert after["epoch"] > before["epoch"]

    with EtcdCluster(tmp_path / "etcd") as etcd:
        run(story(etcd))


def test_rule_21_a_shard_made_again_beside_some_of_its_replicas_halts(tmp_path: Path):
    """Two of three would decide, with a new node, without what only the third may hold."""

    async def story(etcd: EtcdCluster) -> None:
        async with Installation(tmp_path, f"{THREE} node-3").running(operators=0) as it:
            process = await start(it, etcd, "operator-0")
            await told(process, "/readyz", lambda it: it["metadata"] is None)
            await asyncio.to_thread(etcd.back_up, tmp_path / "backup")
            await it.api.create("shards", shard_body(replicas=3))
            members = {each["node"] for each in (await it.ready())["ensemble"]}
            await asyncio.to_thread(etcd.restore, tmp_path / "backup")
            await it.api.until(lambda: it.condition("Ready")["reason"] == "RecordMissing")
            # The one that hosts another shard is not chosen again, the free fourth one is.
            await it.api.create("shards", shard_body("other", replicas=1))
            left_out = (await it.ready("other", replicas=1))["leader"]
            assert left_out in members
            await it.api.delete("shards", "orders")
            await it.api.until(lambda: it.api.find("shards", "orders") is None)
            await it.api.create("shards", shard_body(replicas=3))
            await it.api.until(lambda: it.condition("Halted").get("status") == "True")
            message = it.condition("Halted")["message"]
            assert f"was told of {left_out}#" in message
            assert message.endswith(ADVICE)

    with EtcdCluster(tmp_path / "etcd") as etcd:
        run(story(etcd))


def test_rule_21_a_restored_backup_with_another_ensemble_halts_the_shard(tmp_path: Path):
    """Its leader has members that the backup does not know: a person decides which is right."""

    async def story(etcd: EtcdCluster) -> None:
        async with Installation(tmp_path, f"{THREE} node-3").running(operators=0) as it:
            process = await start(it, etcd, "operator-0")
            await it.api.create("shards", shard_body(replicas=3))
            before = await it.ready()
            await asyncio.to_thread(etcd.back_up, tmp_path / "backup")
            await it.api.change("shards", "orders", {"spec": {"replicas": 4}})
            leader = (await it.ready(replicas=4))["leader"]
            await asyncio.to_thread(etcd.restore, tmp_path / "backup")
            await it.api.until(lambda: it.condition("Halted").get("status") == "True")
            why = f"{leader} leads another ensemble; {ADVICE}"
            assert it.condition("Halted")["message"] == why
            ready = it.condition("Ready")
            assert (ready["status"], ready["reason"], ready["message"]) == ("False", "Halted", why)
            assert (it.status()["phase"], it.status()["epoch"]) == ("Halted", before["epoch"])
            record = process.host.shards["orders"]
            assert [each.node for each in record.ensemble] == [
                each["node"] for each in before["ensemble"]
            ]
            await it.api.until(lambda: ("Warning", "Halted", why) in it.events())

    with EtcdCluster(tmp_path / "etcd") as etcd:
        run(story(etcd))


def test_an_etcd_without_space_is_told_and_waited_for(tmp_path: Path):
    async def fill(store: EtcdStore) -> None:
        for number in range(200):
            found = await store.get("filler")
            value = number.to_bytes(VALUE_BYTES_MAX, "big")
            await store.compare_and_swap("filler", found.version if found else 0, value)

    async def story(etcd: EtcdCluster) -> None:
        async with Installation(tmp_path, f"{THREE} node-3").running(operators=0) as it:
            process = await start(it, etcd, "operator-0")
            await it.api.create("shards", shard_body(replicas=3))
            await it.ready()
            filler = EtcdStore(replace(etcd.settings(), prefix="/elsewhere/"))
            with pytest.raises(OutOfSpace):
                await fill(filler)
            await filler.close()
            await it.api.change("shards", "orders", {"spec": {"replicas": 4}})
            found = await told(process, "/readyz", lambda it: it["metadata"] is not None)
            assert "space exceeded" in found["metadata"]
            await asyncio.to_thread(etcd.compact)
            await asyncio.to_thread(etcd.ctl, "defrag")
            await asyncio.to_thread(etcd.ctl, "alarm", "disarm")
            await it.ready(replicas=4)
            await told(process, "/readyz", lambda it: it["metadata"] is None)

    with EtcdCluster(tmp_path / "etcd", flags=[f"--quota-backend-bytes={4 << 20}"]) as etcd:
        run(story(etcd))
