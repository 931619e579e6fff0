"""Memory of a leader stays bounded, whoever does not keep up: resident bytes of real processes.

What is not taken is bounded by settings: `follower_inflight_bytes_max` for each follower,
`client_inflight_bytes_max` for each connection, `node_inflight_bytes_max` for all of them.
`MORE_MIB` is the last of these: a follower that does not keep up may cost that much, however much
is appended meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from faults.cluster import FaultCluster, until
from faults.nursery import Nursery
from faults.ordeal import SHARD
from faults.rude_clients import (
    Ask,
    RudeClient,
    appends,
    confirmed_reads,
    reads,
    registrations,
    rude_clients,
    unfinished_frames,
)
from faults.saturation import RECORD, Growth, Saturation
from shardlog.transport.handshake import Role

MORE_MIB = 64
WARM_UP_MIB = 48
APPENDED_MIB = 128
"""Twice as much as may wait: if it were kept it would show."""
MORE_BY_CLIENTS_MIB = 192
"""`node_inflight_bytes_max` for appends, half of it for answers and half for unfinished frames, and
half of all that again for what an allocator has not given back yet."""
RUDE = 64
RUDENESS: list[tuple[Ask, int, Role]] = [
    (reads, 16, Role.CLIENT),
    (confirmed_reads, 16, Role.CLIENT),
    (appends, 2000, Role.CLIENT),
    (registrations, 20_000, Role.CLIENT),
    (unfinished_frames, 1, Role.CLIENT),
    (unfinished_frames, 1, Role.NODE),
]
"""What they ask for, how often at once, and what they say they are (S-07, S-08)."""


@asynccontextmanager
async def saturated(cluster: FaultCluster) -> AsyncIterator[tuple[Saturation, str]]:
    """Warm, so that what an allocator keeps does not count; and who leads."""
    async with cluster.running():
        await cluster.create(SHARD)
        saturation = Saturation(cluster, SHARD)
        async with saturation.running():
            await saturation.until_more(WARM_UP_MIB)
            leader = await cluster.leader(SHARD)
            assert leader is not None
            yield saturation, leader


def test_a_follower_that_stands_still(tmp_path: Path, nursery: Nursery):
    async def story() -> None:
        cluster = FaultCluster(tmp_path / "cluster", nursery=nursery)
        async with saturated(cluster) as (saturation, leader):
            follower = next(node for node in cluster.nodes if node != leader)
            async with Growth(cluster.nodes[leader]).watched() as growth:
                cluster.nodes[follower].pause()
                await saturation.until_more(APPENDED_MIB)
                assert await is_behind(cluster, leader, follower)
                cluster.nodes[follower].resume()
                await saturation.until_more(WARM_UP_MIB)
        told(growth)
        assert max(growth.mib.values()) < MORE_MIB

    asyncio.run(story())


def test_a_follower_whose_disk_stalls(tmp_path: Path, nursery: Nursery):
    stalled = tmp_path / "stalled"

    async def story() -> None:
        cluster = FaultCluster(tmp_path / "cluster", nursery=nursery)
        program = (sys.executable, str(Path(__file__).with_name("stalling_disk.py")), str(stalled))
        cluster.before_start = lambda: cluster.nodes["node-1"].become(*program)
        async with saturated(cluster) as (saturation, leader):
            while leader == "node-1":
                asked = {"operation": "promote", "node": "node-2"}
                await cluster.ask("POST", f"/v1/shards/{SHARD}/operations", asked)
                leader = await cluster.leader(SHARD) or leader
            await saturation.until_more(WARM_UP_MIB)
            stalling = cluster.nodes["node-1"]
            async with Growth(cluster.nodes[leader], stalling).watched() as growth:
                stalled.touch()
                await saturation.until_more(APPENDED_MIB)
                assert await is_behind(cluster, leader, "node-1")
                stalled.unlink()
                await saturation.until_more(WARM_UP_MIB)
        told(growth)
        assert max(growth.mib.values()) < MORE_MIB

    asyncio.run(story())


def test_clients_that_never_listen(tmp_path: Path, nursery: Nursery):
    grown: dict[str, float] = {}

    async def story() -> None:
        cluster = FaultCluster(tmp_path / "cluster", nursery=nursery)
        async with saturated(cluster) as (saturation, leader):
            address = next(each.data for each in cluster.places.nodes if each.name == leader)
            async with Growth(cluster.nodes[leader]).watched() as growth:
                for ask, at_once, role in RUDENESS:
                    rude = [RudeClient(address, SHARD, ask, at_once, role) for _ in range(RUDE)]
                    async with rude_clients(rude):
                        await until(partial(all_have_asked, rude), "a rude client never asked")
                        await saturation.until_more(WARM_UP_MIB)
                    grown[f"{ask.__name__} of a {role.name}"] = growth.mib[leader]
        told(growth)
        assert max(grown.values()) < MORE_BY_CLIENTS_MIB, grown

    asyncio.run(story())


async def is_behind(cluster: FaultCluster, leader: str, follower: str) -> bool:
    """By more than may be on its way, as the leader sees it."""
    found = await cluster.status(SHARD)
    (report,) = [each for each in found["reports"] if each["node"] == leader]
    (cursor,) = [each for each in report["cursors"] if each["node"] == follower]
    return bool((report["end"] - cursor["acked"]) * len(RECORD) > MORE_MIB << 20)


def all_have_asked(clients: list[RudeClient]) -> bool:
    return all(client.asked for client in clients)


def told(growth: Growth) -> None:
    """For whoever looks (`pytest -s`)."""
    for name, mib in growth.mib.items():
        print(f"\n{name} grew by {mib:.0f} MiB")
