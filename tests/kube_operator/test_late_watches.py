"""Watches tell each kind at its own time: what is late must not end what a person has asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kube_operator.installation import Installation, operation_body, shard_body
from kube_operator.stores import Breaking, Late
from kube_operator.swaps import FOUR, ask_for_swap, status, until_done
from shardlog.metadata.records import decode_shard, shard_key
from shardlog_operator import operating
from shardlog_operator.operations import hosts
from shardlog_operator.process import OperatorProcess
from shardlog_operator.spec import ENDED, operation_spec


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
            await until_done(it)

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
            await until_done(it)

    asyncio.run(story())


def test_a_drain_is_heard_of_before_the_records(tmp_path: Path):
    """It must not succeed while a replica is there."""

    async def story() -> None:
        async with Installation(tmp_path, FOUR).running(operators=0) as it:
            late = Late(it.memory.handle())
            second = await it.start_operator("operator-1", late)
            await second.host.begun.wait()
            late.told.clear()
            await it.start_operator("operator-0")
            await it.api.create("shards", shard_body(replicas=3))
            node = (await it.ready())["leader"]
            await it.kill_operator("operator-0")
            before = late.asked
            await it.api.create("shardoperations", operation_body("away", "Drain", node=node))
            await it.api.until(lambda: late.asked > before or status(it).get("phase") in ENDED)
            late.told.set()
            await until_done(it)
            found = await it.memory.handle().get(shard_key("orders"))
            assert found is not None
            assert node not in hosts(decode_shard(found.key, found.value))

    asyncio.run(story())


def test_a_refusal_is_no_end_if_the_change_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The answer to its write is lost; and it has been tried for long enough."""
    monkeypatch.setattr(operating, "PATIENCE_S", 0.0)

    async def story() -> None:
        async with Installation(tmp_path, FOUR).running(operators=0) as it:
            store = Breaking(it.memory.handle(), "Joining")
            await it.start_operator("operator-0", store)
            await it.api.create("shards", shard_body(replicas=3))
            await it.ready()
            await ask_for_swap(it)
            await until_done(it)
            assert store.written

    asyncio.run(story())


def test_the_time_without_an_operator_does_not_count(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, FOUR).running() as it:
            await it.api.create("shards", shard_body(replicas=3))
            members = (await it.ready())["ensemble"]
            follower = next(each["node"] for each in members if each["role"] == "Follower")
            await it.kill_operator("operator-0")
            body = operation_body("away", "Promote", shard="orders", node=follower)
            await it.api.create("shardoperations", body)
            begun = {"phase": "Running", "startedAt": "2026-01-01T00:00:00Z"}
            await it.api.change("shardoperations", "away", {"status": begun}, "status")
            await it.start_operator("operator-1")
            await until_done(it)

    asyncio.run(story())
