"""What the operator does when something it needs fails: itself, etcd, the API server, a record."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from kube_operator.installation import Installation, operation_body, shard_body, told
from kube_operator.stores import Breaking, Outage
from shardlog.metadata.records import FORMAT, decode_shard, encode_shard, shard_key
from shardlog.protocol.coordinator_state import changed
from shardlog.protocol.shard import Status
from shardlog_operator.nodes import GATE

THREE = "node-0 node-1 node-2"
AVAILABLE = "shardlog_operator_api_available"


@pytest.mark.parametrize("so_far", ["Joining", "Joining with a replica", "Prepare", "Commit"])
def test_an_operator_is_killed_half_way_and_another_goes_on(tmp_path: Path, so_far: str):
    async def story() -> None:
        async with Installation(tmp_path).running(operators=0) as it:
            store = Breaking(it.memory.handle(), so_far)
            await it.start_operator("operator-0", store)
            await it.api.create("shards", shard_body(replicas=3))
            await it.ready()
            await it.api.change("shards", "orders", {"spec": {"replicas": 5}})
            await it.api.until(lambda: store.written)
            await it.kill_operator("operator-0")
            found = await it.memory.handle().get(shard_key("orders"))
            assert found is not None
            assert decode_shard(found.key, found.value) == store.written
            await it.start_operator("operator-1")
            await it.ready(replicas=5)

    asyncio.run(story())


def test_two_operators_at_once(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path).running(operators=2) as it:
            for number in range(3):
                await it.api.create("shards", shard_body(f"shard-{number}", replicas=3))
            for number in range(3):
                await it.ready(f"shard-{number}")
                change = {"spec": {"replicas": 5}}
                await it.api.change("shards", f"shard-{number}", change)
            for number in range(3):
                await it.ready(f"shard-{number}", replicas=5)
            body = operation_body("away", "Drain", node="node-0")
            await it.api.create("shardoperations", body)
            await it.until_told("NoNodeToSwap")

    asyncio.run(story())


def test_etcd_down_from_the_start_is_said_and_waited_for(tmp_path: Path):
    async def story() -> None:
        it = Installation(tmp_path, THREE)
        async with it.running(operators=0):
            store = Outage(it.memory.handle())
            store.down = True
            process = await it.start_operator(store=store)
            await it.api.create("shards", shard_body(replicas=3))
            reason = "MetadataUnavailable"
            await it.api.until(lambda: it.condition("Ready").get("reason") == reason)
            assert "metadata store" in it.status()["waitingFor"]
            await it.api.until(lambda: "no member answers" in process.metadata_failure)
            store.down = False
            await it.ready()
            assert "waitingFor" not in it.status()

    asyncio.run(story())


async def cut_off(it: Installation, store: Outage) -> None:
    """While the shard is led: an election that a busy machine began would wait, and say so."""
    while not store.down:
        await it.ready()
        store.down = True
        found = await store.inner.get(shard_key("orders"))
        assert found is not None
        store.down = decode_shard(found.key, found.value).status is Status.STEADY


def test_etcd_down_later_holds_up_what_needs_it_and_nothing_else(tmp_path: Path):
    async def story() -> None:
        it = Installation(tmp_path)
        async with it.running(operators=0):
            store = Outage(it.memory.handle())
            process = await it.start_operator(store=store)
            await it.api.create("shards", shard_body(replicas=3))
            await cut_off(it, store)
            await it.api.change("shards", "orders", {"spec": {"replicas": 4}})
            await it.api.until(lambda: "metadata" in it.status().get("waitingFor", ""))
            assert it.condition("Available")["status"] == "True"
            await it.api.until(lambda: process.metadata_failure)
            store.down = False
            await it.ready(replicas=4)

    asyncio.run(story())


def test_the_api_server_goes_away_and_comes_back(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, THREE).running() as it:
            await it.api.create("shards", shard_body(replicas=3))
            leader = (await it.ready())["leader"]
            await it.api.stop()
            await told(it.operator, "/readyz", lambda found: found["ready"] and found["api"])
            await told(it.operator, "/metrics", lambda found: f"{AVAILABLE} 0.0" in found)
            await it.end_node(leader)
            shard = await it.until_record(
                lambda shard: shard.leader is not None and shard.leader.node != leader
            )
            assert shard.leader is not None
            await it.api.start()
            new = shard.leader.node
            await it.api.until(lambda: it.status().get("leader") == new)
            slices = it.api.get("endpointslices", "orders")
            assert slices["endpoints"][0]["targetRef"]["name"] == new
            await told(it.operator, "/readyz", lambda found: found["api"] is None)
            await told(it.operator, "/metrics", lambda found: f"{AVAILABLE} 1.0" in found)

    asyncio.run(story())


def test_an_object_deleted_while_nobody_watched_is_missed_at_the_next_listing(tmp_path: Path):
    async def story() -> None:
        it = Installation(tmp_path, THREE)
        async with it.running(operators=0):
            process = await it.start_operator(resync_s=0.5)
            await it.api.until(lambda: len(process.nodes.pods) == 3)
            del it.api.objects["pods", "node-1"]
            await it.api.until(lambda: len(process.nodes.pods) == 2)

    asyncio.run(story())


def gates(it: Installation) -> set[tuple[str, str]]:
    conditions = [each for pod in it.api.all("pods") for each in pod["status"]["conditions"]]
    return {(each["status"], each["reason"]) for each in conditions if each["type"] == GATE}


def test_a_newer_record_is_left_alone_and_said_so(tmp_path: Path):
    async def story() -> None:
        it = Installation(tmp_path, THREE)
        async with it.running(operators=0):
            store = it.memory.handle()
            value = json.dumps({"format": FORMAT + 1, "what": "nobody knows yet"}).encode()
            await store.compare_and_swap(shard_key("orders"), 0, value)
            await it.start_operator()
            await it.api.create("shards", shard_body(replicas=3, deletionPolicy="Delete"))
            await it.api.until(lambda: it.condition("Ready").get("reason") == "NewerRecord")
            assert it.condition("Ready")["status"] == "Unknown"
            # Its replicas may be anywhere: nobody says of a node that it may be taken away.
            await it.api.until(lambda: gates(it) == {("False", "RecordUnreadable")})
            body = operation_body("away", "Drain", node="node-0")
            await it.api.create("shardoperations", body)
            await it.api.until(
                lambda: "cannot be read: orders" in str(it.api.all("shardoperations"))
            )
            assert it.api.get("shardoperations", "away")["status"]["phase"] == "Running"
            await it.api.delete("shards", "orders")
            await it.api.until(lambda: it.status().get("phase") == "Deleting")
            found = await store.get(shard_key("orders"))
            assert found is not None
            assert found.value == value
            change = {"spec": {"deletionPolicy": "Retain"}}
            await it.api.change("shards", "orders", change)
            await it.api.until(lambda: it.api.find("shards", "orders") is None)
            assert await store.get(shard_key("orders")) == found

    asyncio.run(story())


def test_a_record_that_could_not_be_read_for_a_while_is_no_new_one(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, THREE).running() as it:
            await it.api.create("shards", shard_body(replicas=3))
            await it.ready()
            await it.until_told("LeaderElected")
            store = it.memory.handle()
            good = await store.get(shard_key("orders"))
            assert good is not None
            value = json.dumps({"format": FORMAT + 1, "what": "nobody knows yet"}).encode()
            await store.compare_and_swap(shard_key("orders"), good.version, value)
            await it.api.until(lambda: it.condition("Ready").get("reason") == "NewerRecord")
            newer = await store.get(shard_key("orders"))
            assert newer is not None
            await store.compare_and_swap(shard_key("orders"), newer.version, good.value)
            await it.ready()
            told = [each for each in it.api.all("events") if each["reason"] == "LeaderElected"]
            assert sum(each["count"] for each in told) == 1

    asyncio.run(story())


def test_a_halted_shard_says_why(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, THREE).running() as it:
            await it.api.create("shards", shard_body(replicas=3))
            await it.ready()
            store = it.memory.handle()
            why = "node-1 leads another ensemble"
            while True:
                found = await store.get(shard_key("orders"))
                assert found is not None
                record = decode_shard(found.key, found.value)
                value = encode_shard(changed(record, halted=why))
                if (await store.compare_and_swap(found.key, found.version, value)).done:
                    break
            await it.api.until(lambda: it.condition("Halted").get("status") == "True")
            assert it.condition("Halted")["message"] == why
            assert it.status()["phase"] == "Halted"
            assert record.status is Status.STEADY
            body = operation_body("a", "Promote", shard="orders", node="node-0")
            await it.api.create("shardoperations", body)
            await it.api.until(
                lambda: (
                    (it.api.get("shardoperations", "a").get("status") or {}).get("phase")
                    == "Failed"
                )
            )

    asyncio.run(story())


def test_machines_that_may_not_be_read(tmp_path: Path):
    async def story() -> None:
        it = Installation(tmp_path, THREE)
        it.api.forbidden.add("nodes")
        async with it.running():
            await it.api.create("shards", shard_body(replicas=3))
            await it.ready()

    asyncio.run(story())
