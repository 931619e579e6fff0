"""One coordinator process, told over its standard input what to do: part of `operator_scale`.

A line of JSON in, a line of JSON out.  The coordinator is the one that the operator and the local
cluster run; only its metadata store is wrapped, so that what is written can be counted, and so are
its calls.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop
from bench_key import KEY

from shardlog.coordinator.calls import NodeControl
from shardlog.coordinator.host import CoordinatorHost
from shardlog.coordinator.scaling import choose_nodes, count_replicas, next_command
from shardlog.metadata.memory import Memory
from shardlog.metadata.sqlite import SqliteStore
from shardlog.metadata.store import Listing, MetadataStore, Swapped, Versioned, Watch
from shardlog.protocol.coordination import Accepted, CreateShard
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Shard, Status
from shardlog.transport.control import ControlClient, ControlLimits

AT_ONCE = 64
"""Shards that are created, or scaled, side by side."""
LOOK_S = 0.02


class CountedStore(MetadataStore):
    """The store, with its reads and writes counted."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.reads = self.writes = 0

    async def get(self, key: str) -> Versioned | None:
        self.reads += 1
        return await self._store.get(key)

    async def list(self, prefix: str) -> Listing:
        self.reads += 1
        return await self._store.list(prefix)

    async def compare_and_swap(self, key: str, version: int, value: bytes | None) -> Swapped:
        self.writes += 1
        return await self._store.compare_and_swap(key, version, value)

    def watch(self, prefix: str, from_revision: int) -> Watch:
        return self._store.watch(prefix, from_revision)

    async def close(self) -> None:
        await self._store.close()


class CountedClient(ControlClient):
    """The client of the control plane, with its RPCs counted by name."""

    def __init__(self) -> None:
        super().__init__(ControlLimits(), None, KEY)
        self.calls: Counter[str] = Counter()

    async def _invoke(
        self, address: str, node: str, path: str, asked: bytes, timeout_ms: int
    ) -> bytes:
        self.calls[path.rpartition("/")[2]] += 1
        return await super()._invoke(address, node, path, asked, timeout_ms)


class Scale:
    """What can be asked for; every answer says how long it took."""

    def __init__(
        self, host: CoordinatorHost, store: CountedStore, client: CountedClient, nodes: list[str]
    ) -> None:
        self.host = host
        self.store = store
        self.client = client
        self.nodes = nodes

    async def create(self, count: int, replicas: int) -> None:
        hosting = count_replicas([])

        async def one(number: int) -> None:
            name = f"shard-{number:04}"
            nodes = choose_nodes(replicas, self.nodes, hosting)
            hosting.update(nodes)
            answer = await self.host.command(name, CreateShard(nodes, QuorumPolicy()))
            if not isinstance(answer, Accepted):
                raise RuntimeError(f"{name}: {answer.reason}")
            await self._until(name, lambda shard: shard.leader is not None)

        await _side_by_side([one(number) for number in range(count)])

    async def scale(self, count: int, replicas: int) -> None:
        async def one(name: str) -> None:
            while len(self.host.shards[name].ensemble) < replicas:
                shard = self.host.shards[name]
                if not (shard.change or shard.joining):
                    # Only where a step may be due: counting takes as long as there are shards.
                    hosting = count_replicas(self.host.shards.values())
                    command = next_command(shard, replicas, self.nodes, hosting)
                    if command is not None:
                        await self.host.command(name, command)
                await asyncio.sleep(LOOK_S)

        await _side_by_side([one(name) for name in sorted(self.host.shards)[:count]])

    async def led_without(self, node: str) -> None:
        """Until no shard is led by a node, and all are led."""
        for name in sorted(self.host.shards):
            await self._until(name, lambda shard: shard.leader and shard.leader.node != node)

    async def steady(self) -> None:
        for name in sorted(self.host.shards):
            await self._until(name, lambda shard: shard.leader is not None)

    async def _until(self, name: str, done: Callable[[Shard], object]) -> None:
        while True:
            shard = self.host.shards.get(name)
            if shard is not None and shard.status is Status.STEADY and done(shard):
                return
            await asyncio.sleep(LOOK_S)

    def counts(self) -> dict[str, Any]:
        led = Counter(shard.leader.node for shard in self.host.shards.values() if shard.leader)
        return {
            "shards": len(self.host.shards),
            "led": dict(sorted(led.items())),
            "epochs": sum(shard.epoch for shard in self.host.shards.values()),
            "reads": self.store.reads,
            "writes": self.store.writes,
            "calls": dict(self.client.calls),
        }


async def _side_by_side(works: list[Awaitable[None]]) -> None:
    turns = asyncio.Semaphore(AT_ONCE)

    async def taken(work: Awaitable[None]) -> None:
        async with turns:
            await work

    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(taken(work))


async def _store(kind: str, directory: str) -> MetadataStore:
    if kind == "memory":
        return Memory().handle()
    return await SqliteStore.open(os.path.join(directory, "metadata.db"))


async def coordinate(told: dict[str, Any]) -> None:
    """`told`: the nodes' addresses, the kind of store, and a directory for it."""
    store = CountedStore(await _store(told["store"], told["directory"]))
    client = CountedClient()
    control_at = {name: each["control"] for name, each in told["nodes"].items()}
    data_at = {name: each["data"] for name, each in told["nodes"].items()}
    control = NodeControl(client, control_at.get, data_at.get)
    name = f"bench-{secrets.token_hex(4)}"
    host = CoordinatorHost(name, store, control, lambda: time.monotonic_ns() // 1_000_000)
    running = asyncio.create_task(host.run())
    await host.begun.wait()
    scale = Scale(host, store, client, sorted(told["nodes"]))
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    print(json.dumps({"ready": os.getpid()}), flush=True)
    while line := await lines.readline():
        asked = json.loads(line)
        begun = time.perf_counter()
        work = asked.pop("do")
        if work != "counts":
            await getattr(scale, work)(**asked)
        answer = scale.counts() | {"seconds": time.perf_counter() - begun}
        print(json.dumps(answer), flush=True)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await client.close()
    await store.close()


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    uvloop.run(coordinate(json.loads(sys.argv[1])))
