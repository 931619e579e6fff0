"""The load on Shardlog, through `shardlog.client`: arguments and answers as those of `load/`.

    python -m bench.compare.shardlog_load URL PATTERN [flags]

`independent-bare` speaks bare frames, by the yardstick's load generator: what the client costs is
the difference.  A reader at the end of a log is a process of its own, since the writer's has one
core only.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from shardlog.client import Client, ClientFailure, Producer, Range
from shardlog.client.batching import OVERHEAD_BYTES

SHARD_RUN = 100
CHUNK_BYTES_MAX = 256 << 10
CHUNK_RECORDS_MAX = 2_000
BUFFER_BYTES_MAX = 16 << 20
"""Under way at all shards together."""
DRAIN_S = 10.0
TICK_S = 0.001
DISTURBANCE_S = 0.2
UNDISTURBED_S = 2.0
PAUSE_WINDOW = 16
ATTEMPT_PAUSE_S = 0.01

Given = argparse.Namespace
Answer = dict[str, Any]
_stamp = struct.Struct("<q")


def shard_of(given: Given, number: int = 0) -> str:
    return f"{given.log}-{number}"


class Flow:
    """Records as fast as they are taken, evenly over all shards, until it is ended."""

    def __init__(self, producers: Sequence[Producer], size: int) -> None:
        count = max(1, min(CHUNK_RECORDS_MAX, CHUNK_BYTES_MAX // (size + OVERHEAD_BYTES)))
        if len(producers) > 1:
            count = min(count, SHARD_RUN)
        self.producers = producers
        self.values = [os.urandom(size) for _ in range(count)]
        self.chunk_bytes = size * count
        self.chunks_max = max(len(producers) // 10 + 1, BUFFER_BYTES_MAX // self.chunk_bytes)
        self.under_way = 0
        self.acked = 0
        self.failure: BaseException | None = None
        self.room = asyncio.Event()

    async def run(self) -> None:
        values, settled = self.values, self._settled
        given = 0
        while self.failure is None:
            for producer in self.producers:
                while self.under_way >= self.chunks_max:
                    self.room.clear()
                    await self.room.wait()
                await producer.until_room()
                producer.send_many(values).add_done_callback(settled)
                self.under_way += 1
                given += self.chunk_bytes
                if given >= CHUNK_BYTES_MAX:  # what is full goes out before more is made
                    given = 0
                    await asyncio.sleep(0)

    def _settled(self, future: asyncio.Future[list[Range]]) -> None:
        self.under_way -= 1
        self.room.set()
        if future.cancelled():
            return
        if failure := future.exception():
            self.failure = self.failure or failure
        else:
            self.acked += len(self.values)


async def saturated(given: Given) -> Answer:
    async with Client(given.url) as client:
        producers = [client.producer(shard_of(given, each)) for each in range(given.shards)]
        flow = Flow(producers, given.size)
        with reader(given) as read:
            task = asyncio.create_task(flow.run())
            await asyncio.sleep(given.warm_up)
            before, before_read, begun = flow.acked, read(), time.perf_counter()
            await asyncio.sleep(given.seconds)
            found: Answer = {
                "records": flow.acked - before, "seconds": time.perf_counter() - begun,
            }  # fmt: skip
            if given.tail:
                found["read_records"] = read() - before_read
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            async with asyncio.timeout(DRAIN_S):
                for producer in producers:
                    await producer.flush()
        if flow.failure is not None:
            raise flow.failure
        return found | {"records_all": flow.acked}


async def independent(given: Given) -> Answer:
    async with AsyncExitStack() as stack:
        producers = []
        for _ in range(given.connections):
            client = await stack.enter_async_context(Client(given.url))
            producers.append(client.producer(shard_of(given)))
        value = os.urandom(given.size)
        await asyncio.gather(*(producer.append(value) for producer in producers))
        warm = time.perf_counter() + given.warm_up
        end = warm + given.seconds
        taken: list[int] = []
        total = 0

        async def lane(producer: Producer) -> None:
            nonlocal total
            while (begun := time.perf_counter()) < end:
                await producer.append(value)
                total += 1
                if begun >= warm:
                    taken.append(int((time.perf_counter() - begun) * 1e6))

        await asyncio.gather(*map(lane, producers))
        seconds = time.perf_counter() - warm
    return {
        "records": len(taken), "seconds": seconds, "records_all": total + given.connections,
        "latencies_us": taken,
    }  # fmt: skip


async def lone(given: Given) -> Answer:
    given.connections = 1
    return await independent(given)


async def offered(given: Given) -> Answer:
    """Latency counts from when a record was due, also for those that had to wait for room."""
    skipped = int(given.warm_up * given.rate)
    due = skipped + int(given.seconds * given.rate)
    taken: list[int] = []
    failed = 0
    rest = os.urandom(given.size)[_stamp.size :]
    async with Client(given.url) as client:
        producer = client.producer(shard_of(given))
        await producer.append(os.urandom(given.size))
        with reader(given) as read:
            start = time.monotonic()
            sent = 0

            def settled(first: int, until: int, future: asyncio.Future[list[Range]]) -> None:
                nonlocal failed
                if future.cancelled() or future.exception():
                    failed += until - first
                    return
                now = time.monotonic() - start
                each = 1 / given.rate
                numbers = range(max(first, skipped), until)
                taken.extend([int((now - number * each) * 1e6) for number in numbers])

            while sent < due:
                until = min(due, int((time.monotonic() - start) * given.rate) + 1)
                if until > sent:
                    until = min(until, sent + CHUNK_RECORDS_MAX)
                    values = [
                        _stamp.pack(int((start + number / given.rate) * 1e9)) + rest
                        for number in range(sent, until)
                    ]
                    await producer.until_room()
                    future = producer.send_many(values)
                    future.add_done_callback(partial(settled, sent, until))
                    sent = until
                if sent >= int((time.monotonic() - start) * given.rate):
                    await asyncio.sleep(TICK_S)
            async with asyncio.timeout(DRAIN_S):
                await producer.flush()
            seconds = time.monotonic() - start - given.warm_up
            found: Answer = {
                "due": due - skipped, "sent": sent - skipped, "failed": failed,
                "rate": given.rate, "seconds": seconds, "latencies_us": taken,
                "records_all": sent - failed,
            }  # fmt: skip
            if given.tail:
                deadline = time.monotonic() + DRAIN_S
                while read() < due and time.monotonic() < deadline:
                    await asyncio.sleep(TICK_S)
        if given.tail:
            found["tail_us"] = read.latencies[skipped:]
    return found


async def read_all(given: Given) -> Answer:
    records = size = 0
    begun = time.perf_counter()
    async with Client(given.url) as client, client.batches(shard_of(given)) as entries:
        async for entry in entries:
            for value in entry.batch.values.each():
                size += len(value)
            records += entry.batch.count
            taken = time.perf_counter() - begun
            if (given.count and records >= given.count) or taken > given.seconds:
                break
    return {"records": records, "bytes": size, "seconds": taken}


async def pause(given: Given) -> Answer:
    """The longest time without an acknowledgement once a line says that the leader is dead."""
    value = os.urandom(given.size)
    loop = asyncio.get_running_loop()
    async with Client(given.url) as client:
        producer = client.producer(shard_of(given))
        await producer.append(value)
        watch = PauseWatch()
        loop.add_reader(sys.stdin.fileno(), watch.killed)
        print('{"begun": true}', flush=True)
        end = time.monotonic() + given.seconds

        async def lane() -> None:
            while True:
                try:
                    await producer.append(value)
                except ClientFailure:
                    await asyncio.sleep(ATTEMPT_PAUSE_S)
                else:
                    watch.acked()

        lanes = [asyncio.create_task(lane()) for _ in range(PAUSE_WINDOW)]
        while time.monotonic() < end and not watch.flows_again():
            await asyncio.sleep(TICK_S)
        for each in lanes:
            each.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)
    if watch.longest_s == 0:
        raise RuntimeError(f"nothing was acknowledged for {given.seconds:.0f} s")
    return {"pause_s": watch.longest_s, "records": watch.count}


class PauseWatch:
    def __init__(self) -> None:
        self.count = 0
        self.last = time.monotonic()
        self.killed_at: float | None = None
        self.longest_s = 0.0
        self.disturbed = 0.0

    def killed(self) -> None:
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        self.killed_at = self.disturbed = time.monotonic()

    def acked(self) -> None:
        now = time.monotonic()
        gap, self.last = now - self.last, now
        self.count += 1
        if self.killed_at is not None:
            self.longest_s = max(self.longest_s, gap)
            if gap >= DISTURBANCE_S:
                self.disturbed = now

    def flows_again(self) -> bool:
        now = time.monotonic()
        return (
            self.killed_at is not None
            and now - self.disturbed >= UNDISTURBED_S
            and now - self.last < DISTURBANCE_S
        )


# --- the reader, and bare frames -----------------------------------------------------------------


class Reader:
    """How far the process that reads has got; when it has ended, what it saw."""

    def __init__(self, process: subprocess.Popen[str] | None) -> None:
        self._process = process
        self.count = 0
        self.latencies: list[int] = []
        if process is not None:
            assert process.stdout is not None
            os.set_blocking(process.stdout.fileno(), False)
            self._rest = b""

    def __call__(self) -> int:
        if self._process is not None and self._process.stdout is not None:
            try:
                self._rest += os.read(self._process.stdout.fileno(), 1 << 20)
            except BlockingIOError:
                return self.count
            *lines, self._rest = self._rest.split(b"\n")
            if lines:
                self.count = int(lines[-1])
        return self.count


@contextmanager
def reader(given: Given) -> Iterator[Reader]:
    """A process that tails the log; it ends when its standard input does."""
    if not given.tail:
        yield Reader(None)
        return
    with ExitStack() as stack:
        command = [sys.executable, "-m", "bench.compare.shardlog_load", given.url, "tail"]
        process = subprocess.Popen(
            [*command, "--log", given.log], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        stack.callback(process.wait)
        stack.callback(process.kill)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        if not process.stdout.readline():
            raise RuntimeError(f"the reader: {process.stderr.read()[-200:]}")
        made = Reader(process)
        yield made
        process.stdin.close()
        made.latencies = json.loads(process.stderr.read())


async def tail(given: Given) -> None:
    """Says every now and then how many it has read, and at its end how old each record was."""
    taken: list[int] = []
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)

    async def follow(client: Client, start: int) -> None:
        told, count, unpack = 0.0, 0, _stamp.unpack_from
        async with client.tail_batches(shard_of(given), start) as entries:
            async for entry in entries:
                now = time.monotonic_ns()
                count += entry.batch.count
                if len(taken) < 200_000:
                    taken.extend(
                        [(now - unpack(value)[0]) // 1000 for value in entry.batch.values.each()]
                    )
                if now >= told + 5e6:
                    told = now
                    print(count, flush=True)

    async with Client(given.url) as client:
        start = await client.end(shard_of(given))
        following = asyncio.create_task(follow(client, start))
        print("begun", flush=True)
        await ended.wait()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    json.dump(taken, sys.stderr)


async def independent_bare(given: Given) -> Answer:
    """The same with bare frames, by the load generator of the yardstick."""
    sys.path.append(str(Path(__file__).parent.parent))
    import limit_load  # type: ignore[import-not-found]
    from node_cluster import opening_of  # type: ignore[import-not-found]

    from shardlog.cli.cluster import Cluster

    found = Cluster(given.url).shard(shard_of(given))
    host, _, port = found["addresses"][found["leader"]].rpartition(":")
    target = limit_load.Target(host, int(port), opening_of(shard_of(given)))
    rate = await limit_load.independent(target, given.seconds, given.connections)
    records = int(rate.records_per_s * given.seconds)
    return {"records": records, "seconds": given.seconds, "records_all": records}


PATTERNS: dict[str, Callable[[Given], Coroutine[Any, Any, Answer | None]]] = {
    "saturated": saturated,
    "independent": independent,
    "independent-bare": independent_bare,
    "lone": lone,
    "offered": offered,
    "read": read_all,
    "pause": pause,
    "tail": tail,
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("url")
    arguments.add_argument("pattern", choices=sorted(PATTERNS))
    arguments.add_argument("--log", default="bench")
    for name in ("shards", "size", "rate", "connections", "count"):
        default = {"shards": 1, "size": 128, "rate": 2000, "connections": 64, "count": 0}[name]
        arguments.add_argument(f"--{name}", type=int, default=default)
    arguments.add_argument("--seconds", type=float, default=2)
    arguments.add_argument("--warm-up", type=float, default=0.5)
    arguments.add_argument("--tail", action="store_true")
    given = arguments.parse_args()
    gc.freeze()
    answer = uvloop.run(PATTERNS[given.pattern](given))
    if answer is not None:
        told = json.dumps(answer | {"client_cpu_s": time.process_time()})
        with open(sys.stdout.fileno(), "w") as out:  # buffered, so that all of it is written
            print(told, file=out)


if __name__ == "__main__":
    main()
