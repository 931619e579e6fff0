"""A swap that a person asked for, and what comes in between: it is done, or not wanted any more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kube_operator.installation import Installation, operation_body, shard_body
from kube_operator.stores import Breaking
from kube_operator.swaps import FOUR, ask_for_swap, status, until_done
from shardlog_operator.spec import ENDED

PHASES = ["Joining", "Joining with a replica", "Prepare", "Commit"]


async def broken_off(it: Installation, so_far: str) -> Breaking:
    store = Breaking(it.memory.handle(), so_far)
    await it.start_operator("operator-0", store)
    await it.api.create("shards", shard_body(replicas=3))
    await it.ready()
    await ask_for_swap(it)
    await it.api.until(lambda: store.written)
    await it.kill_operator("operator-0")
    return store


@pytest.mark.parametrize("operators", [1, 2])
@pytest.mark.parametrize("so_far", PHASES)
def test_others_take_it_up(tmp_path: Path, so_far: str, operators: int):
    async def story() -> None:
        async with Installation(tmp_path, FOUR).running(operators=0) as it:
            await broken_off(it, so_far)
            for number in range(operators):
                await it.start_operator(f"operator-{number + 1}")
            await until_done(it)

    asyncio.run(story())


@pytest.mark.parametrize("so_far", PHASES)
def test_its_leader_dies_as_well(tmp_path: Path, so_far: str):
    """The election clears a change in PREPARE, and completes one in COMMIT (rule 9)."""

    async def story() -> None:
        async with Installation(tmp_path, FOUR).running(operators=0) as it:
            store = await broken_off(it, so_far)
            assert store.written is not None
            assert store.written.leader is not None
            await it.end_node(store.written.leader.node)
            await it.start_operator("operator-1")
            await until_done(it)
            record = await it.until_record(lambda shard: shard.leader is not None)
            assert record.leader != store.written.leader
            assert record.epoch > store.written.epoch

    asyncio.run(story())


async def stands_still(it: Installation) -> str:
    """The node that is to join, and does not answer."""
    await it.api.create("shards", shard_body(replicas=3))
    members = {each["node"] for each in (await it.ready())["ensemble"]}
    (new,) = set(FOUR.split()) - members
    await it.end_node(new)
    await ask_for_swap(it)
    await it.api.until(lambda: (record := it.record()) and record.joining)
    return new


def test_it_is_given_up_because_a_node_is_slow_and_begun_again(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, FOUR).running(operators=2) as it:
            new = await stands_still(it)
            await it.until_told("ReconfigurationAborted")
            await it.start_node(new)
            await until_done(it)
            assert new in {each.node for each in (await it.until_record(bool)).ensemble}

    asyncio.run(story())


def test_it_is_aborted_and_not_begun_again(tmp_path: Path):
    async def story() -> None:
        async with Installation(tmp_path, FOUR).running(operators=2) as it:
            new = await stands_still(it)
            await it.api.create("shardoperations", operation_body("no", "Abort", shard="orders"))
            found = await it.api.until(lambda: status(it).get("phase") in ENDED and status(it))
            assert found["phase"] == "Failed"
            assert "aborted" in found["message"]
            await it.start_node(new)
            await it.ready()
            record = it.record()
            assert record is not None
            assert record.joining is None
            assert new not in {each.node for each in record.ensemble}

    asyncio.run(story())
