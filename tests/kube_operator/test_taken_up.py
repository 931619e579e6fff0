"""A swap that a person asked for, whose operator dies in the middle: the next one ends it well."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kube_operator.installation import Installation, shard_body
from kube_operator.stores import Breaking
from kube_operator.swaps import FOUR, ask_for_swap, until_done

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
