"""The storage engine against what the disk does without it.  Ratios within one run.

    python bench/storage.py [DIR] [--quick]

append    64 KiB batches through `Volume`, against pwrite + fdatasync of the same bytes in the same
          groups, on a file whose blocks are there; in turns of 64 MiB, so that both see the same
          disk
shards    the same load spread over 1,000 shards, against one shard; all stand in segments with room
          for what is measured, as they mostly do once segments have their full size
idle      memory and disk of a shard that does nothing
open      a log of 10 GiB (sparse bodies, real slots): time and memory to open it
read      raw ranges, against `cat` of the same files, from page cache, in buffers of one size
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Generator, Iterator, Sequence

from place import place

from shardlog.checksum import seal, seal_body
from shardlog.protocol.effects import Format, Superblock, Sync, WriteEntries, WriteSuperblock
from shardlog.protocol.entry import Entry, Kind, sealed
from shardlog.protocol.history import Span
from shardlog.storage.files import Buffer
from shardlog.storage.handles import Handles
from shardlog.storage.layout import ENTRY_HEADER_BYTES
from shardlog.storage.plan import Plan
from shardlog.storage.real_files import RealFile, RealFiles
from shardlog.storage.segment import GROUP_BYTES_MAX
from shardlog.storage.store import Store
from shardlog.storage.volume import Hosted, Volume

BATCH_BYTES = 64 << 10
BODY = os.urandom(BATCH_BYTES)
BODY_SUM = seal_body(BODY)
GROUP = GROUP_BYTES_MAX // (ENTRY_HEADER_BYTES + BATCH_BYTES)
"""So many batches are one group of the engine's, and so are they in the comparison."""

WARM_UP = 7
"""So many batches fill a shard's first segment; as many again, and some, fit into the second."""


class Writer:
    """One shard that appends batches and waits for them, as a leader does."""

    def __init__(self, volume: Volume, shard: str) -> None:
        self.token = 0
        self.base = 0
        self.parent = 0
        self.durable = 0
        self.done = asyncio.Event()
        self.hosted: Hosted
        self.hosted, _ = volume.open(shard, self._synced, self._failed)

    def _synced(self, token: int) -> None:
        self.durable = token
        self.done.set()

    def _failed(self, failure: Exception) -> None:
        raise failure

    def _sync(self) -> int:
        self.token += 1
        self.hosted.submit(Sync(self.token))
        return self.token

    async def wait(self, token: int) -> None:
        while self.durable < token:
            self.done.clear()
            await self.done.wait()

    async def format(self) -> None:
        history = (Span(1, 0),)
        self.hosted.submit(Format(Superblock(1, 0, 0, (), 0, 0, (), None)))
        self.hosted.submit(WriteSuperblock(Superblock(1, 1, 1, history, 0, 0, (), None)))
        await self.wait(self._sync())

    def append(self) -> int:
        header = sealed(seal, 1, self.base, 1, Kind.DATA, 0, 0, self.base, self.parent, BODY_SUM)
        self.base, self.parent = header.end, header.checksum
        self.hosted.submit(WriteEntries((Entry(header, BODY),), max(self.base - 100, 0)))
        return self._sync()

    async def load(self, batches: int, inflight: int) -> None:
        """So many batches, with a bound on how many are on their way."""
        for _ in range(batches):
            token = self.append()
            if token - self.durable > inflight:
                await self.wait(token - inflight)
        await self.wait(self.token)


class Plain:
    """pwrite + fdatasync of the same bytes in the same groups, in blocks that are there."""

    def __init__(self, path: str, batches: int) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT)
        self.position = 0
        os.posix_fallocate(self.fd, 0, batches * BATCH_BYTES)
        os.fsync(self.fd)

    def load(self, batches: int) -> None:
        for start in range(0, batches, GROUP):
            count = min(GROUP, batches - start)
            os.pwritev(self.fd, [BODY] * count, self.position)
            os.fdatasync(self.fd)
            self.position += count * BATCH_BYTES


async def one_shard(directory: str, batches: int, inflight: int) -> float:
    volume = Volume(RealFiles(), directory, "bench")
    running = asyncio.create_task(volume.run())
    writer = Writer(volume, "one")
    await writer.format()
    await writer.load(2048, inflight)  # into segments of the full size
    begun = time.perf_counter()
    await writer.load(batches, inflight)
    taken = time.perf_counter() - begun
    running.cancel()
    return taken


async def many_shards(directory: str, shards: int, batches: int) -> float:
    volume = Volume(RealFiles(), directory, "bench")
    running = asyncio.create_task(volume.run())
    writers = [Writer(volume, f"shard-{number}") for number in range(shards)]
    await asyncio.gather(*(writer.format() for writer in writers))
    each = max(batches // shards, 1)
    await asyncio.gather(*(writer.load(WARM_UP, 4) for writer in writers))
    begun = time.perf_counter()
    await asyncio.gather(*(writer.load(each, 4) for writer in writers))
    taken = time.perf_counter() - begun
    running.cancel()
    return taken / (each * shards)


def fresh(parent: str) -> Generator[str, None, None]:
    """Empty directories, each gone before the next."""
    while True:
        directory = tempfile.mkdtemp(dir=parent)
        try:
            yield directory
        finally:
            shutil.rmtree(directory)


async def appended(directory: str, batches: int, turns: int) -> tuple[list[float], list[float]]:
    """The seconds of each turn, plain and through the engine."""
    bare = Plain(f"{directory}/plain", batches * (turns + 1))
    volume = Volume(RealFiles(), f"{directory}/volume", "bench")
    running = asyncio.create_task(volume.run())
    writer = Writer(volume, "one")
    await writer.format()
    await writer.load(2048, 4 * GROUP)  # into segments of the full size
    bare.load(batches)
    plain, engine = [], []
    for _ in range(turns):
        begun = time.perf_counter()
        bare.load(batches)
        between = time.perf_counter()
        await writer.load(batches, 4 * GROUP)
        plain.append(between - begun)
        engine.append(time.perf_counter() - between)
    running.cancel()
    return plain, engine


def bench_append(directories: Iterator[str], batches: int, turns: int) -> None:
    plain, engine = asyncio.run(appended(next(directories), batches, turns))
    ratios = [bare / ours for bare, ours in zip(plain, engine, strict=True)]
    rate = batches * BATCH_BYTES / statistics.median(engine) / 1e6
    show("append", statistics.median(ratios), 0.8, f"{rate:,.0f} MB/s", ratios)


def bench_shards(directories: Iterator[str], batches: int, rounds: int, shards: int) -> None:
    ratios = []
    for _ in range(rounds):
        one = asyncio.run(one_shard(next(directories), batches, 4 * GROUP)) / batches
        many = asyncio.run(many_shards(next(directories), shards, batches))
        ratios.append(one / many)
    show(f"{shards} shards", statistics.median(ratios), 0.5, "of one shard's rate", ratios)


async def _idle(directory: str, shards: int) -> float:
    volume = Volume(RealFiles(), directory, "bench")
    running = asyncio.create_task(volume.run())
    writers = [Writer(volume, f"shard-{number}") for number in range(shards)]
    await asyncio.gather(*(writer.format() for writer in writers))
    await asyncio.gather(*(writer.load(1, 1) for writer in writers))
    del writers
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    volume = Volume(RealFiles(), directory, "bench")
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = [Writer(volume, f"shard-{number}") for number in range(shards)]
    taken = (tracemalloc.get_traced_memory()[0] - before) / len(kept)
    tracemalloc.stop()
    volume.close()
    return taken


def bench_idle(directories: Iterator[str], shards: int) -> None:
    directory = next(directories)
    memory = asyncio.run(_idle(directory, shards))
    used = int(subprocess.check_output(["du", "-sk", directory]).split()[0]) / shards
    print(f"  {'idle shard':12} {memory / 1024:8.1f} KiB of memory (at most 64)")
    print(f"  {'':12} {used:8.0f} KiB of disk (at most 1,024)")


class SparseFile(RealFile):
    """Leaves out the bodies of batches, so that a large log takes little room and time."""

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        for buffer in buffers:
            if len(buffer) != BATCH_BYTES:
                super().write(position, [buffer])
            position += len(buffer)

    def allocate(self, size: int) -> None:
        os.ftruncate(self.fileno(), size)

    def sync(self) -> None:
        pass


class SparseFiles(RealFiles):
    def open(self, path: str, *, write: bool = True) -> RealFile:
        return SparseFile(super().open(path, write=write).fileno(), path)

    def create(self, path: str) -> RealFile:
        return SparseFile(super().create(path).fileno(), path)


def make_log(directory: str, gibibytes: int) -> None:
    """A log of 64 KiB batches, with a checkpoint at its end."""
    handles = Handles(SparseFiles())
    store, _ = Store.open(handles, f"{directory}/log", "log", "bench", Plan(zeroed_bytes=0))
    history = (Span(1, 0),)
    store.submit(Format(Superblock(1, 0, 0, (), 0, 0, (), None)))
    store.submit(WriteSuperblock(Superblock(1, 1, 1, history, 0, 0, (), None)))
    base, parent = 0, 0
    while base * BATCH_BYTES < gibibytes << 30:
        header = sealed(seal, 1, base, 1, Kind.DATA, 0, 0, base, parent, BODY_SUM)
        store.submit(WriteEntries((Entry(header, BODY),), base))
        base, parent = header.end, header.checksum
        if base % 64 == 0:
            performed(store)
    performed(store)
    store.submit(WriteSuperblock(Superblock(1, 1, 1, history, base, base, (), None)))
    performed(store)
    handles.close()


def performed(store: Store) -> None:
    while (round_ := store.take()) is not None:
        round_.write()
        round_.sync()
        store.finish(round_)


OPENING = """
import sys
def most_kib():
    # Of this program alone; `getrusage` begins with what the one that started it had.
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
before = most_kib()
import time
from shardlog.storage.files import Buffer
from shardlog.storage.handles import Handles
from shardlog.storage.plan import Plan
from shardlog.storage.real_files import RealFile, RealFiles
from shardlog.storage.store import Store
begun = time.perf_counter()
store, found = Store.open(Handles(RealFiles()), sys.argv[1] + "/log", "log", "bench", Plan())
taken = time.perf_counter() - begun
assert found is not None and store.files.segments.end == int(sys.argv[2])
print(taken, (most_kib() - before) / 1024)
"""


def bench_open(directories: Iterator[str], gibibytes: int) -> None:
    directory = next(directories)
    make_log(directory, gibibytes)
    end = (gibibytes << 30) // BATCH_BYTES
    found = subprocess.check_output([sys.executable, "-c", OPENING, directory, str(end)])
    seconds, mebibytes = map(float, found.split())
    print(f"  {f'open {gibibytes} GiB':12} {seconds:8.3f} s (at most 1)")
    print(f"  {'':12} {mebibytes:8.1f} MiB above the interpreter (at most 50)")


def bench_read(directories: Iterator[str], batches: int, rounds: int) -> None:
    directory = next(directories)
    asyncio.run(one_shard(directory, batches, 64))
    handles = Handles(RealFiles())
    store, _ = Store.open(handles, f"{directory}/one", "one", "bench", Plan())
    ratios = []
    for _ in range(rounds):
        paths = [segment.path for segment in store.files.segments.items]
        size = sum(os.path.getsize(path) for path in paths)
        subprocess.run(["cat", *paths], stdout=subprocess.DEVNULL, check=True)
        begun = time.perf_counter()
        subprocess.run(["cat", *paths], stdout=subprocess.DEVNULL, check=True)
        cat = size / (time.perf_counter() - begun)
        begun = time.perf_counter()
        sent = read_raw(store, handles)
        ratios.append(sent / (time.perf_counter() - begun) / cat)
    show("raw read", statistics.median(ratios), 0.8, "of cat", ratios)


def read_raw(store: Store, handles: Handles) -> int:
    """All raw ranges, into one buffer of 256 KiB.  How many bytes it were."""
    buffer = memoryview(bytearray(256 << 10))
    at, end, total = 0, store.files.segments.end, 0
    while at < end:
        raw = store.raw(at, end, 4 << 20)
        assert raw is not None
        with handles.use(raw.path) as file:
            assert isinstance(file, RealFile)
            done = 0
            while done < raw.length:
                done += os.preadv(file.fileno(), [buffer[: raw.length - done]], raw.position + done)
        total += done
        at = raw.end
    return total


def show(what: str, ratio: float, least: float, words: str, ratios: list[float]) -> None:
    if len(ratios) < 8:
        spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
    else:
        low, _, high = statistics.quantiles(ratios)
        spread = f"half of them {low:.2f}-{high:.2f}"
    print(f"  {what:12} {ratio:8.2f} (at least {least}; {spread}), {words}")


def main() -> None:
    arguments = argparse.ArgumentParser(description="The storage engine, measured.")
    arguments.add_argument("directory", nargs="?", type=place, default=".")
    arguments.add_argument("--quick", action="store_true", help="small sizes, for a first look")
    given = arguments.parse_args()
    quick = given.quick
    print(f"storage engine, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    directories = fresh(given.directory)
    try:
        bench_append(directories, 1024, 5 if quick else 25)
        bench_shards(directories, 2048 if quick else 8192, 1 if quick else 3, 1000)
        bench_idle(directories, 100 if quick else 1000)
        bench_open(directories, 1 if quick else 10)
        bench_read(directories, 2048 if quick else 8192, 3 if quick else 5)
    finally:
        directories.close()


if __name__ == "__main__":
    main()
