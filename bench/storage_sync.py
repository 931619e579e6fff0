"""How should many shards that write at once be synced?

A group is one write to each of 1, 10, 100 or 1,000 files, made durable in one of these ways:

    each        fdatasync of one file after the other
    threads N   the same, over N threads
    volume      one syncfs for all of them
    started     start the write-back of all files first (sync_file_range), then fdatasync each

Blocks are `written`, as at the beginning of a segment, or only `reserved`, as behind it: the first
sync of a reserved block moves metadata too.  The ways take turns, group by group, so that all see
the same disk and the same neighbours.  Of each way's groups the 10th percentile counts: what else
the machine does makes a group slower, never faster.

Prints the time per group as a ratio to `each`:

    python bench/storage_sync.py [DIR] [--neighbour]

With `--neighbour` somebody else writes 40 MB/s to the same volume and syncs nothing.  There the
90th percentile counts: a neighbour matters when he is in the way.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from place import place

ROW_SECONDS = 2.0
GROUPS_MIN, GROUPS_MAX = 4, 200
ROOM_BYTES_MAX = 4 << 30
LIBC = ctypes.CDLL(None, use_errno=True)
SYNC_FILE_RANGE_WRITE = 2

Way = Callable[[list[int]], None]


def each(fds: list[int]) -> None:
    for fd in fds:
        os.fdatasync(fd)


def threads(workers: int) -> Way:
    pool = ThreadPoolExecutor(workers)

    def sync(fds: list[int]) -> None:
        list(pool.map(os.fdatasync, fds))

    return sync


def volume(fds: list[int]) -> None:
    if LIBC.syncfs(fds[0]):
        raise OSError(ctypes.get_errno(), "syncfs")


def started(fds: list[int]) -> None:
    for fd in fds:
        LIBC.sync_file_range(fd, ctypes.c_int64(0), ctypes.c_int64(0), SYNC_FILE_RANGE_WRITE)
    each(fds)


WAYS: dict[str, Way] = {
    "each": each,
    "threads 4": threads(4),
    "threads 8": threads(8),
    "threads 32": threads(32),
    "volume": volume,
    "started": started,
}


def made(directory: str, count: int, size: int, written: bool) -> list[int]:
    """Files of this size with their blocks there, durable."""
    fds = []
    for number in range(count):
        fd = os.open(f"{directory}/{number}", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.posix_fallocate(fd, 0, size)
        if written:
            os.pwrite(fd, bytes(size), 0)
        fds.append(fd)
    os.sync()
    return fds


def row(directory: str, count: int, size: int, written: bool, percent: int) -> dict[str, float]:
    """For each way this percentile of its groups, in seconds."""
    groups = min(GROUPS_MAX, ROOM_BYTES_MAX // (count * size * len(WAYS)))
    places = 4 if written else (groups + 1) * len(WAYS)
    fds = made(directory, count, places * size, written)
    body = os.urandom(size)
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    place = 0
    ends = time.perf_counter() + ROW_SECONDS
    for group in range(groups + 1):
        for name in turns(group):
            begun = time.perf_counter()
            for fd in fds:
                os.pwrite(fd, body, place % places * size)
            WAYS[name](fds)
            if group:  # the first one warms up
                times[name].append(time.perf_counter() - begun)
            place += 1
        if group >= GROUPS_MIN and time.perf_counter() > ends:
            break
    for fd in fds:
        os.close(fd)
    return {name: percentile(taken, percent) for name, taken in times.items()}


def turns(group: int) -> list[str]:
    """Each way comes first in its turn: what one leaves behind is not always paid by the same."""
    names = list(WAYS)
    first = group % len(names)
    return names[first:] + names[:first]


def percentile(times: list[float], percent: int) -> float:
    return statistics.quantiles(times, n=100, method="inclusive")[percent - 1]


NEIGHBOUR = """
import os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
while os.getppid() == int(sys.argv[2]):
    for place in range(256):
        os.pwrite(fd, os.urandom(1 << 20), place << 20)
        time.sleep(0.02)
"""


def table(parent: str, counts: Sequence[int], percent: int) -> None:
    names = list(WAYS)[1:]
    print(f"{'files':>5} {'bytes':>6} {'blocks':>9} {'each, ms':>9}", *(f"{n:>10}" for n in names))
    for written in (True, False):
        for count in counts:
            for size in (4096, 65536):
                with tempfile.TemporaryDirectory(dir=parent) as directory:
                    best = row(directory, count, size, written, percent)
                ratios = [f"{best[name] / best['each']:10.2f}" for name in names]
                kind = "written" if written else "reserved"
                print(f"{count:5} {size:6} {kind:>9} {best['each'] * 1000:9.2f}", *ratios)


def main() -> None:
    arguments = argparse.ArgumentParser(description="Ways to sync many files, measured.")
    arguments.add_argument("directory", nargs="?", type=place, default=".")
    arguments.add_argument("--neighbour", action="store_true", help="beside one who writes a lot")
    given = arguments.parse_args()
    print(f"syncing, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    if not given.neighbour:
        table(given.directory, (1, 4, 10, 100, 1000), 10)
        return
    with tempfile.NamedTemporaryFile(dir=given.directory) as file:
        command = [sys.executable, "-c", NEIGHBOUR, file.name, str(os.getpid())]
        with subprocess.Popen(command) as neighbour:
            try:
                table(given.directory, (1, 4, 10, 100), 90)
            finally:
                neighbour.kill()


if __name__ == "__main__":
    main()
