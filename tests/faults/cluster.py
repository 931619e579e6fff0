"""A cluster of real processes that is treated badly.

The supervisor of `shardlog local` is left out: it would start again what shall stay dead for a
while.  Nodes and coordinators are started by the same commands.  A coordinator has a directory of
its own, with the same metadata file in all of them, so that any number may run at once.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from cluster_keys import key_file

from faults.network import Network
from faults.nursery import Nursery
from faults.ports import claimed_ports
from faults.processes import Process
from shardlog.client.directory import Directory, HttpDirectory, Placement
from shardlog.client.failures import DirectoryUnavailable
from shardlog.local.cluster_file import HOST, Cluster, NodePlace, save
from shardlog.local.layout import COORDINATOR, Layout
from shardlog.local.programs import programs

PATIENCE_S = 300
"""For whatever has to happen in the end.  Never the time that something should take."""
DIRECTORY_MS = 1000
LOOK_MS = 20


class NothingHappens(AssertionError):  # noqa: N818 - named after what happened
    """What had to come has not come."""


async def until(wanted: Callable[[], object], what: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE_S
    while not wanted():
        if time.monotonic() > deadline:
            raise NothingHappens(what)
        await asyncio.sleep(LOOK_MS / 1000)


class FaultCluster:
    """`nodes` and `coordinators` are processes by name; `network` lies between all of them."""

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 3,
        coordinators: int = 1,
        network: Network | None = None,
        settings: Mapping[str, str] | None = None,
        nursery: Nursery | None = None,
    ) -> None:
        self.layout = Layout(directory)
        self.network = network
        self.nursery = nursery
        self.places: Cluster
        self.nodes: dict[str, Process] = {}
        self.coordinators: dict[str, Process] = {}
        self.urls: list[str] = []
        self.volumes: dict[str, Path] = {}
        """Where a node's volume is seen from here, if not where the node sees it."""
        self.before_start: Callable[[], None] = lambda: None
        self._node_count = nodes
        self._coordinator_count = coordinators
        self._settings = {f"SHARDLOG_NODE_{name}": it for name, it in (settings or {}).items()}
        self._http: aiohttp.ClientSession

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """With everybody up; whatever runs at the end is killed."""
        async with self._network(), aiohttp.ClientSession() as self._http:
            with claimed_ports() as ports:
                await self._make(ports)
                self.before_start()
                async with self._started():
                    yield

    @asynccontextmanager
    async def _started(self) -> AsyncIterator[None]:
        try:
            for process in self.processes:
                process.start()
            await until_true(self.all_alive, "not everybody came up")
            yield
        finally:
            for process in self.processes:
                process.kill()

    @property
    def processes(self) -> list[Process]:
        return [*self.nodes.values(), *self.coordinators.values()]

    @property
    def kills(self) -> int:
        return sum(process.kills for process in self.processes)

    def volume(self, node: str) -> Path:
        return self.volumes.get(node, self.layout.volume(node))

    # --- making ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def _network(self) -> AsyncIterator[None]:
        if self.network is None:
            yield
            return
        async with self.network.running():
            yield

    async def _seen_places(self) -> tuple[NodePlace, ...]:
        """Where the coordinators, and by them everybody, find the nodes."""
        if self.network is None:
            return self.places.nodes
        return tuple([await self._behind_network(self.network, each) for each in self.places.nodes])

    async def _behind_network(self, network: Network, place: NodePlace) -> NodePlace:
        return NodePlace(
            place.name,
            await network.data(place.name, place.data),
            await network.control(place.name, place.control),
            place.http,
        )

    async def _make(self, ports: Iterator[int]) -> None:
        addresses = (f"{HOST}:{port}" for port in ports)
        self.places = Cluster(
            next(addresses),
            tuple(
                NodePlace(f"node-{number + 1}", next(addresses), next(addresses), next(addresses))
                for number in range(self._node_count)
            ),
        )
        for directory in (self.layout.nodes, self.layout.logs):
            directory.mkdir(parents=True, exist_ok=True)
        key_file(self.layout.directory)
        *nodes, _ = programs(self.layout, self.places)
        for program in nodes:
            process = Process(program, self.layout.log(program.name))
            process.with_settings(self._settings)
            process.nursery = self.nursery
            self.nodes[program.name] = process
        seen = await self._seen_places()
        for number in range(1, self._coordinator_count + 1):
            self._make_coordinator(f"{COORDINATOR}-{number}", Cluster(next(addresses), seen))

    def _make_coordinator(self, name: str, cluster: Cluster) -> None:
        layout = Layout(self.layout.directory / name)
        layout.directory.mkdir()
        layout.metadata.symlink_to(self.layout.metadata)
        save(layout, cluster)
        key_file(layout.directory)
        *_, program = programs(layout, cluster)
        process = self.coordinators[name] = Process(program, self.layout.log(name))
        process.nursery = self.nursery
        self.urls.append(cluster.url)

    # --- asking ----------------------------------------------------------------------------------

    def directory(self) -> Directory:
        """For a client: whichever coordinator answers."""
        return AnyDirectory(self.urls)

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Whichever coordinator answers; None if there is none."""
        for url in self.urls:
            timeout = aiohttp.ClientTimeout(total=5)
            try:
                async with self._http.request(
                    method, url + path, json=body, timeout=timeout
                ) as answer:
                    if answer.status < 400:
                        return await answer.json()
            except (aiohttp.ClientError, TimeoutError):
                continue
        return None

    async def metrics(self, node: str) -> dict[str, float]:
        """A node's figures, by name and labels; none if it does not answer."""
        (place,) = [each for each in self.places.nodes if each.name == node]
        timeout = aiohttp.ClientTimeout(total=5)
        try:
            async with self._http.get(f"http://{place.http}/metrics", timeout=timeout) as answer:
                lines = (await answer.text()).splitlines()
        except (aiohttp.ClientError, TimeoutError):
            return {}
        pairs = [line.rpartition(" ") for line in lines if not line.startswith("#")]
        return {name: float(value) for name, _, value in pairs}

    async def all_alive(self) -> bool:
        found = await self.ask("GET", "/v1/nodes")
        return found is not None and all(node["alive"] for node in found["nodes"])

    async def create(self, shard: str, replicas: int = 3) -> None:
        """A coordinator may be killed while it creates it: then it goes on, or is asked again."""

        async def created() -> bool:
            if (await self.shard(shard)) is None:
                await self.ask("POST", "/v1/shards", {"name": shard, "replicas": replicas})
            found = await self.shard(shard)
            return found is not None and found["status"] == "STEADY"

        await until_true(created, f"{shard} is not created")

    async def shard(self, name: str) -> Any:
        return await self.ask("GET", f"/v1/shards/{name}")

    async def status(self, name: str) -> Any:
        return await self.ask("GET", f"/v1/shards/{name}/status")

    async def leader(self, shard: str) -> str | None:
        """Who leads as far as a coordinator knows; it may be dead already."""
        found = await self.shard(shard)
        return found["leader"] if found is not None and found["status"] == "STEADY" else None

    async def heal(self, shard: str) -> int:
        """Everybody up and in step: where all logs end.  Nobody may append meanwhile."""
        if self.network is not None:
            self.network.heal()
        for process in self.processes:
            process.resume()
            if not process.running:
                process.start()
        ends: set[int] = set()

        async def in_step() -> bool:
            found = await self.status(shard)
            if found is None or found["status"] != "STEADY" or found["reconfiguration"]:
                return False
            reports = found["reports"]
            ends.clear()
            ends.update(each["end"] for each in reports)
            ends.update(each["commit"] for each in reports)
            return len(reports) == found["replicas"] and len(ends) == 1

        await until_true(in_step, f"the replicas of {shard} do not come into step")
        (end,) = ends
        return end

    def told(self, node: str, event: str) -> list[dict[str, Any]]:
        """Events of a node's log."""
        lines = self.nodes[node].log.read_text(errors="replace").splitlines()
        events = [json.loads(line) for line in lines if line.startswith("{")]
        return [each for each in events if each.get("event") == event]


async def until_true(wanted: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not await wanted():
        if time.monotonic() > deadline:
            raise NothingHappens(what)
        await asyncio.sleep(LOOK_MS / 1000)


class AnyDirectory:
    """Several coordinators' directories: the next one, whenever one does not answer."""

    def __init__(self, urls: list[str]) -> None:
        self._each = [HttpDirectory(url, DIRECTORY_MS, None) for url in urls]

    async def find(self, shard: str) -> Placement:
        for _ in self._each:
            try:
                return await self._each[0].find(shard)
            except DirectoryUnavailable as failure:
                last = failure
                self._each.append(self._each.pop(0))
        raise last

    async def names(self) -> list[str]:
        return await self._each[0].names()

    async def close(self) -> None:
        for each in self._each:
            await each.close()
