"""The same patterns as in `limit_load.py`, but through `shardlog.client` as a user would.

What a figure loses against bare frames is what the client costs: batches to be made of records,
checksums, and a future for each call.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from limit_load import RECORD_BYTES, WARM_UP_S, Latency, Rate, latency_of

from shardlog.client import Client, Producer, Range

VALUES = [os.urandom(RECORD_BYTES) for _ in range(2000)]
"""About as many as a batch takes."""


class Flood:
    """Records as fast as they are taken, until cancelled."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.acked = 0
        self.end = 0
        """Behind the last offset that was acknowledged."""
        self.failure: BaseException | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Flood]:
        task = asyncio.create_task(self._run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self.producer.flush()
        if self.failure is not None:
            raise self.failure

    async def _run(self) -> None:
        producer = self.producer
        while self.failure is None:
            await producer.until_room()
            producer.send_many(VALUES).add_done_callback(self._settled)

    def _settled(self, future: asyncio.Future[list[Range]]) -> None:
        if future.cancelled():
            return
        self.failure = self.failure or future.exception()
        if self.failure is None:
            self.acked += len(VALUES)
            self.end = future.result()[-1].end


async def saturated(url: str, shard: str, seconds: float, batch_bytes: int) -> Rate:
    async with Client(url) as client:
        flood = Flood(client.producer(shard, batch_bytes=batch_bytes))
        async with flood.running():
            await asyncio.sleep(WARM_UP_S)
            before, begun = flood.acked, time.perf_counter()
            await asyncio.sleep(seconds)
            rate = (flood.acked - before) / (time.perf_counter() - begun)
    return Rate(rate, rate / len(VALUES))


async def lone(url: str, shard: str, appends: int) -> list[float]:
    """The seconds of each."""
    taken: list[float] = []
    async with Client(url) as client, client.producer(shard) as producer:
        await producer.append(VALUES[0])
        for _ in range(appends):
            begun = time.perf_counter()
            await producer.append(VALUES[0])
            taken.append(time.perf_counter() - begun)
    return taken


async def offered(url: str, shard: str, seconds: float, records_per_s: int) -> Latency:
    """Latency counts from when a record was due, as with bare frames."""
    taken: list[float] = []
    each = 1 / records_per_s
    async with Client(url) as client, client.producer(shard) as producer:
        await producer.append(VALUES[0])
        begun = time.perf_counter()
        first = 0

        def settled(first: int, until: int, future: asyncio.Future[list[Range]]) -> None:
            now = time.perf_counter() - begun
            taken.extend([now - number * each for number in range(first, until)])

        while (passed := time.perf_counter() - begun) < seconds:
            due = int(passed * records_per_s) + 1
            while first < due:
                until = min(due, first + len(VALUES))
                sent = producer.send_many(VALUES[: until - first])
                sent.add_done_callback(partial(settled, first, until))
                first = until
            await asyncio.sleep(0.001)
        await producer.flush()
        passed = time.perf_counter() - begun
    return latency_of(taken, passed)
