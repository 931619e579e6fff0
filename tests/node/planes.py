"""Nodes in one process that speak over real connections, and a bare client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from cluster_keys import KEY

from node.cluster import IN_THREADS, PLAN, Cluster, now_ms
from shardlog.coordinator.driver import Unanswered
from shardlog.protocol.messages import Envelope, Message
from shardlog.storage.real_files import RealFiles
from shardlog.storage.volume import Volume
from shardlog.transport.connection import Connection, ConnectionLimits
from shardlog.transport.endpoints import Inbox, connect
from shardlog.transport.frame_messages import from_message, to_message
from shardlog.transport.frames import Frame, FrameType
from shardlog.transport.handshake import Attach, Role, decode_attached, encode_attach
from shardlog_node.data_plane import DataPlane, PlaneLimits
from shardlog_node.host import HostLimits, NodeHost


class PlaneCluster(Cluster):
    """The control plane is a call; everything else goes over TCP."""

    def __init__(self, directory: Path, names: str, limits: PlaneLimits | None = None) -> None:
        super().__init__(directory, names)
        self.plane_limits = limits or PlaneLimits()
        self.planes: dict[str, DataPlane] = {}
        self.tending: dict[str, asyncio.Task[None]] = {}
        self.addresses: dict[str, str] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        for name in self.names:
            await self.begin(name)
        names, self.names = self.names, []
        try:
            async with super().running():
                self.names = names
                yield
        finally:
            for name, plane in self.planes.items():
                self.tending[name].cancel()
                await plane.stop()

    async def begin(self, name: str) -> NodeHost:
        plane = self.planes[name] = DataPlane(name, self.plane_limits, time.time_ns, KEY)
        volume = Volume(RealFiles(), str(self.directory / name), name, PLAN, IN_THREADS)
        node = NodeHost(
            name,
            volume,
            plane.send,
            now_ms,
            lambda: self.random.getrandbits(60) + 1,
            host_limits=HostLimits(tick_ms=5, reopen_ms=50),
        )
        plane.attach_host(node)
        self.nodes[name] = node
        self.tasks[name] = asyncio.create_task(node.run())
        host, port = await plane.start("127.0.0.1", 0)
        self.tending[name] = asyncio.create_task(plane.tend())
        self.addresses[name] = f"{host}:{port}"
        return node

    async def stop(self, name: str) -> None:
        plane = self.planes.pop(name, None)
        await super().stop(name)
        if plane is not None:
            self.tending.pop(name).cancel()
            await plane.stop()

    async def call(self, envelope: Envelope, timeout_ms: int) -> Envelope:
        if envelope.dst not in self.planes:
            raise Unanswered
        self.planes[envelope.dst].learn(self.addresses)
        return await super().call(envelope, timeout_ms)

    @asynccontextmanager
    async def client(
        self, node: str, shard: str, limits: ConnectionLimits | None = None
    ) -> AsyncIterator[BareClient]:
        host, _, port = self.addresses[node].rpartition(":")
        inbox = Inbox()
        connection = await connect(
            host,
            int(port),
            name="a client",
            role=Role.CLIENT,
            receiver=inbox,
            limits=limits or ConnectionLimits(),
            wall_ns=time.time_ns,
            timeout_ms=5000,
        )
        client = BareClient(connection, inbox)
        await client.attach(1, shard)
        try:
            yield client
        finally:
            connection.close()
            await connection.closed()


class BareClient:
    """Frames, and nothing else."""

    def __init__(self, connection: Connection, inbox: Inbox) -> None:
        self.connection = connection
        self.inbox = inbox

    async def attach(self, channel: int, shard: str) -> int:
        self.connection.send(encode_attach(channel, Attach(shard)))
        return decode_attached(await self.next())

    async def next(self) -> Frame:
        while True:
            frame = await self.inbox.next()
            if frame.type != FrameType.PONG:
                return frame

    def send(self, message: Message, channel: int = 1) -> None:
        self.connection.send(from_message(channel, message))

    async def ask(self, message: Message, channel: int = 1) -> Message:
        self.send(message, channel)
        return to_message(await self.next())
