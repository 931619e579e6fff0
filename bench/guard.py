"""Does the hot path cost more than it did?  In bytecode instructions, against a stored baseline.

    PYTHONPATH=tests python -m bench.guard [--write] [--runs N] [--cpu]

Three nodes and a client in one process (`guard_cluster.py`) do a few things one at a time; counted
are the instructions that the interpreter executes meanwhile, in all threads (`sys.settrace` tells
of each).  Seconds of a shared machine say little about the code; instructions depend on the code
alone, but for how much comes together from a socket or a disk: the least of many operations is the
one where all did, and is the same each time.  What is done in C, by the kernel or by the disk is
not seen.

The baseline belongs to a version of Python, since each has instructions of its own.  Where there is
none for the one that runs, the guard says so and passes.  `--cpu` shows the alternative, processor
time as a multiple of a loop in plain Python, for comparison; docs/decisions/0095 has both.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import uvloop

from bench.guard_cluster import GuardCluster
from shardlog.client import Client, Range

BASELINE = Path(__file__).with_name("guard.json")
LOSS_MAX = 0.15
OPERATIONS = 100
WARM_UP = 40
RECORDS = 500
RECORD_BYTES = 128
PARTS = 2
"""Rounds of the whole; of each operation the least of their figures counts."""

Operation = Callable[[], Awaitable[object]]


class Instructions:
    """Counts what is executed between `begin` and `end`, in threads that began under it."""

    def __init__(self) -> None:
        self.count = 0
        self._counting = False

    def install(self) -> None:
        threading.settrace(self._called)
        sys.settrace(self._called)

    def remove(self) -> None:
        self._counting = False
        threading.settrace(None)  # type: ignore[arg-type]
        sys.settrace(None)

    def begin(self) -> None:
        self.count = 0
        self._counting = True

    def end(self) -> int:
        self._counting = False
        return self.count

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not self._counting:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._executed

    def _executed(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            self.count += 1
        return self._executed if self._counting else None


def operations_of(client: Client, shard: str) -> dict[str, Operation]:
    """What is guarded, by name."""
    producer = client.producer(shard)
    value = os.urandom(RECORD_BYTES)
    values = [os.urandom(RECORD_BYTES) for _ in range(RECORDS)]
    last = Range(0, 0)

    async def lone() -> None:
        await producer.append(value)

    async def batch() -> None:
        nonlocal last
        (last,) = await producer.append_many(values)

    async def read() -> None:
        async with client.batches(shard, last.base, last.end) as entries:
            async for entry in entries:
                list(entry.records())

    return {
        "append of one record": lone,
        f"append of {RECORDS} records": batch,
        f"read of {RECORDS} records": read,
    }


async def measured(directory: Path, cpu: bool) -> dict[str, float]:
    counter = Instructions()
    if not cpu:
        counter.install()
    cluster = GuardCluster(directory)
    found: dict[str, float] = {}
    try:
        async with cluster.running(), cluster.client() as client:
            for name, operation in operations_of(client, cluster.shard).items():
                for _ in range(WARM_UP):
                    await operation()
                gauge = _cpu_ratio if cpu else _instructions
                found[name] = await gauge(counter, operation, OPERATIONS)
    finally:
        counter.remove()
    return found


async def _instructions(counter: Instructions, operation: Operation, times: int) -> float:
    counts = []
    for _ in range(times):
        counter.begin()
        await operation()
        counts.append(counter.end())
    return min(counts)


async def _cpu_ratio(counter: Instructions, operation: Operation, times: int) -> float:
    """Processor time as a multiple of that of a fixed loop, taken in turns."""
    ratios = []
    for _ in range(times):
        begun = time.process_time()
        for _ in range(10):
            await operation()
        between = time.process_time()
        _loop()
        ratios.append((between - begun) / (time.process_time() - between) / 10)
    return median(ratios)


def _loop() -> int:
    total = 0
    for number in range(50_000):
        total = (total * 31 + number) & 0xFFFF
    return total


def run(cpu: bool) -> dict[str, float]:
    parts = []
    for _ in range(PARTS):
        with tempfile.TemporaryDirectory() as within:
            parts.append(uvloop.run(measured(Path(within), cpu)))
    return {name: min(part[name] for part in parts) for name in parts[0]}


# --- against the baseline ------------------------------------------------------------------------


def losses(found: dict[str, float], baseline: dict[str, float]) -> dict[str, float]:
    """By how much each costs more than it did, as a share; only those beyond what is allowed."""
    more = {name: found[name] / baseline[name] - 1 for name in found if baseline.get(name)}
    return {name: by for name, by in more.items() if by > LOSS_MAX}


def compared(found: dict[str, float], baseline: dict[str, float] | None) -> list[str]:
    lines = []
    for name, count in found.items():
        told = f"{count:10,.0f} instructions  {name}"
        if baseline and baseline.get(name):
            told += f"  ({count / baseline[name] - 1:+.1%} of the baseline)"
        lines.append(told)
    return lines


def main() -> int:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--write", action="store_true", help="what it costs now is right")
    arguments.add_argument("--runs", type=int, default=0, help="so many, to see their spread")
    arguments.add_argument("--cpu", action="store_true", help="processor time, for comparison")
    given = arguments.parse_args()
    if given.runs:
        for _ in range(given.runs):
            print(json.dumps(run(given.cpu)), flush=True)
        return 0
    version = ".".join(platform.python_version_tuple()[:2])
    stored = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    found = run(False)
    print("\n".join(compared(found, stored.get(version))))
    if given.write:
        kept = stored | {version: {name: round(count) for name, count in found.items()}}
        BASELINE.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")
        return 0
    if version not in stored:
        print(f"guard: no baseline for Python {version}: make bench-guard BASELINE=1")
        return 0
    lost = losses(found, stored[version])
    for name, by in lost.items():
        print(f"guard: {name} costs {by:.0%} more than it did (at most {LOSS_MAX:.0%})")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
