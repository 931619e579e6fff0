"""A volume without room is said to be so, and by which node, until there is room: real files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults.small_volume import SmallVolume, small_volume

from kube_operator.installation import Installation, operation_body, shard_body
from shardlog.client.client import Client
from shardlog.protocol.shard import Shard

Json = Any
THREE = "node-0 node-1 node-2"
NODE = "node-1"
VOLUME_MIB = 16
VALUE = bytes(64 << 10)
APPENDS = 64
"""Many segments, and yet no more than fits into the volume once there is room."""
FULL = ["Warning", "VolumeFull"]
TOLD = f"no space left on the volume of {NODE}"


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[SmallVolume]:
    """Where NODE of an installation in `tmp_path` keeps its files."""
    with small_volume(tmp_path / "small", VOLUME_MIB) as found:
        directory = found.path / "files"
        directory.mkdir()
        (tmp_path / NODE).symlink_to(directory)
        yield found


def warned(it: Installation) -> list[str]:
    return [message for *of, message in it.events() if of == FULL]


async def until_told(it: Installation) -> Json:
    return await it.api.until(
        lambda: it.condition("Ready").get("reason") == "VolumeFull" and it.condition("Ready")
    )


def test_a_shard_for_which_there_is_no_room_says_so_and_recovers(
    tmp_path: Path, volume: SmallVolume
):
    async def story() -> None:
        async with Installation(tmp_path, THREE).running() as it:
            volume.fill()
            await it.api.create("shards", shard_body(replicas=3))
            ready = await until_told(it)
            assert (ready["status"], ready["message"]) == ("False", TOLD)
            assert it.condition("Available")["reason"] == "VolumeFull"
            assert it.status()["phase"] == "Creating"
            assert it.status()["waitingFor"] == TOLD
            await it.api.until(lambda: warned(it) == [TOLD])
            volume.make_room()
            assert "waitingFor" not in await it.ready()
            await it.api.until(lambda: "GoesOn" in it.reasons())

    asyncio.run(story())


def is_led(record: Shard, node: str) -> bool:
    return record.leader is not None and record.leader.node == node


async def append_until_full(it: Installation) -> None:
    async with (
        Client(f"http://{it.operator.address}") as client,
        client.producer("orders") as producer,
    ):
        for _ in range(APPENDS):
            await producer.append(VALUE)
    await until_told(it)


@pytest.mark.parametrize("leader", ["node-0", NODE])
def test_a_shard_that_serves_names_the_volume_that_ran_full(
    tmp_path: Path, volume: SmallVolume, leader: str
):
    async def story() -> None:
        async with Installation(tmp_path, THREE).running() as it:
            await it.api.create("shards", shard_body(replicas=3))
            await it.ready()
            asked = operation_body("lead", "Promote", shard="orders", node=leader)
            await it.api.create("shardoperations", asked)
            await it.until_record(lambda record: is_led(record, leader))
            volume.fill()
            await append_until_full(it)
            ready = it.condition("Ready")
            assert (ready["status"], ready["message"]) == ("False", TOLD)
            await it.api.until(lambda: it.condition("Available")["status"] == "True")
            await it.api.until(lambda: it.condition("FullyReplicated")["message"] == TOLD)
            await it.api.until(lambda: warned(it) == [TOLD])
            volume.make_room()
            await it.ready()
            await it.api.until(lambda: "GoesOn" in it.reasons())

    asyncio.run(story())


def test_a_node_on_its_way_in_that_has_no_room_is_named(tmp_path: Path, volume: SmallVolume):
    async def story() -> None:
        async with Installation(tmp_path, "node-0 node-2").running() as it:
            await it.api.create("shards", shard_body(replicas=2))
            await it.ready(replicas=2)
            volume.fill()
            await it.start_node(NODE)
            await it.api.change("shards", "orders", {"spec": {"replicas": 3}})
            assert (await until_told(it))["message"] == TOLD
            assert it.condition("Available")["status"] == "True"
            volume.make_room()
            await it.ready()

    asyncio.run(story())
