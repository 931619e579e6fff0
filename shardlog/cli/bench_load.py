"""Load for a cluster, through the client as any program would use it, and what came of it.

A call is timed from when it was made, or at a given rate from when it was due, until all that it
appended is acknowledged.  So at a rate that the cluster does not keep up with, latency grows; and
at full speed it is mostly the time that records wait in the producer's buffer.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from shardlog.client import FIRST, Client, Compression, Producer

CALL_RECORDS_MAX = 1000
DUE_S = 0.001
"""How often records that are due are handed over."""


@dataclass(frozen=True, slots=True)
class Load:
    """How much, how long, and in which shape; None is without a bound."""

    records: int | None
    seconds: float | None
    record_bytes: int
    workers: int
    rate: float | None = None
    batch_bytes: int = 256 << 10
    linger_ms: float = 2.0
    compression: Compression = Compression.NONE

    def call_records(self) -> int:
        """How many records are handed over at once."""
        return max(1, min(CALL_RECORDS_MAX, self.batch_bytes // (self.record_bytes + 4)))

    def values(self, count: int) -> list[bytes]:
        return [os.urandom(self.record_bytes) for _ in range(count)]


class Budget:
    """What may still be appended, whoever appends it."""

    def __init__(self, load: Load, begun: float) -> None:
        self.left = load.records
        self.until = None if load.seconds is None else begun + load.seconds

    def take(self, most: int) -> int:
        """So many records, or fewer; 0 when all is done."""
        if self.until is not None and time.perf_counter() >= self.until:
            return 0
        if self.left is None:
            return most
        taken = min(most, self.left)
        self.left -= taken
        return taken


class Meter:
    """What has been acknowledged or read so far, and how long calls took."""

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.latencies_ms: list[float] = []
        self.begun = self.ended = time.perf_counter()

    def note(self, records: int, size: int) -> None:
        self.records += records
        self.bytes += size
        self.ended = time.perf_counter()

    def call(self, records: int, size: int, since: float) -> Callable[[asyncio.Future[Any]], None]:
        """To be told when the call is done; a failure is told by the producer."""

        def done(future: asyncio.Future[Any]) -> None:
            if not future.cancelled() and future.exception() is None:
                self.note(records, size)
                self.latencies_ms.append((self.ended - since) * 1e3)

        return done

    @property
    def seconds(self) -> float:
        return max(self.ended - self.begun, 1e-9)

    def figures(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "records_per_s": round(self.records / self.seconds, 1),
            "megabytes_per_s": round(self.bytes / self.seconds / 1e6, 3),
            "calls": len(self.latencies_ms),
            "latency_ms": percentiles(self.latencies_ms),
        }


def percentiles(of: list[float]) -> dict[str, float] | None:
    """By the nearest rank; None of nothing."""
    if not of:
        return None
    ordered = sorted(of)
    ranks = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    last = len(ordered) - 1
    return {name: round(ordered[min(last, int(len(ordered) * part))], 3)
            for name, part in ranks.items()}  # fmt: skip


def run(work: Coroutine[Any, Any, None]) -> None:
    """With uvloop where there is one: a load generator should not be what is slow."""
    if find_spec("uvloop") is not None:
        import uvloop

        uvloop.run(work)
    else:
        asyncio.run(work)


# --- appending -----------------------------------------------------------------------------------


async def append(client: Client, shard: str, load: Load, meter: Meter) -> None:
    """As fast as it is taken, or at a rate; from all producers together."""
    paced = load.rate is not None
    async with _producers(client, shard, load) as producers:
        meter.begun = time.perf_counter()
        budget = Budget(load, meter.begun)
        works = [
            _paced(each, load, meter, budget) if paced else _flood(each, load, meter, budget)
            for each in producers
        ]
        await _together(works)


async def alone(client: Client, shard: str, load: Load, meter: Meter) -> None:
    """One record in flight from each producer."""
    async with _producers(client, shard, load) as producers:
        meter.begun = time.perf_counter()
        budget = Budget(load, meter.begun)
        await _together([_one_by_one(each, load, meter, budget) for each in producers])


@asynccontextmanager
async def _producers(client: Client, shard: str, load: Load) -> AsyncIterator[list[Producer]]:
    """Each with a session: one record goes ahead of what is measured."""
    made = [
        client.producer(
            shard,
            batch_bytes=load.batch_bytes,
            linger_ms=load.linger_ms,
            compression=load.compression,
        )
        for _ in range(load.workers)
    ]
    (value,) = load.values(1)
    await asyncio.gather(*(each.append(value) for each in made))
    yield made
    for each in made:
        await each.close()


async def _flood(producer: Producer, load: Load, meter: Meter, budget: Budget) -> None:
    values = load.values(load.call_records())
    while taken := budget.take(len(values)):
        await producer.until_room()
        since = time.perf_counter()
        sent = producer.send_many(values[:taken])
        sent.add_done_callback(meter.call(taken, taken * load.record_bytes, since))
    await producer.flush()


async def _paced(producer: Producer, load: Load, meter: Meter, budget: Budget) -> None:
    assert load.rate is not None
    each_s = load.workers / load.rate
    values = load.values(load.call_records())
    begun, number = time.perf_counter(), 0
    while True:
        due = int((time.perf_counter() - begun) / each_s) + 1
        while number < due:
            taken = budget.take(min(due - number, len(values)))
            if not taken:
                await producer.flush()
                return
            await producer.until_room()
            sent = producer.send_many(values[:taken])
            since = begun + number * each_s
            sent.add_done_callback(meter.call(taken, taken * load.record_bytes, since))
            number += taken
        await asyncio.sleep(max(DUE_S, begun + number * each_s - time.perf_counter()))


async def _one_by_one(producer: Producer, load: Load, meter: Meter, budget: Budget) -> None:
    (value,) = load.values(1)
    while budget.take(1):
        since = time.perf_counter()
        await producer.append(value)
        meter.note(1, len(value))
        meter.latencies_ms.append((meter.ended - since) * 1e3)


async def _together(works: list[Coroutine[Any, Any, None]]) -> None:
    """The first failure ends all."""
    tasks = [asyncio.ensure_future(each) for each in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# --- reading -------------------------------------------------------------------------------------


async def read(client: Client, shard: str, load: Load, meter: Meter) -> None:
    """The whole log or so much of it, by each reader."""
    meter.begun = time.perf_counter()
    await _together([_read(client, shard, load, meter) for _ in range(load.workers)])


async def _read(client: Client, shard: str, load: Load, meter: Meter) -> None:
    count = 0
    async with aclosing(client.batches(shard, FIRST)) as batches:
        async for entry in batches:
            meter.note(entry.batch.count, len(entry.batch.values.data))
            count += entry.batch.count
            if load.records is not None and count >= load.records:
                return
            if load.seconds is not None and meter.seconds >= load.seconds:
                return
