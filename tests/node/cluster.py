"""Nodes in one process, each on a volume of its own in a real directory, and a coordinator."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from shardlog.checksum import seal_body
from shardlog.coordinator.driver import Control, DriverLimits, Unanswered
from shardlog.coordinator.host import CoordinatorHost
from shardlog.metadata.memory import Memory
from shardlog.metadata.store import MetadataStore
from shardlog.protocol.coordination import CoordinatorLimits, CreateShard
from shardlog.protocol.messages import Append, Appended, Envelope, Message, Register, Registered
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Shard, Status
from shardlog.storage.plan import Plan
from shardlog.storage.real_files import RealFiles
from shardlog.storage.volume import Volume, VolumeLimits
from shardlog_node.host import HostLimits, NodeHost

PLAN = Plan(size_min=64 << 10, size_max=256 << 10, slots_min=64, slots_max=256, zeroed_bytes=0)
IN_THREADS = VolumeLimits(on_loop_us_max=0)
"""All nodes and the coordinator share a loop here: a disk that stalls must not hold up all of them,
nor one that a test holds up, which the loop lets go on."""


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def registration() -> Register:
    """Of a session of its own."""
    return Register(1 + secrets.randbits(62))


class Cluster(Control):
    """What is sent to a node that is not running is lost."""

    def __init__(
        self,
        directory: Path,
        names: str,
        store: MetadataStore | None = None,
        limits: CoordinatorLimits | None = None,
        call_timeout_ms: int = 1000,
        files: Mapping[str, RealFiles] | None = None,
    ) -> None:
        """`files` are those of nodes whose disks are unusual."""
        self.directory = directory
        self.files = files or {}
        self.random = Random(1)
        self.names = names.split()
        self.nodes: dict[str, NodeHost] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        driving = DriverLimits(tick_ms=5, call_timeout_ms=call_timeout_ms)
        store = store or Memory().handle()
        self.coordinator = CoordinatorHost("operator", store, self, now_ms, limits, driving)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        for name in self.names:
            self.start(name)
        coordinating = asyncio.create_task(self.coordinator.run())
        try:
            async with asyncio.timeout(60):
                yield
        finally:
            coordinating.cancel()
            await asyncio.gather(coordinating, return_exceptions=True)
            for name in list(self.nodes):
                await self.stop(name)

    def start(self, name: str, files: RealFiles | None = None) -> NodeHost:
        files = files or self.files.get(name) or RealFiles()
        volume = Volume(files, str(self.directory / name), name, PLAN, IN_THREADS)
        node = NodeHost(
            name,
            volume,
            self.deliver,
            now_ms,
            lambda: self.random.getrandbits(60) + 1,
            host_limits=HostLimits(tick_ms=5, reopen_ms=50),
        )
        self.nodes[name] = node
        self.tasks[name] = asyncio.create_task(node.run())
        return node

    async def stop(self, name: str) -> None:
        """Without a word to anybody."""
        del self.nodes[name]
        task = self.tasks.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def deliver(self, envelope: Envelope) -> None:
        asyncio.get_running_loop().call_soon(self._arrived, envelope)

    def _arrived(self, envelope: Envelope) -> None:
        node = self.nodes.get(envelope.dst)
        if node is not None:
            node.receive(envelope)

    async def call(self, envelope: Envelope, timeout_ms: int) -> Envelope:
        node = self.nodes.get(envelope.dst)
        if node is None:
            raise Unanswered
        try:
            return await node.call(envelope, timeout_ms)
        except TimeoutError:
            raise Unanswered from None

    # --- stories ---------------------------------------------------------------------------------

    async def create(self, shard: str) -> str:
        """A shard on all nodes; its leader."""
        nodes = tuple(self.names)
        await self.coordinator.command(shard, CreateShard(nodes, QuorumPolicy()))
        return await self.leader(shard)

    async def leader(self, shard: str, other_than: str = "") -> str:
        found = await self.until(shard, lambda it: it.leader.node != other_than)  # type: ignore[union-attr]
        assert found.leader is not None
        return found.leader.node

    async def until(self, shard: str, wanted: Callable[[Shard], bool]) -> Shard:
        while True:
            found = self.coordinator.shards.get(shard)
            steady = found is not None and found.status is Status.STEADY
            if found is not None and steady and found.leader is not None and wanted(found):
                return found
            await asyncio.sleep(0.01)

    async def ask(self, node: str, shard: str, message: Message) -> Message:
        answer = await self.nodes[node].call(Envelope(shard, "client", 0, node, 0, message), 5000)
        return answer.message

    async def session(self, node: str, shard: str) -> int:
        answer = await self.ask(node, shard, registration())
        assert isinstance(answer, Registered), answer
        return answer.session

    async def append(self, node: str, shard: str, session: int, request: int) -> int:
        body = b"record %d of %d" % (request, session)
        answer = await self.ask(node, shard, Append(session, request, 1, body, seal_body(body)))
        assert isinstance(answer, Appended), answer
        return answer.base

    async def appended(
        self, node: str, shard: str, session: int, request: int, body: bytes
    ) -> int | None:
        """The offset; None if this was refused, or is not answered."""
        message = Append(session, request, 1, body, seal_body(body))
        try:
            answer = await self.nodes[node].call(
                Envelope(shard, "client", 0, node, 0, message), 500
            )
        except TimeoutError:
            return None
        return answer.message.base if isinstance(answer.message, Appended) else None
