"""What a watch tells of a node's replicas, its disk and its clock."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from node.cluster import Cluster
from shardlog.process.logs import logger_of
from shardlog.protocol.messages import ClientRefused, Read
from shardlog.storage.failures import DiskFailed, DiskFull
from shardlog.storage.real_files import RealFile, RealFiles
from shardlog_node.clock import NodeClock
from shardlog_node.host import NodeHost
from shardlog_node.logs import REFUSED_EVERY_LOOKS, STUCK_MS, Watch

Events = list[dict[str, Any]]


@pytest.fixture
def events() -> Iterator[Events]:
    structlog.reset_defaults()
    with capture_logs() as captured:
        yield captured  # type: ignore[misc]


class Watched:
    """A watch over a host, with a disk and connections that do as they are told."""

    def __init__(self, host: NodeHost) -> None:
        self.clock = NodeClock(time.monotonic_ns, time.time_ns)
        self.syncing_ms = 0
        self.refused = 0
        self.watch = Watch(
            host,
            self.clock,
            lambda: self.syncing_ms,
            lambda: (self.refused, "1.2.3.4:5: why"),
            logger_of("node"),
        )

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.watch.look()


class Troubled(RealFiles):
    """Without room, or with syncs that fail, while it says so."""

    full = False
    failing = False

    def open(self, path: str, *, write: bool = True) -> RealFile:
        return TroubledFile(super().open(path, write=write), self)

    def create(self, path: str) -> RealFile:
        if self.full:
            raise DiskFull(path)
        return super().create(path)


class TroubledFile(RealFile):
    def __init__(self, file: RealFile, files: Troubled) -> None:
        super().__init__(file.fileno(), file.path)
        self.files = files

    def sync(self) -> None:
        if self.files.failing:
            raise DiskFailed(self.path, "sync: it is told to fail")
        super().sync()


def names(events: Events) -> list[str]:
    return [each["event"] for each in events]


def test_a_replica_comes_leads_and_goes(tmp_path: Path, events: Events):
    async def story() -> None:
        cluster = Cluster(tmp_path, "a")
        async with cluster.running():
            watched = Watched(cluster.nodes["a"])
            watched.look()
            assert events == []
            await cluster.create("orders")
            watched.look(3)
            (opened,) = events
            assert (opened["event"], opened["shard"], opened["role"], opened["leader"]) == (
                "replica opened",
                "orders",
                "LEADER",
                "a",
            )
            assert opened["epoch"] == 1
            del cluster.nodes["a"].replicas["orders"]
            watched.look()
            assert names(events) == ["replica opened", "replica gone"]

    asyncio.run(story())


def test_a_replica_without_room_and_with_room_again(tmp_path: Path, events: Events):
    async def story() -> None:
        files = Troubled()
        cluster = Cluster(tmp_path, "")
        async with cluster.running():
            cluster.names.append("a")
            watched = Watched(cluster.start("a", files))
            leader = await cluster.create("orders")
            session = await cluster.session(leader, "orders")
            files.full = True
            appending = asyncio.create_task(_fill(cluster, leader, session))
            await _until(watched, events, "replica stalled")
            assert events[-1]["why"].endswith("no space left on the volume")
            files.full = False
            await _until(watched, events, "replica goes on")
            appending.cancel()
            await asyncio.wait([appending])

    asyncio.run(story())


async def _fill(cluster: Cluster, leader: str, session: int) -> None:
    for request in range(1, 10_000):
        await cluster.append(leader, "orders", session, request)


async def _until(watched: Watched, events: Events, event: str) -> None:
    while event not in names(events):
        watched.look()
        await asyncio.sleep(0.005)


def test_a_replica_that_stops_and_is_opened_again(tmp_path: Path, events: Events):
    async def story() -> None:
        files = Troubled()
        cluster = Cluster(tmp_path, "")
        async with cluster.running():
            cluster.names.append("a")
            watched = Watched(cluster.start("a", files))
            await cluster.create("orders")
            watched.look()
            files.failing = True
            await _until_failed(cluster)
            await _until(watched, events, "replica stopped")
            stopped = events[-1]
            assert (stopped["shard"], stopped["log_level"]) == ("orders", "error")
            assert stopped["why"].endswith("sync: it is told to fail")
            files.failing = False
            await _until(watched, events, "replica reopened")

    asyncio.run(story())


async def _until_failed(cluster: Cluster) -> None:
    """A session makes the replica write."""
    with pytest.raises((TimeoutError, AssertionError)):
        async with asyncio.timeout(1):
            await cluster.session("a", "orders")


def test_a_disk_that_is_stuck(tmp_path: Path, events: Events):
    async def story() -> None:
        cluster = Cluster(tmp_path, "a")
        async with cluster.running():
            watched = Watched(cluster.nodes["a"])
            watched.syncing_ms = STUCK_MS
            watched.look(3)
            watched.syncing_ms = 0
            watched.look(3)

    asyncio.run(story())
    assert names(events) == ["disk stuck", "disk goes on"]


def test_clocks_that_disagree(tmp_path: Path, events: Events):
    async def story() -> None:
        cluster = Cluster(tmp_path, "a")
        async with cluster.running():
            watched = Watched(cluster.nodes["a"])
            for ahead_ns in (10**12, 0):
                now_ns = time.monotonic_ns()
                watched.clock.sample("b", now_ns, now_ns, time.time_ns() + ahead_ns)
                while (watched.clock.agreed is None) != bool(ahead_ns):
                    await asyncio.sleep(0.01)
                    watched.clock.now_ms()  # looks at them once a second
                watched.look(3)

    asyncio.run(story())
    assert [(each["event"], each["sources"]) for each in events] == [
        ("clocks disagree", 2),
        ("clocks agree", 2),
    ]


def test_refused_connections_are_told_of_now_and_then(tmp_path: Path, events: Events):
    async def story() -> None:
        cluster = Cluster(tmp_path, "a")
        async with cluster.running():
            watched = Watched(cluster.nodes["a"])
            for _ in range(2 * REFUSED_EVERY_LOOKS):
                watched.look()
                watched.refused += 1
            watched.look()

    asyncio.run(story())
    assert [each["number"] for each in events] == [REFUSED_EVERY_LOOKS, REFUSED_EVERY_LOOKS]


def test_damage_and_its_repair_are_told(tmp_path: Path, events: Events):
    async def story() -> None:
        cluster = Cluster(tmp_path, "a b c")
        async with cluster.running():
            leader = await cluster.create("orders")
            session = await cluster.session(leader, "orders")
            for request in range(1, 11):
                last = await cluster.append(leader, "orders", session, request)
            host = cluster.nodes[leader]
            hosted = host.replicas["orders"]
            watched = Watched(host)
            watched.look()
            while hosted.store.durable_end <= last or hosted.store.fresh:
                await asyncio.sleep(0.01)
            place = hosted.store.files.segments.covering(last)
            assert place is not None
            with open(place.segment.path, "r+b") as file:
                file.seek(place.slot.after - 1)
                file.write(b"\0")
            answer = await cluster.ask(leader, "orders", Read(2, last, 1))
            assert isinstance(answer, ClientRefused)
            while hosted.replica.log.marks or not hosted.repaired:
                await asyncio.sleep(0.01)
            watched.look()
            watched.look()

    asyncio.run(story())
    damage = [each for each in events if "damage" in each["event"]]
    assert [each["event"] for each in damage] == ["damage found", "damage repaired"]
    assert (damage[0]["by"], damage[0]["entries"]) == ("read", 1)
    assert (damage[1]["entries"], damage[1]["copies"]) == (1, 0)
