"""Nodes in one process: real replicas, drivers and stores, over volumes and a network in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

from shardlog.checksum import seal
from shardlog.coordinator.driver import Control, DriverLimits, Unanswered
from shardlog.coordinator.host import CoordinatorHost
from shardlog.metadata.memory import Memory
from shardlog.protocol.effects import Disk, Limits, Received, Synced, Tick
from shardlog.protocol.entry import Entry, Header
from shardlog.protocol.messages import Envelope, Message
from shardlog.protocol.replica import Replica
from shardlog.sim.faulty_files import FaultyFiles
from shardlog.storage.handles import Handles
from shardlog.storage.plan import Plan
from shardlog.storage.store import Store
from shardlog_node.driver import Driver

SHARD = "orders"
PLAN = Plan(size_min=64 << 10, size_max=64 << 10, slots_min=64, slots_max=64, zeroed_bytes=0)


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Node:
    """One node with one replica.  A node that is down hears and says nothing."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.random = Random(name)
        self.files = FaultyFiles(self.random)
        self.files.make_directory("volume")
        self.files.sync_directory("")
        self.start()

    def start(self) -> None:
        self.store, recovered = Store.open(
            Handles(self.files), f"volume/{SHARD}", SHARD, self.name, PLAN
        )
        identity = (SHARD, self.name, Limits(), seal)
        if recovered is None:
            replica = Replica(*identity, self.store)
        else:
            replica = Replica.restart(*identity, recovered, self.store)
        self.driver = Driver(replica, self, self.cluster.send)
        self.up = True

    def kill(self) -> None:
        self.up = False
        self.driver.stop()
        self.files.crash()

    # --- the driver's disk -----------------------------------------------------------------------

    def submit(self, effect: Disk) -> None:
        self.store.submit(effect)
        asyncio.get_running_loop().call_soon(self._perform, self.driver)

    def read(self, header: Header) -> Entry | None:
        return self.store.read(header)

    def read_run(self, headers: Sequence[Header]) -> tuple[Entry, ...]:
        return self.store.read_run(headers)

    def _perform(self, driver: Driver) -> None:
        while self.up and driver is self.driver and (round_ := self.store.take()) is not None:
            round_.write()
            round_.sync()
            for token in self.store.finish(round_):
                driver.step(now_ms(), Synced(token))

    # --- events ----------------------------------------------------------------------------------

    def receive(self, envelope: Envelope) -> None:
        if self.up:
            self.driver.step(now_ms(), Received(envelope, self.random.getrandbits(40) + 1))

    def tick(self) -> None:
        if self.up:
            self.driver.step(now_ms(), Tick())


class Cluster(Control):
    """All nodes, and the metadata store that coordinators share."""

    def __init__(self, names: str) -> None:
        self.memory = Memory()
        self.asked: dict[str, asyncio.Future[Envelope]] = {}
        self.calls = 0
        self.nodes = {name: Node(self, name) for name in names.split()}

    def send(self, envelope: Envelope) -> None:
        asyncio.get_running_loop().call_soon(self._deliver, envelope)

    def _deliver(self, envelope: Envelope) -> None:
        node = self.nodes.get(envelope.dst)
        if node is not None:
            node.receive(envelope)
            return
        asked = self.asked.get(envelope.dst)
        if asked is not None and not asked.done():
            asked.set_result(envelope)

    async def call(self, envelope: Envelope, timeout_ms: int) -> Envelope:
        """Every call has a name of its own, so that its answer finds it."""
        self.calls += 1
        name = f"call-{self.calls}"
        answer = self.asked[name] = asyncio.get_running_loop().create_future()
        self.send(replace(envelope, src=name, src_incarnation=0))
        try:
            return await asyncio.wait_for(answer, timeout_ms / 1000)
        except TimeoutError:
            raise Unanswered from None
        finally:
            del self.asked[name]

    async def ask(self, node: str, message: Message) -> Message:
        """As a client."""
        answer = await self.call(Envelope(SHARD, "", 0, node, 0, message), 5000)
        return answer.message

    def host(self, name: str = "operator") -> CoordinatorHost:
        limits = DriverLimits(tick_ms=5, call_timeout_ms=1000)
        return CoordinatorHost(name, self.memory.handle(), self, now_ms, driver_limits=limits)

    @asynccontextmanager
    async def running(self, *hosts: CoordinatorHost) -> AsyncIterator[None]:
        """Nodes tick and hosts coordinate for as long as this lasts."""
        tasks = [asyncio.create_task(host.run()) for host in hosts]
        tasks.append(asyncio.create_task(self._ticking()))
        try:
            async with asyncio.timeout(60):
                yield
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        failures = [each for each in ended if not isinstance(each, asyncio.CancelledError)]
        assert not failures, failures

    async def _ticking(self) -> None:
        while True:
            for node in self.nodes.values():
                node.tick()
            await asyncio.sleep(0.005)
