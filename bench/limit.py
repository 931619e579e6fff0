"""The bare yardstick: what three processes, one disk and uvloop give without any protocol.

    python bench/limit.py [DIR] [--seconds 2] [--turns 5] [--json FILE] [--no-parts]

Frames in, write + fdatasync on three files, frames out: see `limit_node.py` for the processes and
`limit_load.py` for the four ways to append.  A node is measured against it in the same run, so what
counts is the ratio; `yardstick` and the patterns are there for that.  `limit_parts.py` compares its
disk and its sockets with tools written in C, so that one knows how bare it is.

Each figure is the median of all turns; in a turn every pattern has its go.  The columns "client",
"leader" and "follower" (each of two) are the cores that these used meanwhile: where they add up to
those of the machine, that is the limit; where they do not, it is the disk, or others had the cores.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import psutil
import uvloop
from limit_load import (
    Latency,
    Rate,
    Target,
    batch_of,
    independent,
    latency_of,
    lone,
    offered,
    saturated,
)
from limit_parts import Part, child, disk_part, line_of, socket_part
from place import place
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

FILE_BYTES = 128 << 20
SYNC_FILE_BYTES = 16 << 20
CONNECTIONS = 64
OFFERED_PER_S = 20_000
LONE_APPENDS = 100
LONE_ROUNDS = 5
"""In each turn, with as many bare syncs after each."""
BATCHES = ((16 << 10, 128), (64 << 10, 32), (256 << 10, 16), (1 << 20, 8))
"""Bytes of records in a batch, and how many are in flight."""
DISK_GROUPS = ((4 << 10, 1), (4 << 10, 2), (1 << 20, 1), (1 << 20, 2))
"""About what a group has when appends are lone records, and when they are batches; and how many
groups the disk is given at a time."""
NODE = str(Path(__file__).with_name("limit_node.py"))

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cores:
    """Processor time for each second, of the processes together and of some of them."""

    client: float
    leader: float
    follower: float

    @property
    def all(self) -> float:
        return self.client + self.leader + 2 * self.follower


@dataclass(frozen=True, slots=True)
class Yardstick:
    target: Target
    leader: psutil.Process
    followers: tuple[psutil.Process, ...]

    async def watched(self, pattern: Awaitable[T]) -> tuple[T, Cores]:
        """What the pattern gives, and what it took."""
        processes = (psutil.Process(), self.leader, *self.followers)
        before, begun = [_cpu_s(each) for each in processes], time.perf_counter()
        result = await pattern
        taken = time.perf_counter() - begun
        used = [(_cpu_s(each) - b) / taken for each, b in zip(processes, before, strict=True)]
        return result, Cores(used[0], used[1], sum(used[2:]) / len(self.followers))


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def yardstick(directory: str, file_bytes: int = FILE_BYTES) -> Iterator[Yardstick]:
    """The three processes, with files in a directory of their own there; gone afterwards."""
    with ExitStack() as stack:
        within = stack.enter_context(tempfile.TemporaryDirectory(dir=directory))

        def start(name: str, *followers: str) -> tuple[psutil.Process, str]:
            file = f"{within}/{name}"
            process = stack.enter_context(
                child(sys.executable, NODE, file, f"{file_bytes}", *followers)
            )
            port = line_of(process)
            return psutil.Process(process.pid), port

        one, one_port = start("follower-1")
        other, other_port = start("follower-2")
        leader, port = start("leader", one_port, other_port)
        yield Yardstick(Target("127.0.0.1", int(port)), leader, (one, other))


class OneSync:
    """A record written and synced, with nothing around it, in blocks that are there."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT)
        self.position = 0
        os.pwrite(self.fd, bytes(SYNC_FILE_BYTES), 0)
        os.fsync(self.fd)

    def seconds(self, times: int) -> list[float]:
        """Of each fdatasync alone."""
        body, _ = batch_of(1)
        taken = []
        for _ in range(times):
            if self.position + len(body) > SYNC_FILE_BYTES:
                self.position = 0
            self.position += os.pwrite(self.fd, body, self.position)
            begun = time.perf_counter()
            os.fdatasync(self.fd)
            taken.append(time.perf_counter() - begun)
        return taken


@dataclass(frozen=True, slots=True)
class Figures:
    load: float
    """Of the machine, before it all began."""
    saturated: dict[int, Rate]
    """By the bytes of a batch."""
    independent: Rate
    lone: Latency
    one_sync: Latency
    offered: Latency
    cores: dict[str, Cores]
    """By pattern; for the saturated one, of the best batch."""

    @property
    def best(self) -> tuple[int, Rate]:
        """The best size of a batch, and what it gave."""
        return max(self.saturated.items(), key=lambda each: each[1].records_per_s)


async def measure(directory: str, seconds: float, turns: int) -> Figures:
    """All patterns, turn by turn."""
    load = os.getloadavg()[0]
    rates: dict[int, list[Rate]] = {size: [] for size, _ in BATCHES}
    alone: list[Rate] = []
    lone_s: list[float] = []
    sync_s: list[float] = []
    latencies: list[Latency] = []
    cores: dict[str, list[Cores]] = {}
    with tempfile.TemporaryDirectory(dir=directory) as within, yardstick(within) as bare:
        sync = OneSync(f"{within}/one-sync")

        async def turn(name: str, pattern: Awaitable[T]) -> T:
            result, used = await bare.watched(pattern)
            cores.setdefault(name, []).append(used)
            return result

        for _ in range(turns):
            for size, window in BATCHES:
                pattern = saturated(bare.target, seconds, size, window)
                rates[size].append(await turn(f"saturated {size}", pattern))
            alone.append(await turn("independent", independent(bare.target, seconds, CONNECTIONS)))
            for _ in range(LONE_ROUNDS):
                lone_s += await turn("lone", lone(bare.target, LONE_APPENDS))
                sync_s += sync.seconds(LONE_APPENDS)
            latencies.append(await turn("offered", offered(bare.target, seconds, OFFERED_PER_S)))
    return Figures(
        load,
        {size: _middle(of, lambda rate: rate.records_per_s) for size, of in rates.items()},
        _middle(alone, lambda rate: rate.records_per_s),
        latency_of(lone_s, sum(lone_s)),
        latency_of(sync_s, sum(sync_s)),
        _middle(latencies, lambda latency: latency.p99_ms),
        {name: _middle(of, lambda used: used.all) for name, of in cores.items()},
    )


def _middle(of: list[T], key: Callable[[T], float]) -> T:
    """The one with the median, or the next below it."""
    return sorted(of, key=key)[(len(of) - 1) // 2]


def parts(directory: str, seconds: int, turns: int) -> list[Part]:
    """Those whose tool is there; says how to get the others."""
    with tempfile.TemporaryDirectory(dir=directory) as within:
        found = [disk_part(within, *groups, seconds, turns) for groups in DISK_GROUPS]
    found.append(uvloop.run(socket_part(seconds, turns)))
    if None in found:
        print("the parts are compared with fio and iperf3: apt-get install fio iperf3")
    return [part for part in found if part is not None]


def show(figures: Figures, compared: list[Part]) -> None:
    console = Console()
    title = f"bare yardstick, {os.cpu_count()} cores, load {figures.load:.1f}"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("pattern", no_wrap=True)
    for heading in ("records/s", "MB/s", "p50 ms", "p99 ms", "client", "leader", "follower"):
        table.add_column(heading, justify="right")

    def row(pattern: str, rate: Rate | None, latency: Latency | None, name: str) -> None:
        rates = (f"{rate.records_per_s:,.0f}", f"{rate.megabytes_per_s:,.0f}") if rate else ("", "")
        times = (f"{latency.p50_ms:.2f}", f"{latency.p99_ms:.2f}") if latency else ("", "")
        used = figures.cores.get(name)
        cores = (
            [f"{each:.2f}" for each in (used.client, used.leader, used.follower)] if used else []
        )
        table.add_row(pattern, *rates, *times, *cores)

    for size, rate in figures.saturated.items():
        row(f"batches, {size >> 10} KiB", rate, None, f"saturated {size}")
    row(f"{CONNECTIONS} connections", figures.independent, None, "independent")
    row("lone append", None, figures.lone, "lone")
    row("one fdatasync", None, figures.one_sync, "")
    row(f"{OFFERED_PER_S:,}/s offered", None, figures.offered, "offered")
    console.print(table)
    times = figures.lone.p50_ms / figures.one_sync.p50_ms
    console.print(f"a lone append takes {times:.1f} times one fdatasync (p50)")
    for part in compared:
        console.print(
            f"{part.name}: {part.ratio:.2f} of {part.tool} ({part.ratio_least:.2f}-"
            f"{part.ratio_most:.2f}; {part.ours_mb_per_s:,.0f} of {part.tools_mb_per_s:,.0f} MB/s)",
            soft_wrap=True,
        )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument(
        "directory", nargs="?", type=place, default=".", help="on the disk to be measured"
    )
    arguments.add_argument("--seconds", type=float, default=2, help="of each pattern in a turn")
    arguments.add_argument("--turns", type=int, default=5)
    arguments.add_argument("--json", type=Path, metavar="FILE")
    arguments.add_argument("--no-parts", action="store_true", help="leave fio and iperf3 out")
    given = arguments.parse_args()
    figures = uvloop.run(measure(given.directory, given.seconds, given.turns))
    compared = [] if given.no_parts else parts(given.directory, 1, given.turns)
    show(figures, compared)
    if given.json is not None:
        found = {**asdict(figures), "parts": [asdict(part) for part in compared]}
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
