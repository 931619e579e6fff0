"""Creating, scaling, aborting and deleting, over real replicas in one process."""

import asyncio
from pathlib import Path

import pytest

from local.nodes_in_process import MAJORITY, administered, administration_of, settled, until
from shardlog.local.administration import BadRequest, NoSuchShard, NotNow, ShardExists
from shardlog.protocol.coordination import AbortChange, Promote, Swap
from shardlog.protocol.quorum import QuorumPolicy


def nodes_of(shard) -> list[str]:
    return sorted(member.node for member in shard.ensemble)


def test_shards_are_spread_over_the_nodes(tmp_path: Path):
    async def story() -> None:
        async with administered(tmp_path) as (_, administration):
            first = await administration.create("orders", 3, MAJORITY, None)
            second = await administration.create("events", 2, MAJORITY, None)
            assert nodes_of(first) == ["node-1", "node-2", "node-3"]
            assert nodes_of(second) == ["node-4", "node-5"]
            chosen = await administration.create("here", 1, MAJORITY, ["node-2"])
            assert nodes_of(chosen) == ["node-2"]

    asyncio.run(story())


def test_a_shard_is_scaled_up_and_down(tmp_path: Path):
    async def story() -> None:
        async with administered(tmp_path) as (_, administration):
            await administration.create("orders", 3, MAJORITY, None)
            await settled(administration, "orders", 3)
            await administration.scale("orders", 5)
            await settled(administration, "orders", 5)
            await administration.scale("orders", 2)
            shard = await settled(administration, "orders", 2)
            assert administration.replicas_wanted(shard) == 2

    asyncio.run(story())


def test_scaling_goes_on_after_the_administration_was_killed(tmp_path: Path):
    async def story() -> None:
        async with administered(tmp_path) as (cluster, first):
            await first.create("orders", 1, MAJORITY, None)
            await settled(first, "orders", 1)
            await first.wanted.write("orders", 3)
            await until(first, "orders", lambda shard: bool(shard.joining or shard.change))
            async with administration_of(cluster) as second:
                shard = await settled(second, "orders", 3)
                assert second.replicas_wanted(shard) == 3

    asyncio.run(story())


def test_an_aborted_change_is_not_begun_again(tmp_path: Path):
    async def story() -> None:
        async with administered(tmp_path) as (cluster, administration):
            await administration.create("orders", 3, MAJORITY, None)
            await settled(administration, "orders", 3)
            await cluster.stop("node-5")
            await administration.operate("orders", Swap("node-3", "node-5"))
            with pytest.raises(NotNow, match="in progress"):
                await administration.scale("orders", 4)
            with pytest.raises(NotNow, match="in progress"):
                await administration.operate("orders", Promote("node-2"))
            await administration.operate("orders", AbortChange())
            cluster.start("node-5")
            shard = await settled(administration, "orders", 3)
            assert nodes_of(shard) == ["node-1", "node-2", "node-3"]
            assert administration.replicas_wanted(shard) == 3

    asyncio.run(story())


def test_a_shard_that_is_scaled_can_be_left_as_it_is(tmp_path: Path):
    async def story() -> None:
        async with administered(tmp_path) as (cluster, administration):
            await administration.create("orders", 3, MAJORITY, None)
            await settled(administration, "orders", 3)
            for node in ("node-4", "node-5"):
                await cluster.stop(node)
            await administration.scale("orders", 5)
            with pytest.raises(NotNow, match="in progress"):
                await administration.scale("orders", 4)
            await administration.operate("orders", AbortChange())
            for node in ("node-4", "node-5"):
                cluster.start(node)
            shard = await settled(administration, "orders", 3)
            assert administration.replicas_wanted(shard) == 3
            await administration.scale("orders", 4)
            await settled(administration, "orders", 4)

    asyncio.run(story())


def test_a_deleted_shard_can_be_made_again(tmp_path: Path):
    async def story() -> None:
        async with administered(tmp_path) as (_, administration):
            await administration.create("orders", 3, MAJORITY, None)
            await settled(administration, "orders", 3)
            await administration.scale("orders", 4)
            await settled(administration, "orders", 4)
            await administration.delete("orders")
            while "orders" in administration.host.shards:
                await asyncio.sleep(0.01)
            await administration.create("orders", 2, MAJORITY, None)
            shard = await settled(administration, "orders", 2)
            assert administration.replicas_wanted(shard) == 2

    asyncio.run(story())


def test_what_replicas_say(tmp_path: Path):
    async def story() -> None:
        async with administered(tmp_path) as (cluster, administration):
            await administration.create("orders", 3, MAJORITY, None)
            shard = await settled(administration, "orders", 3)
            leader = await cluster.leader("orders")
            session = await cluster.session(leader, "orders")
            await cluster.append(leader, "orders", session, 1)
            reports = await administration.reports(shard)
            assert sorted(report.member.node for report in reports) == nodes_of(shard)
            assert [report.member.node for report in reports if report.serving] == [leader]
            other = next(node for node in nodes_of(shard) if node != leader)
            await cluster.stop(other)
            told = [report.member.node for report in await administration.reports(shard)]
            assert sorted([*told, other]) == nodes_of(shard)

    asyncio.run(story())


def test_what_cannot_be_done_is_refused(tmp_path: Path):
    async def story() -> None:
        async with administered(tmp_path, "node-1 node-2 node-3") as (_, administration):
            await administration.create("orders", 3, MAJORITY, None)
            await settled(administration, "orders", 3)
            with pytest.raises(ShardExists, match="orders"):
                await administration.create("orders", 3, MAJORITY, None)
            with pytest.raises(NotNow, match="4 replicas need 4 nodes, there are 3"):
                await administration.create("wide", 4, MAJORITY, None)
            with pytest.raises(NotNow, match="must be more than 3"):
                await administration.create("unsafe", 3, QuorumPolicy(1, 1), None)
            with pytest.raises(BadRequest, match="no node 'node-9'"):
                await administration.create("far", 1, MAJORITY, ["node-9"])
            with pytest.raises(BadRequest, match="-1 replicas"):
                await administration.create("small", -1, MAJORITY, None)
            with pytest.raises(NotNow, match="4 replicas need 4 nodes"):
                await administration.scale("orders", 4)
            with pytest.raises(NoSuchShard, match="there is no shard absent"):
                await administration.scale("absent", 3)
            with pytest.raises(NoSuchShard):
                await administration.delete("absent")
            with pytest.raises(NoSuchShard):
                await administration.operate("absent", AbortChange())
            with pytest.raises(NotNow, match="no reconfiguration is in progress"):
                await administration.operate("orders", AbortChange())
            with pytest.raises(BadRequest, match="no node 'node-9'"):
                await administration.operate("orders", Swap("node-1", "node-9"))
            with pytest.raises(NotNow, match="not a member"):
                await administration.operate("orders", Promote("node-9"))

    asyncio.run(story())


@pytest.mark.parametrize("name", ["", "Orders", "a b", "-a", "a-", "../a", "a/b", "a" * 64, "ä"])
def test_names_that_no_shard_can_have(tmp_path: Path, name: str):
    async def story() -> None:
        async with administered(tmp_path, "node-1") as (_, administration):
            with pytest.raises(BadRequest, match="no name of a shard"):
                await administration.create(name, 1, MAJORITY, None)

    asyncio.run(story())
