"""Clients at work: producers with exactly-once sessions, readers that tail, confirmed reads.

They write down all that they are told, for `history` to judge.  The pace is slow enough that two
cores have time for what is done to the cluster.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from faults.cluster import PATIENCE_S, FaultCluster, until
from faults.history import (
    ConfirmedRead,
    Fate,
    History,
    Reread,
    Sent,
    Standing,
    standing_of,
    value_of,
)
from shardlog.client import Client, Producer
from shardlog.client.failures import ClientFailure

RECORD_BYTES = 128
OUTSTANDING_MAX = 64
BATCH_MAX = 8
PAUSE_MS = 10
READ_EVERY_MS = 50
READ_BACK = 200
"""A confirmed read begins so many offsets before the latest acknowledged one."""
REREAD_EVERY_MS = 100
REREAD_RECORDS = 100
PATIENT_MS = 1000 * PATIENCE_S
HASTY_MS = 1500
"""Of producers whose records are often given up with their fate unknown."""


class Load:
    """`producers` that wait for as long as it takes, and `hasty` ones that do not.

    `rereaders` read anywhere in what was acknowledged, again and again.
    """

    def __init__(
        self,
        cluster: FaultCluster,
        shard: str,
        seed: int,
        *,
        producers: int = 3,
        hasty: int = 1,
        tails: int = 2,
        rereaders: int = 0,
        record_bytes: int = RECORD_BYTES,
        pause_ms: int = PAUSE_MS,
    ) -> None:
        self.cluster = cluster
        self.shard = shard
        self.history = History()
        self._record_bytes = record_bytes
        self._pause_ms = pause_ms
        self._rereaders = rereaders
        self._random = Random(seed)
        self._patience = [PATIENT_MS] * producers + [HASTY_MS] * hasty
        self._tails: dict[str, list[Standing]] = {f"tail {n + 1}": [] for n in range(tails)}
        self._appending = True
        self._latest: Sent | None = None
        self._acknowledged = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Leaving it means that everything was settled, and read by everybody."""
        async with asyncio.TaskGroup() as group:
            writing = [
                group.create_task(self._produce(number, deadline_ms))
                for number, deadline_ms in enumerate(self._patience)
            ]
            watching = [group.create_task(self._tail(name)) for name in self._tails]
            watching.append(group.create_task(self._confirm()))
            watching += [group.create_task(self._reread(n)) for n in range(self._rereaders)]
            await self.until_acknowledged()
            yield
            self._appending = False
            await asyncio.wait(writing)
            end = await self.cluster.heal(self.shard)
            self.history.log = await self._read(end)
            await until(self._all_seen, "a reader never saw all of the log")
            self.history.tails.update(self._tails)
            for task in watching:
                task.cancel()

    async def until_acknowledged(self) -> float:
        """Wait until a record that is sent from now on is acknowledged; ms that it took."""
        now_ns = time.monotonic_ns()

        def acknowledged() -> bool:
            return self._latest is not None and self._latest.called_ns >= now_ns

        await until(acknowledged, f"nothing has been acknowledged for {PATIENCE_S} s")
        return (time.monotonic_ns() - now_ns) / 1e6

    async def until_more(self, records: int) -> None:
        """Wait until so many more are acknowledged."""
        wanted = self._acknowledged + records
        await until(lambda: self._acknowledged >= wanted, "nothing is acknowledged any more")

    # --- tasks -----------------------------------------------------------------------------------

    def _client(self) -> Client:
        return Client("shardlog://unused:1", directory=self.cluster.directory())

    async def _produce(self, number: int, deadline_ms: int) -> None:
        count = 0
        outstanding: set[asyncio.Future[int]] = set()
        async with self._client() as client:
            producer = client.producer(self.shard, deadline_ms=deadline_ms)
            while self._appending:
                for _ in range(self._random.randint(1, BATCH_MAX)):
                    count += 1
                    sent = Sent(number, count, time.monotonic_ns())
                    self.history.sent.append(sent)
                    future = self._send(producer, sent)
                    outstanding.add(future)
                    future.add_done_callback(outstanding.discard)
                await asyncio.sleep(self._pause_ms / 1000)
                while len(outstanding) > OUTSTANDING_MAX:
                    await asyncio.wait(outstanding, return_when=asyncio.FIRST_COMPLETED)
            if outstanding:
                await asyncio.wait(outstanding)
            await flushed(producer)

    def _send(self, producer: Producer, sent: Sent) -> asyncio.Future[int]:
        def settled(future: asyncio.Future[int]) -> None:
            failure = future.exception()
            if failure is None:
                sent.replied_ns = time.monotonic_ns()
                sent.offset = future.result()
                sent.fate = Fate.ACKNOWLEDGED
                self._acknowledged += 1
                if self._latest is None or sent.called_ns >= self._latest.called_ns:
                    self._latest = sent
            elif isinstance(failure, ClientFailure):
                sent.fate = Fate.UNKNOWN if failure.fate_unknown else Fate.FAILED

        future = producer.send(value_of(sent.producer, sent.number, self._record_bytes))
        future.add_done_callback(settled)
        return future

    async def _tail(self, name: str) -> None:
        async with self._client() as client:
            async for record in client.tail(self.shard, deadline_ms=PATIENT_MS):
                self._tails[name].append(standing_of(record.offset, record.value))

    async def _confirm(self) -> None:
        async with self._client() as client:
            while True:
                await asyncio.sleep(READ_EVERY_MS / 1000)
                latest = self._latest.offset if self._latest else None
                start = max(0, (latest or 0) - READ_BACK)
                called_ns = time.monotonic_ns()
                stream = client.batches(self.shard, start, deadline_ms=PATIENT_MS)
                batches = [batch async for batch in stream]
                assert stream.end is not None
                seen = tuple(
                    standing_of(record.offset, record.value)
                    for batch in batches
                    for record in batch.records(start, stream.end)
                )
                read = ConfirmedRead(called_ns, time.monotonic_ns(), start, stream.end, seen)
                self.history.reads.append(read)

    async def _reread(self, number: int) -> None:
        random = Random(number)
        async with self._client() as client:
            while True:
                await asyncio.sleep(REREAD_EVERY_MS / 1000)
                latest = self._latest.offset if self._latest else None
                if not latest:
                    continue
                start = random.randrange(latest)
                end = min(start + REREAD_RECORDS, latest)
                found = client.read(self.shard, start, end, deadline_ms=PATIENT_MS)
                seen = [standing_of(record.offset, record.value) async for record in found]
                self.history.rereads.append(Reread(start, end, tuple(seen)))

    async def _read(self, end: int) -> list[Standing]:
        async with self._client() as client:
            found = client.read(self.shard, 0, end, deadline_ms=PATIENT_MS)
            return [standing_of(record.offset, record.value) async for record in found]

    def _all_seen(self) -> bool:
        return all(len(seen) >= len(self.history.log) for seen in self._tails.values())


async def flushed(producer: Producer) -> None:
    """Every record has its own future, which has told already."""
    try:
        await producer.close()
    except ClientFailure:
        return
