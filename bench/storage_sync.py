"""How should many shards that write at once be synced?

For 1, 10, 100 and 1,000 files, each with one write per group, four ways to make a group durable:

    each        fdatasync of one file after the other
    threads     the same, over eight threads
    volume      one syncfs for all of them
    started     start the write-back of all files first (sync_file_range), then fdatasync each

Prints the time per group as a ratio to `each`, all in one run: python bench/storage_sync.py [DIR]
"""

from __future__ import annotations

import ctypes
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

SIZE = 4 << 20
LIBC = ctypes.CDLL(None, use_errno=True)
SYNC_FILE_RANGE_WRITE = 2


def made(directory: str, count: int) -> list[int]:
    """Files with their blocks written, as segments are."""
    fds = []
    for number in range(count):
        fd = os.open(f"{directory}/{number}", os.O_RDWR | os.O_CREAT)
        size = SIZE if count <= 100 else SIZE // 16
        os.pwrite(fd, bytes(size), 0)
        fds.append(fd)
    os.sync()
    return fds


def each(fds: list[int]) -> None:
    for fd in fds:
        os.fdatasync(fd)


def threads(pool: ThreadPoolExecutor) -> Callable[[list[int]], None]:
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


def measured(fds: list[int], size: int, groups: int, sync: Callable[[list[int]], None]) -> float:
    """The median time of a group: one write to each file, then the sync."""
    body = os.urandom(size)
    room = os.fstat(fds[0]).st_size // size
    times = []
    for group in range(groups):
        begun = time.perf_counter()
        for fd in fds:
            os.pwrite(fd, body, (group % room) * size)
        sync(fds)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def main() -> None:
    parent = sys.argv[1] if len(sys.argv) > 1 else "."
    with tempfile.TemporaryDirectory(dir=parent) as directory, ThreadPoolExecutor(8) as pool:
        ways = {"each": each, "threads": threads(pool), "volume": volume, "started": started}
        print(f"{'files':>5} {'bytes':>6}  {'each, ms':>9}  threads   volume  started")
        for count in (1, 10, 100, 1000):
            fds = made(directory, count)
            for size in (4096, 65536):
                groups = max(400 // count, 7)
                rounds = [
                    {name: measured(fds, size, groups, way) for name, way in ways.items()}
                    for _ in range(3)
                ]
                best = {name: min(one[name] for one in rounds) for name in ways}
                ratios = [f"{best[name] / best['each']:8.2f}" for name in list(ways)[1:]]
                print(f"{count:5} {size:6}  {best['each'] * 1000:9.2f} {' '.join(ratios)}")
            for fd in fds:
                os.close(fd)


if __name__ == "__main__":
    main()
