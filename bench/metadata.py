"""The SQLite metadata store against plain SQLite inserts.  Ratios within one run.

    python bench/metadata.py [DIR] [--quick]

insert    one row of 1 KiB per commit, write-ahead log, every commit synced, no event loop
swap      compare-and-swap of 1 KiB through `SqliteStore`, one at a time; and from 50 tasks
read      `get` through `SqliteStore`
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
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from shardlog.metadata.sqlite import POLL_MS, SqliteStore

VALUE = os.urandom(1024)
TASKS = 50


def inserts(directory: Path, count: int) -> float:
    """Seconds for each insert."""
    with closing(sqlite3.connect(directory / "plain.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, value BLOB)")
        start = time.perf_counter()
        for _ in range(count):
            connection.execute("INSERT INTO t (value) VALUES (?)", (VALUE,))
        return (time.perf_counter() - start) / count


async def swaps(store: SqliteStore, key: str, count: int) -> float:
    record = await store.get(key)
    version = record.version if record else 0
    start = time.perf_counter()
    for _ in range(count):
        swapped = await store.compare_and_swap(key, version, VALUE)
        assert swapped.current
        version = swapped.current.version
    return (time.perf_counter() - start) / count


async def gets(store: SqliteStore, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        await store.get("k0")
    return (time.perf_counter() - start) / count


async def delays(writer: SqliteStore, reader: SqliteStore, count: int) -> list[float]:
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


async def idle(store: SqliteStore, seconds: float) -> float:
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


async def run(directory: Path, scale: int) -> None:
    store = await SqliteStore.open(directory / "metadata.db")
    other = await SqliteStore.open(directory / "metadata.db")
    plain, single, many = [], [], []
    # In turns, so that all see the same disk.
    for _ in range(5):
        plain.append(inserts(directory, 20 * scale))
        single.append(await swaps(store, "k0", 20 * scale))
        start = time.perf_counter()
        await asyncio.gather(*(swaps(store, f"k{n}", scale) for n in range(TASKS)))
        many.append((time.perf_counter() - start) / (TASKS * scale))
    insert_s = statistics.median(plain)
    print(f"insert    {1 / insert_s:8,.0f}/s   1.00")
    for name, each_s in (
        ("swap", statistics.median(single)),
        (f"swap x{TASKS}", statistics.median(many)),
        ("read", await gets(store, 50 * scale)),
    ):
        print(f"{name:9} {1 / each_s:8,.0f}/s   {insert_s / each_s:.2f} of plain inserts")
    for name, reader in (("same", store), ("other", other)):
        told = sorted(await delays(store, reader, 5 * scale))
        middle, late = told[len(told) // 2], told[len(told) * 99 // 100]
        print(
            f"delay at the {name} handle: p50 {middle * 1000:.2f} ms, p99 {late * 1000:.2f} ms;"
            f" {middle / insert_s:.2f} and {late / insert_s:.2f} plain inserts,"
            f" {middle * 1000 / POLL_MS:.2f} and {late * 1000 / POLL_MS:.2f} of poll_ms"
        )
    print(f"idle      {await idle(store, scale / 10):.2%} of a core while a watch waits")
    await other.close()
    await store.close()


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
    arguments = parser.parse_args()
    with place(arguments.dir) as directory:
        asyncio.run(run(directory, 10 if arguments.quick else 50))
