"""Why the files look as they do: the layouts that were considered, against each other.

Each group of rows is measured in one run on one disk, a turn of each variant after the other, so
that what else the machine does touches all of them alike.  What counts is the ratio to the first
row of the group; the times depend on the disk.  Beside the median stands the tenth percentile: on a
busy machine a sync that is done waits for a core, and the tenth percentile has waited least.

    copies      a 64 KiB body and the 128 bytes of its slot: in two files, or in one
    blocks      4 KiB written and synced: into a file that grows, into blocks that are reserved,
                into blocks that were written with zeros before
    order       4 KiB and its slot: in one sync; the slot after the entry's sync, alone; the slot in
                the next entry's sync, as it is when appends follow each other
    checksums   CRC32C of 64 KiB and of a slot, and the seal of a header

    python bench/storage_layout.py [--rounds 400] [--directory DIR]

DIR should be on the disk that is meant; the default is the working directory.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles

from place import place

from shardlog.checksum import seal, sum_of

Step = Callable[[int], None]

SLOT = b"s" * 128
SMALL = b"e" * 4096
LARGE = b"e" * 65536
SLOTS_BYTES = 1 << 20


def file_of(path: Path, size: int = 0, zeroed: bool = False) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    if size:
        os.posix_fallocate(fd, 0, size)
    if zeroed:
        piece = bytes(1 << 20)
        for position in range(0, size, len(piece)):
            os.pwrite(fd, piece[: size - position], position)
    os.fsync(fd)
    return fd


def copies(top: Path, rounds: int) -> dict[str, Step]:
    room = rounds * len(LARGE)
    bodies = file_of(top / "bodies", room, zeroed=True)
    headers = file_of(top / "headers", SLOTS_BYTES, zeroed=True)
    both = file_of(top / "both", SLOTS_BYTES + room, zeroed=True)

    def two_files(turn: int) -> None:
        os.pwrite(bodies, LARGE, turn * len(LARGE))
        os.pwrite(headers, SLOT, turn * len(SLOT))
        os.fdatasync(bodies)
        os.fdatasync(headers)

    def one_file(turn: int) -> None:
        os.pwrite(both, LARGE, SLOTS_BYTES + turn * len(LARGE))
        os.pwrite(both, SLOT, turn * len(SLOT))
        os.fdatasync(both)

    return {"two files": two_files, "one file": one_file}


def blocks(top: Path, rounds: int) -> dict[str, Step]:
    room = rounds * len(SMALL)
    files = {
        "growing": file_of(top / "growing"),
        "reserved": file_of(top / "reserved", room),
        "zeroed": file_of(top / "zeroed", room, zeroed=True),
    }

    def into(fd: int) -> Step:
        def write(turn: int) -> None:
            os.pwrite(fd, SMALL, turn * len(SMALL))
            os.fdatasync(fd)

        return write

    return {name: into(fd) for name, fd in files.items()}


def order(top: Path, rounds: int) -> dict[str, Step]:
    room = SLOTS_BYTES + rounds * len(SMALL)
    together, after, riding = (
        file_of(top / name, room, zeroed=True) for name in ("together", "after", "riding")
    )

    def entry(fd: int, turn: int) -> None:
        os.pwrite(fd, SMALL, SLOTS_BYTES + turn * len(SMALL))

    def slot(fd: int, turn: int) -> None:
        os.pwrite(fd, SLOT, turn * len(SLOT))

    def one_sync(turn: int) -> None:
        entry(together, turn)
        slot(together, turn)
        os.fdatasync(together)

    def two_syncs(turn: int) -> None:
        entry(after, turn)
        os.fdatasync(after)
        slot(after, turn)
        os.fdatasync(after)

    def next_sync(turn: int) -> None:
        entry(riding, turn)
        slot(riding, max(turn - 1, 0))
        os.fdatasync(riding)

    return {"one sync": one_sync, "slot after": two_syncs, "slot in the next": next_sync}


def checksums(top: Path, rounds: int) -> dict[str, Step]:
    return {
        "CRC32C of 64 KiB": lambda turn: (sum_of(LARGE), None)[1],
        "CRC32C of a slot": lambda turn: (sum_of(SLOT), None)[1],
        "seal of a header": lambda turn: (seal(3, turn, 1, 0, 7, turn, 9, 11, 13), None)[1],
    }


def measured(steps: dict[str, Step], rounds: int) -> dict[str, tuple[float, float]]:
    """Tenth percentile and median of each, in microseconds; variants take turns."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds):
        for name, step in steps.items():
            start = time.perf_counter_ns()
            step(turn)
            taken[name].append((time.perf_counter_ns() - start) / 1000)
    deciles = {name: quantiles(times, n=10) for name, times in taken.items()}
    return {name: (cut[0], cut[4]) for name, cut in deciles.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Layouts of a log on disk, against each other.")
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--directory", type=place, default=".")
    given = parser.parse_args()
    print(f"{'group':10} {'variant':18} {'p10 µs':>9} {'ratio':>6} {'p50 µs':>9} {'ratio':>6}")
    for group in (copies, blocks, order, checksums):
        with tempfile.TemporaryDirectory(dir=given.directory) as top:
            found = measured(group(Path(top), given.rounds), given.rounds)
        first = next(iter(found.values()))
        for name, taken in found.items():
            cells = [
                f"{time:9.2f} {time / base:6.2f}" for time, base in zip(taken, first, strict=True)
            ]
            print(f"{group.__name__:10} {name:18} {' '.join(cells)}")


if __name__ == "__main__":
    main()
