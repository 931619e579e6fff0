"""A process that is killed while it writes: what it had acknowledged is there."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from shardlog.storage.real_files import RealFiles
from storage.processes import ENVIRONMENT
from storage.states import chain
from storage.volumes import Client, made

NAMES = ("a", "b", "c")
ROUNDS = 15

WRITER = """
import asyncio, os, sys
from shardlog.storage.real_files import RealFiles
from storage.volumes import Client, made, running

async def shard(volume, name):
    tell = lambda end: os.write(1, f"{name} {end}\\n".encode())
    client = Client(volume, name, tell)
    if client.recovered is None:
        await client.format()
    sizes = (10, 3000, 0, 700)
    while True:
        for size in sizes:
            client.append(size=size)
        if client.token > 40:
            await client.durable(client.token - 40)
        else:
            await asyncio.sleep(0)

async def main():
    async with running(made(RealFiles(), sys.argv[1])) as volume:
        await asyncio.gather(*(shard(volume, name) for name in "abc"))

asyncio.run(main())
"""


def killed(directory: Path, acknowledgements: int) -> dict[str, int]:
    """The highest end of each shard that was acknowledged before the kill, at a random moment."""
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory)], stdout=subprocess.PIPE, env=ENVIRONMENT
    )
    ends: dict[str, int] = {}
    with child:
        assert child.stdout is not None
        for number, line in enumerate(child.stdout):
            if number == acknowledgements:
                os.kill(child.pid, signal.SIGKILL)
            name, end = line.split()
            ends[name.decode()] = int(end)
    assert child.returncode == -signal.SIGKILL
    return ends


def check(directory: Path, acknowledged: dict[str, int]) -> None:
    """Every entry that was acknowledged is there and intact, and the chain is whole."""
    volume = made(RealFiles(), directory)
    for name in NAMES:
        client = Client(volume, name)
        if client.recovered is None:
            assert name not in acknowledged
            continue
        found = client.found()
        assert client.base >= acknowledged.get(name, 0)
        for entry in found:
            assert entry is not None
            header = entry.header
            same = chain(1, header.base, header.parent, sizes=(len(entry.body),))
            assert same == [entry]
    volume.close()


def test_M2_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    acknowledged: dict[str, int] = {}
    draw = random.Random()
    moments = [0, 1, 3, *(draw.randrange(400) for _ in range(ROUNDS - 3))]
    for moment in moments:
        before = dict(acknowledged)
        acknowledged |= killed(tmp_path, moment)
        assert all(acknowledged[name] >= end for name, end in before.items()), moments
        check(tmp_path, acknowledged)
    assert set(acknowledged) == set(NAMES)
    assert min(acknowledged.values()) > 0
