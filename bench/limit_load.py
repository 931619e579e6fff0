"""The client of the yardstick, and of whatever is measured against it: four ways to append.

A lane is one connection that appends.  What it sends is a valid batch of 128 B records with its
checksum, so that a node takes the same frames; `opening` is what a lane must say before the first
of them (to the yardstick: nothing).

saturated    one lane, batches of many records, a window of them in flight
independent  many lanes, one append of one record in flight on each
lone         one lane, one append of one record at a time
offered      one lane, records that become due at a given rate; those due since the last look, about
             a millisecond ago, go as one batch.  Their latency counts from when each was due.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from statistics import quantiles
from typing import cast

from shardlog.checksum import seal_body
from shardlog.transport.batch import BatchBuilder
from shardlog.transport.frames import (
    FIXED,
    Buffer,
    Decoder,
    Frame,
    FrameType,
    encode_append,
)

RECORD_BYTES = 128
WARM_UP_S = 0.3
ANSWER_TIMEOUT_S = 10.0
APPENDED = int(FrameType.APPENDED)  # an enumeration compares slowly
_answer = FIXED[FrameType.APPENDED].unpack_from


@dataclass(frozen=True, slots=True)
class Rate:
    records_per_s: float
    appends_per_s: float

    @property
    def megabytes_per_s(self) -> float:
        """Of records, without what surrounds them."""
        return self.records_per_s * RECORD_BYTES / 1e6


@dataclass(frozen=True, slots=True)
class Latency:
    p50_ms: float
    p99_ms: float
    count: int
    records_per_s: float


@cache
def batch_of(count: int) -> tuple[bytes, int]:
    """A body of so many records, and its checksum."""
    builder = BatchBuilder()
    builder.extend([os.urandom(RECORD_BYTES) for _ in range(count)])
    body = builder.body()
    return body, seal_body(body)


def latency_of(seconds: list[float], over_s: float) -> Latency:
    cuts = quantiles(seconds, n=100)
    return Latency(cuts[49] * 1e3, cuts[98] * 1e3, len(seconds), len(seconds) / over_s)


class Lane(asyncio.Protocol):
    """One connection.  Answers go to `answered` by the bunch, other frames to `others`."""

    def __init__(self) -> None:
        self.session = 1
        self.channel = 1
        self.request = 0
        self.answered: Callable[[Lane, int], object] = lambda lane, count: None
        """Told how many appends were answered; they are answered in order."""
        self.others: asyncio.Queue[Frame] = asyncio.Queue()
        self.done = 0
        self.transport: asyncio.Transport
        self._feed = Decoder().feed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is not derived from it

    def data_received(self, data: bytes) -> None:
        count = 0
        for frame in self._feed(data):
            if frame.type == APPENDED:
                count += 1
                _, request, _ = _answer(frame.payload)
                assert request == self.done + count, "answers come in order"
            else:
                self.others.put_nowait(frame)
        if count:
            self.done += count
            self.answered(self, count)

    def append(self, records: int, times: int = 1) -> None:
        """So many equal batches, written together."""
        body, checksum = batch_of(records)
        buffers: list[Buffer] = []
        for _ in range(times):
            self.request += 1
            buffers += encode_append(
                self.channel, self.session, self.request, records, checksum, body
            )
        self.transport.writelines(buffers)


Opening = Callable[[Lane], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Target:
    """Who is appended to."""

    host: str
    port: int
    opening: Opening | None = None

    @asynccontextmanager
    async def lanes(self, count: int) -> AsyncIterator[list[Lane]]:
        """Open lanes; closed when all that was appended has been answered."""
        loop = asyncio.get_running_loop()
        opened: list[Lane] = []
        try:
            for _ in range(count):
                _, lane = await loop.create_connection(Lane, self.host, self.port)
                opened.append(lane)
                if self.opening is not None:
                    await self.opening(lane)
            yield opened
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                for lane in opened:
                    await _quiet(lane)
        finally:
            for lane in opened:
                lane.transport.close()


async def _quiet(lane: Lane) -> None:
    """Returns when nothing of the lane's is in flight and nothing more is sent."""
    quiet = asyncio.Event()

    def look(lane: Lane, count: int) -> None:
        if lane.done == lane.request:
            quiet.set()

    lane.answered = look
    look(lane, 0)
    await quiet.wait()


async def _rate(lanes: list[Lane], records: int, seconds: float) -> Rate:
    """What is answered in a while, once it has begun to flow."""
    await asyncio.sleep(WARM_UP_S)
    before, begun = sum(lane.done for lane in lanes), time.perf_counter()
    await asyncio.sleep(seconds)
    appends = sum(lane.done for lane in lanes) - before
    rate = appends / (time.perf_counter() - begun)
    return Rate(rate * records, rate)


async def saturated(target: Target, seconds: float, batch_bytes: int, window: int) -> Rate:
    records = max(batch_bytes // RECORD_BYTES, 1)
    async with target.lanes(1) as lanes:
        (lane,) = lanes
        lane.answered = lambda lane, count: lane.append(records, count)
        lane.append(records, window)
        return await _rate(lanes, records, seconds)


async def independent(target: Target, seconds: float, connections: int = 64) -> Rate:
    async with target.lanes(connections) as lanes:
        for lane in lanes:
            lane.answered = lambda lane, count: lane.append(1)
            lane.append(1)
        return await _rate(lanes, 1, seconds)


async def lone(target: Target, appends: int) -> list[float]:
    """The seconds of each."""
    taken: list[float] = []
    finished = asyncio.Event()
    async with target.lanes(1) as lanes:
        (lane,) = lanes
        begun = 0.0

        def answered(lane: Lane, count: int) -> None:
            nonlocal begun
            now = time.perf_counter()
            taken.append(now - begun)
            if len(taken) < appends:
                begun = now
                lane.append(1)
            else:
                finished.set()

        lane.answered = answered
        begun = time.perf_counter()
        lane.append(1)
        await finished.wait()
    return taken


async def offered(target: Target, seconds: float, records_per_s: int = 20_000) -> Latency:
    """Records that come whether or not the earlier ones are answered."""
    sent: list[tuple[int, int]] = []  # the first record of each batch, and how many
    taken: list[float] = []
    each = 1 / records_per_s
    async with target.lanes(1) as lanes:
        (lane,) = lanes

        def answered(lane: Lane, count: int) -> None:
            now = time.perf_counter() - begun
            for first, records in sent[lane.done - count : lane.done]:
                taken.extend([now - number * each for number in range(first, first + records)])

        lane.answered = answered
        lane.request = lane.done = 0
        begun = time.perf_counter()
        first = 0
        while (passed := time.perf_counter() - begun) < seconds:
            due = int(passed * records_per_s) + 1
            if due > first:
                sent.append((first, due - first))
                lane.append(due - first)
                first = due
            await asyncio.sleep(0.001)
        passed = time.perf_counter() - begun
    return latency_of(taken, passed)
