"""How long nothing is acknowledged when a leader dies, or falls silent, under load.

A steady load of small batches, several under way, through `shardlog.client` with its defaults.  The
leader is killed (`SIGKILL`: the kernel closes its connections) or stopped (`SIGSTOP`: nothing comes
any more and nothing is reset, to clients, to other replicas and to the coordinator alike, which is
what a cut network looks like).  What counts is the longest time between two acknowledgements from
the signal on.  Before the next one the shard has all its replicas again.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from node_cluster import Cluster
from node_load import VALUES

from shardlog.client import Client, Producer, Range

SHARD = "failover"
BATCH = VALUES[:20]
EVERY_S = 0.002
"""10,000 records a second."""
SETTLE_S = 0.5
"""Under load, before and after."""
FAILOVER_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Failovers:
    gaps_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        return median(self.gaps_s)

    @property
    def worst_s(self) -> float:
        return max(self.gaps_s)


class Acknowledgements:
    """When each came."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def note(self, future: asyncio.Future[list[Range]]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.times.append(time.perf_counter())

    def longest_gap_s(self, since: float) -> float:
        """Between two acknowledgements; the first is the last one before `since`."""
        before = [each for each in self.times if each <= since]
        times = before[-1:] + [each for each in self.times if each > since]
        return max(later - earlier for earlier, later in pairwise(times))


@asynccontextmanager
async def _load(producer: Producer, acked: Acknowledgements) -> AsyncIterator[None]:
    async def run() -> None:
        while True:
            await producer.until_room()
            producer.send_many(BATCH).add_done_callback(acked.note)
            await asyncio.sleep(EVERY_S)

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await producer.flush()


async def failovers(cluster: Cluster, times: int, number: signal.Signals) -> Failovers:
    """So many, one after the other."""
    gaps = []
    async with Client(cluster.url) as client:
        for _ in range(times):
            found = await asyncio.to_thread(cluster.until_whole, SHARD)
            async with client.producer(SHARD) as producer:
                gaps.append(await _one(cluster, producer, found["leader"], number))
    return Failovers(tuple(gaps))


async def _one(cluster: Cluster, producer: Producer, leader: str, number: signal.Signals) -> float:
    acked = Acknowledgements()
    stopped = number is signal.SIGSTOP
    async with _load(producer, acked):
        await asyncio.sleep(SETTLE_S)
        begun = time.perf_counter()
        cluster.send_signal(leader, number)
        try:
            await _until_acked_since(acked, begun)
            await asyncio.sleep(SETTLE_S)
        finally:
            if stopped:
                cluster.send_signal(leader, signal.SIGCONT)
    return acked.longest_gap_s(begun)


async def _until_acked_since(acked: Acknowledgements, begun: float) -> None:
    """Answers that were on their way when the signal was sent do not count."""
    under_way_s = 0.1
    async with asyncio.timeout(FAILOVER_TIMEOUT_S):
        while not acked.times or acked.times[-1] < begun + under_way_s:
            await asyncio.sleep(EVERY_S)
