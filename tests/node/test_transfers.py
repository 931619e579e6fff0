"""Snapshots on their way to a new node: whoever is killed, it goes on where it was."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.cluster import until_true
from faults.network import Network
from faults.nursery import Nursery
from faults.saturation import Saturation

from node.transfers import MIB, SHARD, SLOW, Transfers

LOG_BYTES = 8 * MIB
SATURATED_BYTES = 256 * MIB
NEW = "node-4"


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery.open() as nursery:
        yield nursery


def test_V8_a_new_node_that_is_killed_goes_on_where_it_was(tmp_path: Path, nursery: Nursery):
    async def story() -> None:
        async with Transfers.begun(tmp_path, nursery, SLOW) as cluster:
            written = await cluster.fill(LOG_BYTES)
            _, others = await cluster.roles()
            await cluster.swap(others[0], NEW)
            await cluster.until_received(NEW, 3 * MIB)
            cluster.nodes[NEW].kill()
            await cluster.revive(NEW)
            await until_true(lambda: cluster.ensemble_has(NEW), "the new node does not join")
            again = await cluster.metric(NEW, "shardlog_transfer_received_bytes_total")
            assert 0 < again < LOG_BYTES - 2 * MIB, "it started over"
            assert await cluster.values() == written

    asyncio.run(story())


def test_V8_a_source_that_is_killed_is_replaced_and_nothing_is_sent_twice(
    tmp_path: Path, nursery: Nursery
):
    async def story() -> None:
        async with Transfers.begun(tmp_path, nursery, SLOW) as cluster:
            written = await cluster.fill(LOG_BYTES)
            leader, others = await cluster.roles()
            await cluster.swap(others[0], NEW)
            await cluster.until_received(NEW, 3 * MIB)
            cluster.nodes[leader].kill()
            await until_true(lambda: cluster.ensemble_has(NEW), "the new node does not join")
            received = await cluster.metric(NEW, "shardlog_transfer_received_bytes_total")
            assert LOG_BYTES <= received < LOG_BYTES + 2 * MIB
            await cluster.revive(leader)
            assert await cluster.values() == written

    asyncio.run(story())


def test_a_source_that_lies_is_refused_and_another_one_is_tried(tmp_path: Path, nursery: Nursery):
    async def story() -> None:
        network = Network()
        async with Transfers.begun(tmp_path, nursery, {}, network) as cluster:
            written = await cluster.fill(LOG_BYTES)
            leader, others = await cluster.roles()

            def alter(source: str, target: str, data: bytes) -> bytes:
                """One bit of every long piece, which is one of a body."""
                if (source, target) != (leader, NEW) or len(data) < 4096:
                    return data
                middle = len(data) // 2
                return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]

            network.alter = alter
            await cluster.swap(others[0], NEW)
            await cluster.until_metric(NEW, "shardlog_damaged_received_total", 1, source=leader)
            await cluster.until_metric(
                NEW, "shardlog_transfer_received_bytes_total", LOG_BYTES // 2
            )
            sent = [
                await cluster.metric(each, "shardlog_fetched_sent_bytes_total", follower=NEW)
                for each in others
            ]
            assert sum(sent) >= LOG_BYTES // 2, "nobody else was asked"
            network.alter = None
            await until_true(lambda: cluster.ensemble_has(NEW), "the new node does not join")
            blamed = cluster.told(NEW, "damaged entries refused")
            assert {each["source"] for each in blamed} == {leader}
            assert await cluster.values() == written

    asyncio.run(story())


def test_an_expand_under_saturation_ends(tmp_path: Path, nursery: Nursery):
    """Clients append as fast as they can from before it begins, and after a while a little slower.

    That keeps the disk of a slow machine from filling up; they never stop before it is done.
    """

    async def story() -> None:
        async with Transfers.begun(tmp_path, nursery, {}) as cluster:
            saturation = Saturation(cluster, SHARD, fast_bytes_max=SATURATED_BYTES)
            async with saturation.running():
                await saturation.until_more(16)
                await cluster.scale(4)
                await until_true(lambda: cluster.ensemble_has(NEW), "the new node does not join")
                await saturation.until_more(1)
            leader, others = await cluster.roles()
            await cluster.until_equal([leader, *others])
            assert NEW in (leader, *others)
        shutil.rmtree(cluster.volume(NEW).parent)

    asyncio.run(story())


def test_T12_a_standby_that_lags_is_not_promoted_and_cancelling_costs_nothing(
    tmp_path: Path, nursery: Nursery
):
    async def story() -> None:
        slow = {"CATCH_UP_BYTES_PER_S_MAX": "64KiB"}
        async with Transfers.begun(tmp_path, nursery, slow) as cluster:
            written = await cluster.fill(LOG_BYTES)
            before = await cluster.shard(SHARD)
            _, others = await cluster.roles()
            await cluster.swap(others[0], NEW)
            await cluster.until_received(NEW, MIB)
            written += await cluster.fill(MIB)
            found = await cluster.shard(SHARD)
            assert found["reconfiguration"]["phase"] == "JOINING", "it counts before it is there"
            await cluster.abort()

            async def as_before() -> bool:
                now = await cluster.shard(SHARD)
                return now is not None and now["reconfiguration"] is None

            await until_true(as_before, "it is not cancelled")
            after = await cluster.shard(SHARD)
            for what in ("epoch", "leader", "ensemble", "status"):
                assert after[what] == before[what]

            async def gone() -> bool:
                return not list(cluster.volume(NEW).glob(f"{SHARD}/*.segment"))

            await until_true(gone, "the replica that nobody needs is not destroyed")
            assert await cluster.values() == written

    asyncio.run(story())
