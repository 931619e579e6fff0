"""The end of a Shard, and what the next one of its name finds: the API emulated, nodes real."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from kube_operator.installation import Installation, shard_body
from shardlog.protocol.upkeep import USUAL, Upkeep

THREE = "node-0 node-1 node-2"
FOUR = f"{THREE} node-3"


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def test_deleted_with_all_its_data(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, THREE).running() as it:
            await it.api.create("shards", shard_body(replicas=3, deletionPolicy="Delete"))
            await it.ready()
            await it.api.delete("shards", "orders")
            await it.api.until(lambda: it.api.find("shards", "orders") is None)
            assert it.record() is None
            assert it.api.find("services", "orders") is None
            assert it.api.find("endpointslices", "orders") is None
            hosted = [each for node in it.nodes.values() for each in node.host.replicas.values()]
            assert all(each.replica.incarnation == 0 for each in hosted)
            await it.until_told("Deleting", "Deleted")

    run(story())


def test_a_deletion_does_not_wait_for_ever_for_a_lost_node(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, FOUR).running() as it:
            await it.api.create("shards", shard_body(replicas=3, deletionPolicy="Delete"))
            await it.ready()
            lost = it.status()["ensemble"][0]["node"]
            await it.api.change("shards", "orders", {"spec": {"paused": True}})
            await it.lose_node(lost)
            await it.api.delete("shards", "orders")
            await it.api.until(lambda: it.api.find("shards", "orders") is None)
            record = it.record()
            assert record is not None
            assert {member.node for member in record.removed} == {lost}
            await it.api.create("shards", shard_body(replicas=3))
            await it.api.until(lambda: lost in it.status().get("waitingFor", ""))
            await it.start_node(lost)
            await it.ready()

    run(story())


def test_retained_and_adopted(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path).running() as it:
            await it.api.create("shards", shard_body(replicas=3))
            before = await it.ready()
            await it.api.delete("shards", "orders")
            await it.api.until(lambda: it.api.find("shards", "orders") is None)
            assert it.record() is not None
            assert it.api.find("services", "orders") is None
            await it.api.create("shards", shard_body(replicas=5))
            after = await it.ready(replicas=5)
            were = {each["node"]: each["incarnation"] for each in before["ensemble"]}
            are = {each["node"]: each["incarnation"] for each in after["ensemble"]}
            assert were.items() <= are.items()
            await it.until_told("Retained", "Adopted")
            assert it.api.find("services", "orders") is not None

    run(story())


def test_retention_and_durability_reach_the_nodes(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, THREE).running() as it:

            def told() -> set[Upkeep]:
                replicas = [node.host.replicas.get("orders") for node in it.nodes.values()]
                return {each.replica.upkeep if each else USUAL for each in replicas}

            kept = {"bytes": 2 << 20, "time": "168h"}
            body = shard_body(replicas=3, durability="Relaxed", retention=kept)
            await it.api.create("shards", body)
            await it.ready()
            made = Upkeep(retention_bytes=2 << 20, retention_ms=168 * 3_600_000, relaxed=True)
            await it.api.until(lambda: told() == {made})
            await it.api.change("shards", "orders", {"spec": {"retention": {"bytes": 1 << 20}}})
            changed = replace(made, version=1, retention_bytes=1 << 20)
            await it.api.until(lambda: told() == {changed})
            await it.ready()
            await it.until_told("Retaining")
            await it.api.delete("shards", "orders")
            await it.api.until(lambda: it.api.find("shards", "orders") is None)
            await it.api.create("shards", shard_body(replicas=3, quorum={"replication": 3}))
            await it.ready()
            await it.api.until(lambda: told() == {Upkeep(version=2, relaxed=True)})
            await it.until_told("KeptAsCreated")
            events = {each["reason"]: each for each in it.api.all("events")}
            assert "quorum and durability" in json.dumps(events["KeptAsCreated"])

    run(story())
