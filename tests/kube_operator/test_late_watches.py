"""Watches tell each kind at its own time: what is late must not end what a person has asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kube_operator.installation import Installation, operation_body, shard_body
from kube_operator.stores import Breaking, Late
from shardlog_operator.process import OperatorProcess
from shardlog_operator.spec import ENDED, operation_spec

FOUR = "node-0 node-1 node-2 node-3"


async def ask_for_swap(it: Installation) -> None:
    """Of a follower, for the node that has no replica yet."""
    status = await it.ready()
    members = {each["node"]: each["role"] for each in status["ensemble"]}
    old = next(node for node, role in sorted(members.items()) if role == "Follower")
    new = next(node for node in FOUR.split() if node not in members)
    body = operation_body("away", "Swap", shard="orders", oldNode=old, newNode=new)
    await it.api.create("shardoperations", body)


def status(it: Installation) -> Any:
    return it.api.get("shardoperations", "away").get("status") or {}


async def until_swapped(it: Installation) -> None:
    found = await it.api.until(lambda: status(it).get("phase") in ENDED and status(it))
    assert found["phase"] == "Succeeded", found


def knows_that_it_is_under_way(process: OperatorProcess) -> bool:
    body = process.watched.operations.get("away")
    return body is not None and operation_spec(body).started


def test_an_operation_is_heard_of_before_its_shard(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, FOUR).running() as it:
            await it.api.create("shards", shard_body(replicas=3))
            await it.ready()
            await it.kill_operator("operator-0")
            it.api.late.add("shards")
            await ask_for_swap(it)
            await it.start_operator("operator-1")
            await until_swapped(it)

    asyncio.run(story())


def test_a_change_is_told_of_before_its_record(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, FOUR).running(operators=0) as it:
            broken, late = Breaking(it.memory.handle(), "Prepare"), Late(it.memory.handle())
            await it.start_operator("operator-0", broken)
            await it.api.create("shards", shard_body(replicas=3))
            await it.ready()
            second = await it.start_operator("operator-1", late)
            await second.host.begun.wait()
            late.told.clear()
            await ask_for_swap(it)
            await it.api.until(lambda: broken.written and knows_that_it_is_under_way(second))
            before = late.asked
            await it.api.until(lambda: late.asked > before or status(it)["phase"] in ENDED)
            await it.kill_operator("operator-0")
            late.told.set()
            await until_swapped(it)

    asyncio.run(story())
