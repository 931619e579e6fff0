"""Three nodes in this process over real sockets and files, whose clock stands still.

Time that does not pass brings no heartbeat, no election and no loss of patience, however busy the
machine is: what happens is what is asked for, and costs the same each time.  There is no
coordinator; the leader is made by the messages one would send, as in tests of nodes (`tests` has
to be on the path).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from cluster_keys import KEY
from node.by_hand import SHARD, ByHand
from node.planes import PlaneCluster

from shardlog.client import Client, ClientLimits
from shardlog.protocol.messages import BecameLeader, BecomeLeader, Kept
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.storage.plan import Plan
from shardlog.storage.real_files import RealFiles
from shardlog.storage.volume import Volume, VolumeLimits
from shardlog.transport.connection import ConnectionLimits
from shardlog_node.data_plane import DataPlane, PlaneLimits
from shardlog_node.host import HostLimits, NodeHost

NEVER_MS = 3_600_000
NOW_MS = 1_000_000
CONNECTION = ConnectionLimits(
    greeting_ms=NEVER_MS, ping_after_ms=NEVER_MS, silence_ms=NEVER_MS, outgoing_bytes_max=16 << 20
)
CLIENT = ClientLimits(
    deadline_ms=NEVER_MS, attempt_ms=NEVER_MS, connect_ms=NEVER_MS, directory_ms=NEVER_MS,
    ping_after_ms=NEVER_MS, silence_ms=NEVER_MS,
)  # fmt: skip
PLANE = PlaneLimits(connection=CONNECTION, link_timeout_ms=NEVER_MS)


PROMPT = VolumeLimits(on_loop_us_max=1 << 40)
"""Any disk is, so that small rounds take the same way on every machine."""


class GuardCluster(ByHand, PlaneCluster):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "a b c")
        self.plane_limits = PLANE

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        for name in self.names:
            await self.begin(name)
        try:
            for plane in self.planes.values():
                plane.learn(self.addresses)
            await self.create_all()
            await self.elect("a", "b", "c")
            yield
        finally:
            for name in list(self.nodes):
                await self.stop(name)

    async def begin(self, name: str) -> NodeHost:
        plane = self.planes[name] = DataPlane(name, self.plane_limits, time.time_ns, KEY)
        node = NodeHost(
            name,
            Volume(RealFiles(), str(self.directory / name), name, Plan(), PROMPT),
            plane.send,
            lambda: NOW_MS,
            lambda: self.random.getrandbits(60) + 1,
            host_limits=HostLimits(tick_ms=NEVER_MS),
        )
        plane.attach_host(node)
        self.nodes[name] = node
        self.tasks[name] = asyncio.create_task(node.run())
        host, port = await plane.start("127.0.0.1", 0)
        self.tending[name] = asyncio.create_task(plane.tend())
        self.addresses[name] = f"{host}:{port}"
        return node

    async def elect(self, leader: str, *others: str, kept: Kept | None = None) -> None:
        answers = await self.fence(leader, *others)
        own = answers[leader]
        answer = await self.tell(leader, BecomeLeader(
            self.epoch, tuple(sorted(self.members.values())), QuorumPolicy(),
            Kept(own.history, own.end, own.head), tuple(self.members[each] for each in others),
            tuple(answers[each] for each in others),
        ))  # fmt: skip
        assert isinstance(answer, BecameLeader), answer
        self.led_by = leader

    def client(self) -> Client:  # type: ignore[override]
        return Client(f"shardlog://{self.addresses[self.led_by]}", limits=CLIENT)

    @property
    def shard(self) -> str:
        return SHARD
