"""Readers at the end of a log that a writer saturates: do they keep up?

Each reader is a process of its own, as a consumer would be:

    python bench/node_tail.py URL SHARD

It tails whole batches from the end on, and says every now and then how far it has got and when, by
the clock that all processes of a machine share.  It ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import sys
import time
from bisect import bisect_left
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from statistics import median

import uvloop
from limit_load import WARM_UP_S
from node_cluster import Cluster
from node_load import Flood

from shardlog.client import END, Client

TELL_S = 0.05
END_TIMEOUT_S = 5.0

Position = tuple[float, int]
"""When, and behind which offset."""


@dataclass(frozen=True, slots=True)
class Tailing:
    writer_records_per_s: float
    readers_records_per_s: tuple[float, ...]
    lag_first_half_ms: float
    """The median of how long ago what is read now was acknowledged, of the slowest reader."""
    lag_second_half_ms: float
    lag_worst_ms: float

    @property
    def ratio(self) -> float:
        """Of the slowest reader to the writer."""
        return min(self.readers_records_per_s) / self.writer_records_per_s


async def tailing(cluster: Cluster, shard: str, seconds: float, readers: int) -> Tailing:
    writer: list[Position] = []
    async with AsyncExitStack() as stack:
        heard = [
            await stack.enter_async_context(_reader(cluster.url, shard)) for _ in range(readers)
        ]
        client = await stack.enter_async_context(Client(cluster.url))
        flood = await stack.enter_async_context(Flood(client.producer(shard)).running())
        begun = time.monotonic()
        while (now := time.monotonic()) < begun + WARM_UP_S + seconds:
            if flood.end:
                writer.append((now, flood.end))
            await asyncio.sleep(TELL_S / 5)
    since = begun + WARM_UP_S
    found = [_within(each, since, since + seconds) for each in heard]
    lags = max((_lags_ms(writer, each) for each in found), key=lambda lags: sum(lags) / len(lags))
    half = len(lags) // 2
    return Tailing(
        _rate(_within(writer, since, since + seconds)),
        tuple(map(_rate, found)),
        median(lags[:half]),
        median(lags[half:]),
        max(lags),
    )


def _within(positions: list[Position], since: float, until: float) -> list[Position]:
    return [each for each in positions if since <= each[0] <= until]


def _rate(positions: list[Position]) -> float:
    (begun, first), (ended, last) = positions[0], positions[-1]
    return (last - first) / (ended - begun)


def _lags_ms(writer: list[Position], reader: list[Position]) -> list[float]:
    """How long ago the writer was where the reader is; 0 if the reader has seen it first."""
    ends = [end for _, end in writer]
    lags = []
    for when, end in reader:
        at = bisect_left(ends, end)
        lags.append(max(0.0, (when - writer[at][0]) * 1e3) if at < len(ends) else 0.0)
    return lags


@asynccontextmanager
async def _reader(url: str, shard: str) -> AsyncIterator[list[Position]]:
    """Where it says it is; grows while it runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, url, shard,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    out = process.stdout
    positions: list[Position] = []

    async def listen() -> None:
        async for line in out:
            when, end = line.split()
            positions.append((float(when), int(end)))

    if not await out.readline():
        raise RuntimeError("a reader ended before it began")
    listening = asyncio.create_task(listen())
    try:
        yield positions
    finally:
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), END_TIMEOUT_S)
        except TimeoutError:
            process.kill()
            await process.wait()
        await listening


# --- the reader's process ------------------------------------------------------------------------


async def read(url: str, shard: str) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    async with Client(url) as client:
        await client.end(shard)
        print("begun", flush=True)
        reading = asyncio.create_task(_follow(client, shard))
        await ended.wait()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _follow(client: Client, shard: str) -> None:
    told = 0.0
    async with client.tail_batches(shard, END) as entries:
        async for entry in entries:
            now = time.monotonic()
            if now >= told + TELL_S:
                told = now
                print(now, entry.end, flush=True)


if __name__ == "__main__":
    uvloop.run(read(*sys.argv[1:3]))
