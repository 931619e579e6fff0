"""A leader whose disk is full keeps nothing from the others, and hands over."""

import asyncio
from pathlib import Path

from node.cluster import Cluster
from shardlog.storage.failures import DiskFull
from shardlog.storage.real_files import RealFile, RealFiles


class Filling(RealFiles):
    """Has no room for a new file while `full`."""

    full = False

    def create(self, path: str) -> RealFile:
        if self.full:
            raise DiskFull(path)
        return super().create(path)


def test_leadership_leaves_a_full_disk_which_catches_up_when_there_is_room(tmp_path: Path):
    async def story() -> None:
        disks = {name: Filling() for name in "abc"}
        cluster = Cluster(tmp_path, "a b c", files=disks)
        async with cluster.running():
            leader = await cluster.create("orders")
            session = await cluster.session(leader, "orders")
            disks[leader].full = True
            request = 0
            epoch = cluster.coordinator.shards["orders"].epoch
            while cluster.coordinator.shards["orders"].epoch == epoch:
                request += 1
                answer = await cluster.appended(leader, "orders", session, request, bytes(2000))
                if answer is None:
                    request -= 1
                    await asyncio.sleep(0.01)
            successor = await cluster.leader("orders", other_than=leader)
            again = await cluster.appended(successor, "orders", session, request + 1, bytes(2000))
            assert again is not None
            disks[leader].full = False
            end = cluster.nodes[successor].replicas["orders"].replica.log.end
            while cluster.nodes[leader].replicas["orders"].replica.durable_end < end:
                await asyncio.sleep(0.01)

    asyncio.run(story())
