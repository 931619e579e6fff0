"""Three node processes and a coordinator in this one, of which nodes can be away for a while.

Nothing restarts a node here: one that was killed stays away until it is started again, which is
what has to be measured.  How far a replica is comes from its own status over the control plane,
which costs it next to nothing; what was sent to whom comes from the leader's metrics.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from bench_key import KEY, key_file
from limit_load import RECORD_BYTES, Target
from node_cluster import opening_of
from prometheus_client.parser import text_string_to_metric_families

from shardlog.coordinator.calls import NodeControl
from shardlog.coordinator.host import CoordinatorHost
from shardlog.metadata.memory import Memory
from shardlog.protocol.coordination import CreateShard
from shardlog.protocol.messages import Envelope, StatusReport, StatusRequest
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Status
from shardlog.transport.control import ControlClient, ControlLimits
from shardlog.transport.failures import TransportFailure

NAMES = ("one", "two", "three")
START_TIMEOUT_S = 60.0
CALL_TIMEOUT_MS = 1000
LOOK_S = 0.05
WINDOW = 16


class Node:
    """A process that has said that it is ready."""

    def __init__(self, directory: Path, name: str, arguments: tuple[str, ...]) -> None:
        self.name = name
        ports = ("--data-port", "0", "--control-port", "0", "--http-port", "0")
        with Path(f"{directory}.log").open("a") as log:
            self.process = subprocess.Popen(
                (sys.executable, "-m", "shardlog_node.main", "--name", name, "--plain",
                 "--cluster-key-file", key_file(directory.parent),
                 "--directory", str(directory), *ports, *arguments),
                stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{name} does not start: {Path(f'{directory}.log').read_text()}")
        self.ready: dict[str, str] = json.loads(line)

    def cpu_s(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@dataclass(frozen=True, slots=True)
class Caught:
    """How a replica got somewhere: seconds since it began to grow, and how far it was when."""

    seconds: float
    looks: list[tuple[float, int]]


class Cluster:
    """`start` and `kill` nodes by name; `create` a shard on all of them."""

    def __init__(self, directory: Path, arguments: tuple[str, ...] = ()) -> None:
        self.directory = directory
        self.arguments = arguments
        self.nodes: dict[str, Node] = {}
        self.coordinator: CoordinatorHost
        self._client: ControlClient

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Cluster]:
        self._client = ControlClient(ControlLimits(), None, KEY)
        coordinating: asyncio.Task[None] | None = None
        try:
            for name in NAMES:
                await self.start(name)
            control = NodeControl(self._client, self._address("control"), self._address("data"))
            store = Memory().handle()
            self.coordinator = CoordinatorHost("coordinator", store, control, _now_ms)
            coordinating = asyncio.create_task(self.coordinator.run())
            yield self
        finally:
            if coordinating is not None:
                coordinating.cancel()
                await asyncio.wait([coordinating])
            for name in list(self.nodes):
                self.kill(name)
            await self._client.close()

    def _address(self, plane: str) -> Callable[[str], str | None]:
        return lambda name: self.nodes[name].ready[plane] if name in self.nodes else None

    async def start(self, name: str) -> None:
        path = self.directory / name
        self.nodes[name] = await asyncio.to_thread(Node, path, name, self.arguments)

    def kill(self, name: str) -> None:
        self.nodes.pop(name).kill()

    async def create(self, shard: str) -> str:
        """On all nodes; who leads it, once all follow."""
        await self.coordinator.command(shard, CreateShard(NAMES, QuorumPolicy()))
        leader = await self.leader(shard)
        for name in NAMES:
            await self.until_at(shard, name, 1)
        return leader

    async def leader(self, shard: str) -> str:
        async with asyncio.timeout(START_TIMEOUT_S):
            while True:
                found = self.coordinator.shards.get(shard)
                if found is not None and found.status is Status.STEADY and found.leader:
                    return found.leader.node
                await asyncio.sleep(LOOK_S)

    async def report(self, shard: str, name: str) -> StatusReport | None:
        found = self.coordinator.shards[shard]
        incarnation = next(each.incarnation for each in found.ensemble if each.node == name)
        asked = Envelope(shard, "bench", 0, name, incarnation, StatusRequest(found.epoch))
        try:
            answer = await self._client.call(
                self.nodes[name].ready["control"], asked, CALL_TIMEOUT_MS
            )
        except TransportFailure:
            return None
        return answer.message if answer and isinstance(answer.message, StatusReport) else None

    async def end(self, shard: str, name: str) -> int:
        report = await self.report(shard, name)
        return -1 if report is None else report.end

    async def until_at(self, shard: str, name: str, end: int, timeout_s: float = 120) -> Caught:
        """Until its log has got to `end`; the time counts from when it began to grow.

        Both happened between two looks: in the middle, as far as anybody can tell.
        """
        looks: list[tuple[float, int]] = []
        first = -1
        before = began = time.perf_counter()
        async with asyncio.timeout(timeout_s):
            while True:
                at = await self.end(shard, name)
                now = time.perf_counter()
                if first < 0:
                    first = at
                if at == first:
                    began = now
                elif began == before:
                    began = (before + now) / 2
                looks.append((now, at))
                if at >= end:
                    seconds = max((before + now) / 2 - began, 0.0)
                    return Caught(seconds, [(when - began, at) for when, at in looks])
                before = now
                await asyncio.sleep(LOOK_S)

    def target(self, shard: str, leader: str) -> Target:
        host, _, port = self.nodes[leader].ready["data"].rpartition(":")
        return Target(host, int(port), opening_of(shard))

    async def fill(self, shard: str, leader: str, bytes_wanted: int, batch_bytes: int) -> int:
        """So many bytes of records, in batches; where the log ends afterwards."""
        records = max(batch_bytes // RECORD_BYTES, 1)
        left = max(bytes_wanted // (records * RECORD_BYTES), 1)
        async with self.target(shard, leader).lanes(1) as lanes:
            (lane,) = lanes
            first = min(left, WINDOW)
            left -= first

            def answered(_: object, count: int) -> None:
                nonlocal left
                more = min(left, count)
                left -= more
                if more:
                    lane.append(records, more)

            lane.answered = answered
            lane.append(records, first)
            while left or lane.done < lane.request:
                await asyncio.sleep(LOOK_S)
        return await self.end(shard, leader)

    def metric(self, node: str, name: str, **labels: str) -> float:
        """The sum of all samples that have these labels."""
        with urllib.request.urlopen(f"http://{self.nodes[node].ready['http']}/metrics") as answer:
            text = answer.read().decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
