"""The metadata stores against what they stand on, and against each other.  Ratios within one run.

    python bench/metadata.py [DIR] [--quick] [--stores memory,sqlite,etcd,etcd3]

etcd is one member, etcd3 three of them on this machine; both sync, in DIR as SQLite does, and need
an etcd as the tests do.  What a line is compared with:

insert    SQLite: one row of 1 KiB per commit, write-ahead log, every commit synced, no event loop
put       etcd: one put of 1 KiB after the other on a bare gRPC channel, no event loop

swap      compare-and-swap of 1 KiB through the store, one at a time; and from 50 tasks
read      `get` through the store
list      1,000 records of 1 KiB
delay     from the answer of a write to the news of it, at the same handle and at another one
idle      processor time of a watch that waits
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import grpc

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from etcd.cluster import EtcdCluster

from shardlog.metadata.etcd.store import EtcdStore
from shardlog.metadata.generated import etcd_pb2 as pb
from shardlog.metadata.memory import Memory
from shardlog.metadata.sqlite import POLL_MS, SqliteStore
from shardlog.metadata.store import MetadataStore

VALUE = os.urandom(1024)
TASKS = 50
RECORDS = 1000
Bare = Callable[[int], float]
"""Does so many bare writes; seconds for each."""
Open = Callable[[], Awaitable[MetadataStore]]


@asynccontextmanager
async def memory(directory: Path) -> AsyncIterator[tuple[str, Bare | None, Open]]:
    kept = Memory()

    async def opened() -> MetadataStore:
        return kept.handle()

    yield "", None, opened


@asynccontextmanager
async def sqlite(directory: Path) -> AsyncIterator[tuple[str, Bare | None, Open]]:
    def insert(count: int) -> float:
        with closing(sqlite3.connect(directory / "plain.db", isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, value BLOB)")
            start = time.perf_counter()
            for _ in range(count):
                connection.execute("INSERT INTO t (value) VALUES (?)", (VALUE,))
            return (time.perf_counter() - start) / count

    async def opened() -> MetadataStore:
        return await SqliteStore.open(directory / "metadata.db")

    yield "insert", insert, opened


def etcd(members: int) -> Callable[[Path], object]:
    @asynccontextmanager
    async def made(directory: Path) -> AsyncIterator[tuple[str, Bare | None, Open]]:
        with EtcdCluster(directory / f"etcd{members}", members, fsync=True) as cluster:

            def put(count: int) -> float:
                with grpc.insecure_channel(cluster.endpoints[0]) as channel:
                    call = channel.unary_unary(
                        "/etcdserverpb.KV/Put", pb.PutRequest.SerializeToString
                    )
                    call(pb.PutRequest(key=b"/plain", value=VALUE))
                    start = time.perf_counter()
                    for _ in range(count):
                        call(pb.PutRequest(key=b"/plain", value=VALUE))
                    return (time.perf_counter() - start) / count

            async def opened() -> MetadataStore:
                return await EtcdStore.open(cluster.settings())

            yield "put", put, opened

    return made


STORES = {"memory": memory, "sqlite": sqlite, "etcd": etcd(1), "etcd3": etcd(3)}


async def swaps(store: MetadataStore, key: str, count: int) -> float:
    record = await store.get(key)
    version = record.version if record else 0
    start = time.perf_counter()
    for _ in range(count):
        swapped = await store.compare_and_swap(key, version, VALUE)
        assert swapped.current
        version = swapped.current.version
    return (time.perf_counter() - start) / count


async def gets(store: MetadataStore, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        await store.get("k0")
    return (time.perf_counter() - start) / count


async def delays(writer: MetadataStore, reader: MetadataStore, count: int) -> list[float]:
    told: list[float] = []
    listing = await reader.list("")
    async with reader.watch("", listing.next_revision) as watch:
        for number in range(count):
            waiting = asyncio.create_task(anext_time(watch.__anext__()))
            # Not in step with the poller.
            await asyncio.sleep((number * 7 % POLL_MS) / 1000)
            record = await writer.get("k0")
            assert record
            await writer.compare_and_swap("k0", record.version, VALUE)
            answered = time.perf_counter()
            told.append(max(0.0, await waiting - answered))
    return told


async def anext_time(news: object) -> float:
    await news  # type: ignore[misc]
    return time.perf_counter()


async def idle(store: MetadataStore, seconds: float) -> float:
    """Share of one core."""
    listing = await store.list("")
    async with store.watch("", listing.next_revision) as watch:
        waiting = asyncio.create_task(anext_time(watch.__anext__()))
        start = time.process_time()
        await asyncio.sleep(seconds)
        used = time.process_time() - start
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    return used / seconds


async def lists(store: MetadataStore) -> float:
    """Seconds for one listing of `RECORDS`."""
    for begin in range(0, RECORDS, TASKS):
        keys = [f"s/{number:04}" for number in range(begin, begin + TASKS)]
        await asyncio.gather(*(store.compare_and_swap(key, 0, VALUE) for key in keys))
    start = time.perf_counter()
    for _ in range(5):
        assert len((await store.list("s/")).records) == RECORDS
    return (time.perf_counter() - start) / 5


async def run(name: str, directory: Path, scale: int) -> dict[str, float]:
    """Prints its lines; seconds of each kind of call."""
    async with STORES[name](directory) as (yardstick, bare, opened):  # type: ignore[operator]
        store, other = await opened(), await opened()
        plain, single, many = [], [], []
        # In turns, so that all see the same disk.
        for _ in range(5):
            if bare:
                plain.append(await asyncio.to_thread(bare, 20 * scale))
            single.append(await swaps(store, "k0", 20 * scale))
            start = time.perf_counter()
            await asyncio.gather(*(swaps(store, f"k{n}", scale) for n in range(TASKS)))
            many.append((time.perf_counter() - start) / (TASKS * scale))
        bare_s = statistics.median(plain) if plain else 0.0
        times = {
            "swap": statistics.median(single),
            f"swap x{TASKS}": statistics.median(many),
            "read": await gets(store, 50 * scale),
            "list": await lists(store),
        }
        print(name)
        if bare:
            print(f"  {yardstick:9} {1 / bare_s:9,.0f}/s   1.00")
        for kind, each_s in times.items():
            against = f"   {bare_s / each_s:.2f} of a plain {yardstick}" if bare else ""
            print(f"  {kind:9} {1 / each_s:9,.0f}/s{against}")
        for where, reader in (("same", store), ("other", other)):
            told = sorted(await delays(store, reader, 5 * scale))
            middle, late = told[len(told) // 2], told[len(told) * 99 // 100]
            print(
                f"  delay at the {where} handle: p50 {middle * 1000:.2f} ms, p99"
                f" {late * 1000:.2f} ms; {middle / times['swap']:.2f} and"
                f" {late / times['swap']:.2f} swaps"
            )
        print(f"  idle      {await idle(store, scale / 10):.2%} of a core while a watch waits")
        await other.close()
        await store.close()
        return times


async def compare(names: list[str], directory: Path, scale: int) -> None:
    measured = {name: await run(name, directory, scale) for name in names}
    if "sqlite" in measured:
        for name, times in measured.items():
            ratios = (
                f"{kind} {measured['sqlite'][kind] / each_s:.2f}" for kind, each_s in times.items()
            )
            print(f"{name} against sqlite: {', '.join(ratios)}")


@contextmanager
def place(parent: str | None) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="shardlog-bench-", dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dir", nargs="?")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--stores", default=",".join(STORES))
    arguments = parser.parse_args()
    with place(arguments.dir) as directory:
        names = arguments.stores.split(",")
        asyncio.run(compare(names, directory, 10 if arguments.quick else 50))
