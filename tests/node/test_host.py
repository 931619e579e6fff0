"""Nodes on real directories: written to, stopped, started again, with disks that fail."""

import asyncio
from pathlib import Path

import pytest

from node.cluster import Cluster
from shardlog.protocol.failures import Illegal
from shardlog.protocol.messages import Append, ClientRefused, Read, ReadResult
from shardlog.storage.failures import DiskFailed
from shardlog.storage.real_files import RealFile, RealFiles
from shardlog_node import host


def test_shards_are_created_written_to_and_read(tmp_path: Path):
    async def story() -> None:
        cluster = Cluster(tmp_path, "a b c")
        async with cluster.running():
            for shard in ("orders", "payments"):
                leader = await cluster.create(shard)
                session = await cluster.session(leader, shard)
                bases = [await cluster.append(leader, shard, session, n) for n in range(1, 101)]
                assert bases == sorted(set(bases))
                result = await cluster.ask(leader, shard, Read(2, bases[0], 200))
                assert isinstance(result, ReadResult)
                assert [entry.header.base for entry in result.entries] == bases

    asyncio.run(story())


def test_M9_all_nodes_stop_and_every_acknowledged_entry_is_there(tmp_path: Path):
    async def story() -> None:
        cluster = Cluster(tmp_path, "a b c")
        async with cluster.running():
            leader = await cluster.create("orders")
            session = await cluster.session(leader, "orders")
            bases = [await cluster.append(leader, "orders", session, n) for n in range(1, 51)]
            before = cluster.coordinator.shards["orders"].epoch
            for name in cluster.names:
                await cluster.stop(name)
            for name in cluster.names:
                cluster.start(name)
            await cluster.until("orders", lambda shard: shard.epoch > before)
            leader = await cluster.leader("orders")
            again = await cluster.append(leader, "orders", session, 50)
            assert again == bases[-1]
            result = await cluster.ask(leader, "orders", Read(2, bases[0], 200))
            assert isinstance(result, ReadResult)
            assert [entry.header.base for entry in result.entries] == bases

    asyncio.run(story())


def test_T6_a_retry_after_a_failover_gets_the_same_offset(tmp_path: Path):
    async def story() -> None:
        cluster = Cluster(tmp_path, "a b c")
        async with cluster.running():
            first = await cluster.create("orders")
            session = await cluster.session(first, "orders")
            base = await cluster.append(first, "orders", session, 1)
            await cluster.stop(first)
            second = await cluster.leader("orders", other_than=first)
            assert await cluster.append(second, "orders", session, 1) == base
            assert await cluster.append(second, "orders", session, 2) > base

    asyncio.run(story())


class Failing(RealFiles):
    """Syncs fail while `failing`."""

    failing = False

    def open(self, path: str, *, write: bool = True) -> RealFile:
        file = super().open(path, write=write)
        return FailingFile(file, self)


class FailingFile(RealFile):
    def __init__(self, file: RealFile, files: Failing) -> None:
        super().__init__(file.fileno(), file.path)
        self.files = files

    def sync(self) -> None:
        if self.files.failing:
            raise DiskFailed(self.path, "sync: Input/output error")
        super().sync()


def test_a_replica_whose_disk_fails_stops_and_comes_back(tmp_path: Path):
    async def story() -> None:
        cluster = Cluster(tmp_path, "a b c")
        async with cluster.running():
            leader = await cluster.create("orders")
            session = await cluster.session(leader, "orders")
            await cluster.append(leader, "orders", session, 1)
            victim = next(name for name in cluster.names if name != leader)
            await cluster.stop(victim)
            files = Failing()
            node = cluster.start(victim, files)
            files.failing = True
            while "orders" not in node.failed:
                await cluster.append(leader, "orders", session, 2)
                await asyncio.sleep(0.02)
            assert isinstance(node.failed["orders"], DiskFailed)
            files.failing = False
            base = await cluster.append(leader, "orders", session, 3)
            while "orders" not in node.replicas or node.replicas["orders"].replica.commit <= base:
                await asyncio.sleep(0.02)

    asyncio.run(story())


class Dropping(RealFiles):
    """Tells of what need not be kept in memory."""

    def __init__(self) -> None:
        self.dropped_bytes = 0

    def open(self, path: str, *, write: bool = True) -> RealFile:
        return DroppingFile(super().open(path, write=write), self)


class DroppingFile(RealFile):
    def __init__(self, file: RealFile, files: Dropping) -> None:
        super().__init__(file.fileno(), file.path)
        self.files = files

    def drop(self, position: int, length: int) -> None:
        self.files.dropped_bytes += length


@pytest.mark.parametrize("kept_bytes", [0, 1 << 30])
def test_of_what_a_follower_lacks_only_the_last_stays_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_bytes: int
):
    monkeypatch.setattr(host, "KEPT_BYTES", kept_bytes)

    async def story() -> None:
        cluster = Cluster(tmp_path, "a b c")
        async with cluster.running():
            leader = await cluster.create("orders")
            session = await cluster.session(leader, "orders")
            away = next(name for name in cluster.names if name != leader)
            await cluster.stop(away)
            for number in range(1, 401):
                base = await cluster.append(leader, "orders", session, number)
            files = Dropping()
            node = cluster.start(away, files)
            while "orders" not in node.replicas or node.replicas["orders"].replica.commit <= base:
                await asyncio.sleep(0.02)
            assert bool(files.dropped_bytes) == (kept_bytes == 0)
            assert not node.replicas["orders"].store.passing

    asyncio.run(story())


def test_a_body_that_does_not_match_its_checksum_is_refused(tmp_path: Path):
    async def story() -> None:
        cluster = Cluster(tmp_path, "a b c")
        async with cluster.running():
            leader = await cluster.create("orders")
            session = await cluster.session(leader, "orders")
            answer = await cluster.ask(leader, "orders", Append(session, 1, 1, b"body", 12345))
            assert isinstance(answer, ClientRefused)
            assert isinstance(answer.refusal, Illegal)
            assert await cluster.append(leader, "orders", session, 1)

    asyncio.run(story())
