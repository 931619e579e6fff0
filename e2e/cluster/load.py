"""Clients inside the cluster: two that append, one that tails, one that reads with confirmation.

This file is run in a pod of the node's image (`python load.py SHARD FIRST`), so it imports nothing
but the client.  Each producer begins with FIRST records, as fast as it can.  Producers never give a
record up: whatever is done to the cluster, every record ends acknowledged, at an offset that is
written down.  It says on its output, twice a second, how many records are acknowledged.  When
/work/stop is there it settles what is under way, reads the whole log, and leaves all that it saw in
/work/history.json.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
import time
from functools import partial
from pathlib import Path

from shardlog.client import Client, Producer, Record

WORK = Path("/work")
PRODUCERS = 2
PAUSE_S = 0.02
OUTSTANDING_MAX = 32
AT_ONCE = 1000
READ_EVERY_S = 0.25
READ_BACK = 100
TELL_EVERY_S = 0.5
DEADLINE_MS = 400_000
NAMED = struct.Struct("<QQ")
RECORD_BYTES = 64


class Load:
    def __init__(self, shard: str, first: int) -> None:
        self.shard = shard
        self.first = first
        self.sent: list[list[int | None]] = []
        self.reads: list[list[object]] = []
        self.tail: list[tuple[int, int, int]] = []
        self.acknowledged = 0
        self.latest = 0
        self.failures: list[str] = []

    async def run(self) -> None:
        async with Client(os.environ["SHARDLOG_CLUSTER"]) as client:
            writing = [asyncio.create_task(self._produce(client, n)) for n in range(PRODUCERS)]
            watching = [
                asyncio.create_task(each)
                for each in (self._tail(client), self._confirm(client), self._tell())
            ]
            await asyncio.gather(*writing)
            end = await client.end(self.shard, deadline_ms=DEADLINE_MS)
            log = [
                standing(record)
                async for record in client.read(self.shard, 0, end, deadline_ms=DEADLINE_MS)
            ]
            while len(self.tail) < len(log) and not watching[0].done():
                await asyncio.sleep(PAUSE_S)
            for task in watching:
                task.cancel()
            ended = await asyncio.gather(*watching, return_exceptions=True)
        self.failures += [
            repr(each) for each in ended if each and not isinstance(each, asyncio.CancelledError)
        ]
        self._leave(log)

    def _leave(self, log: list[tuple[int, int, int]]) -> None:
        history = {
            "sent": self.sent,
            "reads": self.reads,
            "log": log,
            "tail": self.tail,
            "failures": self.failures,
        }
        unfinished = WORK / "history.new"
        unfinished.write_text(json.dumps(history, separators=(",", ":")))
        unfinished.rename(WORK / "history.json")

    async def _produce(self, client: Client, number: int) -> None:
        count = 0
        outstanding: set[asyncio.Future[int]] = set()
        async with client.producer(self.shard, deadline_ms=DEADLINE_MS) as producer:
            while count < self.first:
                numbers = range(count + 1, min(count + AT_ONCE, self.first) + 1)
                await asyncio.wait([self._sent(producer, number, each) for each in numbers])
                count = numbers[-1]
            while not (WORK / "stop").exists():
                count += 1
                future = self._sent(producer, number, count)
                outstanding.add(future)
                future.add_done_callback(outstanding.discard)
                await asyncio.sleep(PAUSE_S)
                while len(outstanding) > OUTSTANDING_MAX:
                    await asyncio.wait(outstanding, return_when=asyncio.FIRST_COMPLETED)
            if outstanding:
                await asyncio.wait(outstanding)

    def _sent(self, producer: Producer, number: int, count: int) -> asyncio.Future[int]:
        value = NAMED.pack(number, count).ljust(RECORD_BYTES, b".")
        entry: list[int | None] = [number, count, time.monotonic_ns(), None, None]
        self.sent.append(entry)
        future = producer.send(value)
        future.add_done_callback(partial(self._settled, entry))
        return future

    def _settled(self, entry: list[int | None], future: asyncio.Future[int]) -> None:
        failure = future.exception()
        if failure is not None:
            self.failures.append(repr(failure))
            return
        entry[3] = time.monotonic_ns()
        entry[4] = future.result()
        self.acknowledged += 1
        self.latest = max(self.latest, future.result())

    async def _tail(self, client: Client) -> None:
        async for record in client.tail(self.shard, deadline_ms=DEADLINE_MS):
            self.tail.append(standing(record))

    async def _confirm(self, client: Client) -> None:
        while True:
            await asyncio.sleep(READ_EVERY_S)
            start = max(0, self.latest - READ_BACK)
            called = time.monotonic_ns()
            async with client.batches(self.shard, start, deadline_ms=DEADLINE_MS) as stream:
                batches = [batch async for batch in stream]
            assert stream.end is not None
            seen = [
                standing(record) for batch in batches for record in batch.records(start, stream.end)
            ]
            self.reads.append([called, time.monotonic_ns(), start, stream.end, seen])

    async def _tell(self) -> None:
        while True:
            print(self.acknowledged, flush=True)
            await asyncio.sleep(TELL_EVERY_S)


def standing(record: Record) -> tuple[int, int, int]:
    """Where it stands, who sent it and as which; no byte may be another."""
    number, count = NAMED.unpack_from(record.value)
    assert record.value == NAMED.pack(number, count).ljust(RECORD_BYTES, b"."), record
    return record.offset, number, count


async def main(shard: str, first: str) -> None:
    await Load(shard, int(first)).run()
    while True:
        await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
