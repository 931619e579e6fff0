"""The yardstick's two parts alone, against tools written in C.

disk    three processes at once, each writing and syncing groups as a node of the yardstick does,
        against three jobs of fio that write the same blocks with fdatasync after each; with the
        next group waiting, which is what a follower's disk has under load, or handed over by the
        loop once one is synced, which is how the leader gathers larger ones
socket  APPEND frames of 64 KiB from one process to another, which answers them, against one
        stream of iperf3 in writes of 64 KiB

Both take turns with their tool.  A part that is far below its tool would make the yardstick short,
and whatever is measured by it tall.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median

import uvloop
from limit_load import RECORD_BYTES, Target, saturated
from limit_node import Disk, Link

from shardlog.transport.frames import FIXED, Buffer, Frame, FrameType, encode_appended

NODES = 3
FILE_BYTES = 64 << 20
SOCKET_BLOCK_BYTES = 64 << 10
SOCKET_WINDOW = 8
END_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Part:
    """Medians of all turns; the ratio is the median of each turn's, not one of the medians'."""

    name: str
    tool: str
    ours_mb_per_s: float
    tools_mb_per_s: float
    ratio: float
    ratio_least: float
    ratio_most: float


def part_of(name: str, tool: str, ours: list[float], tools: list[float]) -> Part:
    ratios = [each / other for each, other in zip(ours, tools, strict=True)]
    return Part(name, tool, median(ours), median(tools), median(ratios), min(ratios), max(ratios))


@contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process with pipes, which ends when its standard input does."""
    process = subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise RuntimeError(f"{process.args!r} ended before it said anything")
    return line


def tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")


# --- disk ----------------------------------------------------------------------------------------


def disk_part(
    directory: str, block_bytes: int, ahead: int, seconds: int, turns: int
) -> Part | None:
    """None where fio is missing."""
    if shutil.which("fio") is None:
        return None
    ours, tools = [], []
    with ExitStack() as stack:
        numbers = (f"{block_bytes}", f"{ahead}")
        nodes = [
            stack.enter_context(
                child(sys.executable, __file__, "disk", f"{directory}/{n}", *numbers)
            )
            for n in range(NODES)
        ]
        for node in nodes:
            line_of(node)
        _fio(directory, block_bytes, 1)  # lays its files out
        for _ in range(turns):
            for node in nodes:
                tell(node, f"{seconds}")
            ours.append(sum(float(line_of(node)) for node in nodes) / 1e6)
            tools.append(_fio(directory, block_bytes, seconds) / 1e6)
    way = "one after the other" if ahead == 1 else "the next waiting"
    return part_of(f"disk, {block_bytes >> 10} KiB, {way}", "fio", ours, tools)


def _fio(directory: str, block_bytes: int, seconds: int) -> float:
    """Bytes each second, of all jobs together."""
    arguments = {
        "name": "tool",
        "directory": directory,
        "numjobs": NODES,
        "rw": "write",
        "bs": block_bytes,
        "size": FILE_BYTES,
        "overwrite": 1,
        "ioengine": "psync",
        "fdatasync": 1,
        "invalidate": 0,  # what was written before stays in page cache, as ours does
        "scramble_buffers": 0,
        "runtime": seconds,
        "output-format": "json",
    }
    found = subprocess.check_output(
        [
            "fio",
            "--time_based",
            "--group_reporting",
            *(f"--{name}={value}" for name, value in arguments.items()),
        ]
    )
    rate: float = json.loads(found)["jobs"][0]["write"]["bw_bytes"]
    return rate


async def write_groups(path: str, block_bytes: int, ahead: int) -> None:
    """For each line, which is a number of seconds, says how many bytes a second it wrote."""
    loop = asyncio.get_running_loop()
    block = os.urandom(block_bytes)
    finished = asyncio.Event()
    until = 0.0
    handed = done = 0

    def hand_over() -> None:
        nonlocal handed
        if disk.queue.empty():  # else the disk would make one group of two
            handed += 1
            disk.submit(([block], handed))
        if handed < done + ahead:
            loop.call_soon(hand_over)

    def synced(groups: int) -> None:
        nonlocal done
        done = groups
        if time.perf_counter() < until:
            hand_over()
        elif done == handed:
            finished.set()

    disk = Disk(path, FILE_BYTES, synced)
    print("ready", flush=True)
    for line in sys.stdin:  # nothing else waits for the loop meanwhile
        finished.clear()
        before, begun = done, time.perf_counter()
        until = begun + float(line)
        hand_over()
        await finished.wait()
        print((done - before) * block_bytes / (time.perf_counter() - begun), flush=True)


# --- socket --------------------------------------------------------------------------------------


async def socket_part(seconds: int, turns: int) -> Part | None:
    """None where iperf3 is missing."""
    if shutil.which("iperf3") is None:
        return None
    ours, tools = [], []
    with child(sys.executable, __file__, "sink") as sink:
        target = Target("127.0.0.1", int(line_of(sink)))
        for _ in range(turns):
            rate = await saturated(target, seconds, SOCKET_BLOCK_BYTES, SOCKET_WINDOW)
            ours.append(rate.records_per_s * RECORD_BYTES / 1e6)
            tools.append(_iperf(seconds) / 1e6)
    return part_of("socket, 64 KiB", "iperf3", ours, tools)


def _iperf(seconds: int) -> float:
    """Bytes each second."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = f"{free.getsockname()[1]}"
    server = ["iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", port, "--forceflush"]
    with child(*server) as serving:
        while "listening" not in line_of(serving):
            pass
        found = subprocess.check_output(
            f"iperf3 -c 127.0.0.1 -p {port} -J -t {seconds} -l {SOCKET_BLOCK_BYTES}".split()
        )
    bits: float = json.loads(found)["end"]["sum_received"]["bits_per_second"]
    return bits / 8


async def answer_at_once() -> None:
    """Says its port; answers every append without keeping it."""
    unpack = FIXED[FrameType.APPEND].unpack_from

    def received(link: Link, frames: list[Frame]) -> None:
        answers: list[Buffer] = []
        for frame in frames:
            session, request, _, _, _ = unpack(frame.payload)
            answers += encode_appended(1, session, request, 0)
        link.transport.writelines(answers)

    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Link(received), "127.0.0.1", 0)
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    print(server.sockets[0].getsockname()[1], flush=True)
    await ended.wait()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["disk", path, block_bytes, ahead]:
            uvloop.run(write_groups(path, int(block_bytes), int(ahead)))
        case ["sink"]:
            uvloop.run(answer_at_once())
        case _:
            sys.exit("run bench/limit.py, which starts this")
