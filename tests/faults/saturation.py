"""As many bytes as a shard takes, and how much memory its nodes need meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from faults.cluster import PATIENCE_S, FaultCluster, until
from faults.processes import Process
from shardlog.client import Client
from shardlog.client.failures import SessionEvicted

RECORD = bytes(1024)
BATCH = [RECORD] * 240
BATCH_BYTES = len(RECORD) * len(BATCH)
CLIENTS = 2
IN_FLIGHT = 32
LOOK_MS = 20
SLOW_MS = 200


class Saturation:
    """Appends without pause, up to so many bytes, then slowly; `acknowledged_bytes` counts."""

    def __init__(self, cluster: FaultCluster, shard: str, fast_bytes_max: int = 1 << 50) -> None:
        self.cluster = cluster
        self.shard = shard
        self.fast_bytes_max = fast_bytes_max
        self.acknowledged_bytes = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._append()) for _ in range(CLIENTS)]
            yield
            for task in tasks:
                task.cancel()

    async def _append(self) -> None:
        deadline_ms = 1000 * PATIENCE_S
        client = Client("shardlog://unused:1", directory=self.cluster.directory())
        async with client, asyncio.TaskGroup() as group:
            producer = client.producer(self.shard, deadline_ms=deadline_ms)
            room = asyncio.Semaphore(IN_FLIGHT)

            async def append() -> None:
                try:
                    await producer.append_many(BATCH)
                    self.acknowledged_bytes += BATCH_BYTES
                except SessionEvicted:
                    pass  # whoever registers without end evicts others: it goes on in a new one
                finally:
                    room.release()

            while True:
                await room.acquire()
                if self.acknowledged_bytes > self.fast_bytes_max:
                    await asyncio.sleep(SLOW_MS / 1000)
                group.create_task(append())

    async def until_more(self, mib: int) -> None:
        wanted = self.acknowledged_bytes + (mib << 20)
        await until(lambda: self.acknowledged_bytes >= wanted, "nothing is appended any more")


class Growth:
    """The most that processes have grown since `begin`, in MiB, by name."""

    def __init__(self, *processes: Process) -> None:
        self._processes = processes
        self._before = {each.name: each.rss_bytes for each in processes}
        self.mib = dict.fromkeys(self._before, 0.0)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[Growth]:
        watching = asyncio.create_task(self._watch())
        try:
            yield self
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    async def _watch(self) -> None:
        while True:
            for each in self._processes:
                grown = (each.rss_bytes - self._before[each.name]) / (1 << 20)
                self.mib[each.name] = max(self.mib[each.name], grown)
            await asyncio.sleep(LOOK_MS / 1000)
