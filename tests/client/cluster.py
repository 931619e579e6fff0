"""Nodes in one process that speak over TCP, with a directory over HTTP, for clients to try."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from aiohttp import web
from cluster_keys import KEY
from node.cluster import IN_THREADS, PLAN, now_ms
from node.planes import PlaneCluster

from client.proxy import Proxy
from shardlog.client import Client, ClientLimits, Record
from shardlog.protocol.effects import Limits
from shardlog.protocol.messages import Envelope
from shardlog.storage.real_files import RealFiles
from shardlog.storage.volume import Volume
from shardlog_node.data_plane import DataPlane, PlaneLimits
from shardlog_node.host import HostLimits, NodeHost

SHARD = "orders"
LIMITS = Limits(replies_max=32, sessions_max=256)


class ClientCluster(PlaneCluster):
    """`public` is where the directory says that nodes are: a proxy may stand in between."""

    def __init__(
        self,
        directory: Path,
        names: str = "a b c",
        *,
        limits: Limits = LIMITS,
        plane_limits: PlaneLimits | None = None,
        tls: ssl.SSLContext | None = None,
        link_tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(directory, names, plane_limits)
        self.limits = limits
        self.tls = tls
        self.link_tls = link_tls
        self.public: dict[str, str] = {}
        self.asked = 0
        self.url = ""
        self.stop_directory: Callable[[], Awaitable[None]]
        self.cut: set[str] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with super().running():
            app = web.Application()
            app.add_routes([web.get("/v1/shards/{name}", self._tell)])
            app.add_routes([web.get("/v1/shards", self._tell_all)])
            runner = web.AppRunner(app)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            self.stop_directory = runner.cleanup
            try:
                yield
            finally:
                await runner.cleanup()

    async def begin(self, name: str) -> NodeHost:
        plane = DataPlane(
            name, self.plane_limits, time.time_ns, KEY, tls=self.tls, link_tls=self.link_tls
        )
        self.planes[name] = plane
        volume = Volume(RealFiles(), str(self.directory / name), name, PLAN, IN_THREADS)
        node = NodeHost(
            name,
            volume,
            plane.send,
            now_ms,
            lambda: self.random.getrandbits(60) + 1,
            limits=self.limits,
            host_limits=HostLimits(tick_ms=5, reopen_ms=50),
        )
        plane.attach_host(node)
        self.nodes[name] = node
        self.tasks[name] = asyncio.create_task(node.run())
        host, port = await plane.start("127.0.0.1", 0)
        self.tending[name] = asyncio.create_task(plane.tend())
        self.addresses[name] = f"{host}:{port}"
        return node

    async def call(self, envelope: Envelope, timeout_ms: int) -> Envelope:
        if envelope.dst in self.cut:
            await asyncio.sleep(timeout_ms / 1000)
        return await super().call(envelope, timeout_ms)

    async def _tell(self, request: web.Request) -> web.Response:
        self.asked += 1
        shard = self.coordinator.shards.get(request.match_info["name"])
        if shard is None:
            no = {"error": "there is no such shard", "kind": "NoSuchShard"}
            return web.json_response(no, status=404)
        addresses = {node: self.public.get(node, self.addresses[node]) for node in self.names}
        said: dict[str, Any] = {
            "name": shard.name,
            "status": shard.status.value,
            "leader": shard.leader.node if shard.leader else None,
            "addresses": addresses,
        }
        return web.json_response(said)

    async def _tell_all(self, request: web.Request) -> web.Response:
        told = [
            {"name": name, "status": shard.status.value}
            for name, shard in self.coordinator.shards.items()
        ]
        return web.json_response({"shards": told})

    @property
    def addresses_url(self) -> str:
        return "shardlog://" + ",".join(
            self.public.get(name, self.addresses[name]) for name in self.names
        )

    def end(self, node: str) -> int:
        """Where the log of the shard ends at a node."""
        return self.nodes[node].replicas[SHARD].replica.log.end


@dataclass
class Story:
    """What a test is about."""

    cluster: ClientCluster
    client: Client
    leader: str
    proxies: dict[str, Proxy]

    async def records(self) -> list[Record]:
        """All that is in the log."""
        return [record async for record in self.client.read(SHARD)]


Told = Callable[[Story], Awaitable[None]]


def story(
    tmp_path: Path,
    *,
    names: str = "a b c",
    by_addresses: bool = False,
    proxied: bool = False,
    limits: Limits = LIMITS,
    plane_limits: PlaneLimits | None = None,
    client_limits: ClientLimits | None = None,
) -> Callable[[Told], None]:
    """Runs a coroutine function with a cluster that has a shard, and with a client."""
    chosen = client_limits or ClientLimits()

    def run(told: Told) -> None:
        async def whole() -> None:
            cluster = ClientCluster(tmp_path, names, limits=limits, plane_limits=plane_limits)
            async with cluster.running():
                leader = await cluster.create(SHARD)
                async with AsyncExitStack() as stack:
                    proxies: dict[str, Proxy] = {}
                    if proxied:
                        for name, address in cluster.addresses.items():
                            proxies[name] = proxy = Proxy(address)
                            cluster.public[name] = await stack.enter_async_context(proxy.running())
                    url = cluster.addresses_url if by_addresses else cluster.url
                    client = await stack.enter_async_context(Client(url, limits=chosen))
                    await told(Story(cluster, client, leader, proxies))

        # As nodes run; asyncio of 3.11 leaks what a server accepts while it is being closed.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(whole())

    return run


async def until(wanted: Callable[[], bool]) -> None:
    """The story's own time limit ends this, if it never comes true."""
    while not wanted():
        await asyncio.sleep(0.01)
