"""What a well-behaved client has left beside attacks, and how large nodes grow.

    python bench/attacks.py [DIR] [--seconds 6] [--turns 2] [--only WORD] [--markdown]

Three nodes, a coordinator and a client that appends without pause, all on 127.0.0.1 and the same
cores.  In each turn the client is measured alone and then beside each attack, which runs in a
process of its own without the cluster's key (`attack_kinds.py`).  A ratio is the median of the
turns, of throughput beside the attack to that alone in the same turn.  In the end all that was
acknowledged is read back: `lost` is what is missing or differs.  A node's memory is what it has in
RAM at most during the attack.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import uvloop
from attack_kinds import ATTACKS, Aim
from bench_key import KEY, key_file
from place import place

from shardlog.client import Client
from shardlog.client.failures import ClientFailure, SessionEvicted
from shardlog.coordinator.calls import NodeControl
from shardlog.coordinator.host import CoordinatorHost
from shardlog.local.cluster_file import is_free
from shardlog.metadata.memory import Memory
from shardlog.protocol.coordination import CreateShard
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Status
from shardlog.transport.batch import RECORDS_MAX
from shardlog.transport.control import ControlClient, ControlLimits

SHARD = "orders"
NAMES = ("a", "b", "c")
PLANES = ("data", "control", "http", "public")
PORTS = range(20_000, 25_000)
COMMAND = (sys.executable, "-m", "shardlog_node.main", "--plain", "--log-level", "error")
RECORD_BYTES = 128
BATCH = 100
IN_FLIGHT = 16
DEADLINE_MS = 120_000
LOOK_S = 0.05
REST_S = 2.0


class Cluster:
    """Node processes, and the coordinator here."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._nodes: dict[str, tuple[subprocess.Popen[str], dict[str, str]]] = {}
        self._host: CoordinatorHost

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        client = ControlClient(ControlLimits(), None, KEY)
        try:
            for name in NAMES:
                self._nodes[name] = self._started(name)
            control = NodeControl(
                client, lambda name: self.addresses(name)["control"],
                lambda name: self.addresses(name)["data"],
            )  # fmt: skip
            store = Memory().handle()
            self._host = CoordinatorHost("bench", store, control, _now_ms)
            coordinating = asyncio.create_task(self._host.run())
            await self._host.command(SHARD, CreateShard(NAMES, QuorumPolicy()))
            await self.leader()
            yield
            coordinating.cancel()
            await asyncio.wait([coordinating])
        finally:
            for process, _ in self._nodes.values():
                process.kill()
                process.wait()
            await client.close()

    def _started(self, name: str) -> tuple[subprocess.Popen[str], dict[str, str]]:
        ports = [f"--{plane}-port={_free_port()}" for plane in PLANES]
        directory = str(self._directory / name)
        key = key_file(self._directory)
        process = subprocess.Popen(
            (*COMMAND, "--name", name, "--directory", directory, "--cluster-key-file", key, *ports),
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        return process, json.loads(process.stdout.readline())

    def addresses(self, name: str) -> dict[str, str]:
        return self._nodes[name][1]

    async def leader(self) -> str:
        while True:
            shard = self._host.shards[SHARD]
            if shard.status is Status.STEADY and shard.leader is not None:
                return shard.leader.node
            await asyncio.sleep(LOOK_S)

    async def aim(self) -> Aim:
        node = await self.leader()
        planes = {plane: self.addresses(node)[plane] for plane in PLANES}
        return Aim(shard=SHARD, node=node, others=tuple({*NAMES} - {node}), **planes)

    def rss_mib(self) -> dict[str, float]:
        return {
            name: psutil.Process(process.pid).memory_info().rss / (1 << 20)
            for name, (process, _) in self._nodes.items()
        }

    def client(self) -> Client:
        return Client("shardlog://" + ",".join(self.addresses(name)["data"] for name in NAMES))


@dataclass(slots=True)
class Load:
    """Appends without pause; `acknowledged` has the offset of each batch and its number."""

    cluster: Cluster
    acknowledged: dict[int, int] = field(default_factory=dict)
    unknown: int = 0
    _number: int = 0

    async def run(self) -> None:
        async with self.cluster.client() as client, asyncio.TaskGroup() as group:
            producer = client.producer(SHARD, deadline_ms=DEADLINE_MS)
            room = asyncio.Semaphore(IN_FLIGHT)

            async def append(number: int) -> None:
                try:
                    offsets = await producer.append_many([_record(number)] * BATCH)
                    self.acknowledged[number] = offsets[0].base
                except (SessionEvicted, ClientFailure):
                    self.unknown += 1
                finally:
                    room.release()

            while True:
                await room.acquire()
                self._number += 1
                group.create_task(append(self._number))

    async def lost(self) -> int:
        """Acknowledged records that do not stand where they were said to."""
        numbers = {offset: number for number, offset in self.acknowledged.items()}
        found, number, end = 0, 0, 0
        async with self.cluster.client() as client:
            async for entry in client.batches(SHARD, 0, deadline_ms=DEADLINE_MS):
                if entry.batch.count == RECORDS_MAX:
                    continue  # an attacker's
                for record in entry.records():
                    if record.offset in numbers:
                        number, end = numbers[record.offset], record.offset + BATCH
                    if record.offset < end:
                        found += record.value == _record(number)
        return len(numbers) * BATCH - found


def _record(number: int) -> bytes:
    return str(number).encode().ljust(RECORD_BYTES, b".")


@dataclass(slots=True)
class Row:
    ratios: list[float] = field(default_factory=list)
    most_mib: dict[str, float] = field(default_factory=lambda: dict.fromkeys(NAMES, 0.0))


async def measured(cluster: Cluster, load: Load, row: Row, seconds: float) -> float:
    """Batches acknowledged a second."""
    before, began = len(load.acknowledged), time.perf_counter()
    while time.perf_counter() - began < seconds:
        for name, mib in cluster.rss_mib().items():
            row.most_mib[name] = max(row.most_mib[name], mib)
        await asyncio.sleep(LOOK_S)
    return (len(load.acknowledged) - before) / (time.perf_counter() - began)


async def beside(cluster: Cluster, load: Load, name: str, row: Row, seconds: float) -> float:
    aim = json.dumps(_as_dict(await cluster.aim()))
    attack = subprocess.Popen(
        (sys.executable, __file__, "--attack", name, "--aim", aim, "--seconds", str(seconds + 60)),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert attack.stdout is not None
    try:
        assert await asyncio.to_thread(attack.stdout.readline), f"{name} has not begun"
        return await measured(cluster, load, row, seconds)
    finally:
        attack.kill()
        attack.wait()
        attack.stdout.close()


async def compared(directory: Path, seconds: float, turns: int, only: str, markdown: bool) -> None:
    names = [name for name in ATTACKS if only in name]
    rows = {name: Row() for name in names}
    alone, rates = Row(), list[float]()
    cluster = Cluster(directory)
    async with cluster.running():
        load = Load(cluster)
        loading = asyncio.create_task(load.run())
        await asyncio.sleep(REST_S)
        for _ in range(turns):
            for name in names:
                rate = await measured(cluster, load, alone, seconds / 2)
                found = await beside(cluster, load, name, rows[name], seconds)
                await asyncio.sleep(REST_S)
                rate = (rate + await measured(cluster, load, alone, seconds / 2)) / 2
                rates.append(rate)
                rows[name].ratios.append(found / rate)
                print(f"  {name}: {found:.0f} of {rate:.0f}", file=sys.stderr, flush=True)
        loading.cancel()
        await asyncio.wait([loading])
        lost = await load.lost()
    table = [("attack", "throughput", "most MiB of a, b, c")]
    table.append(("none", "1", _mib(alone)))
    table += [(name, f"{median(row.ratios):.2f}", _mib(row)) for name, row in rows.items()]
    show(table, markdown)
    print(f"\nalone {median(rates) * BATCH:,.0f} records/s of {RECORD_BYTES} B; "
          f"{len(load.acknowledged) * BATCH:,} records acknowledged, {lost} lost, "
          f"{load.unknown * BATCH} given up with their fate told as unknown")  # fmt: skip


def _mib(row: Row) -> str:
    return ", ".join(f"{mib:.0f}" for mib in row.most_mib.values())


def show(table: list[tuple[str, ...]], markdown: bool) -> None:
    for at, row in enumerate(table):
        if markdown:
            print(f"| {' | '.join(row)} |")
            if not at:
                print("|" + "---|" * len(row))
        else:
            print(f"{row[0]:28} {row[1]:>10}  {row[2]}")


def attack(name: str, aim: dict[str, Any], seconds: float) -> None:
    attackers = ATTACKS[name](Aim(**{**aim, "others": tuple(aim["others"])}))
    ends = begun = 0.0
    while not begun or time.monotonic() < ends:
        for attacker in attackers:
            attacker.again()
        if not begun:
            begun = time.monotonic()
            ends = begun + seconds
            print("begun", flush=True)
        time.sleep(0.01)


def _as_dict(aim: Aim) -> dict[str, Any]:
    return {name: getattr(aim, name) for name in Aim.__slots__}


def _free_port() -> int:
    return next(
        port
        for port in random.sample(PORTS, len(PORTS))
        if is_free(f"127.0.0.1:{port}")
    )  # fmt: skip


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", nargs="?", type=place, default=".", help="on the disk to use")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--only", default="", help="attacks with this in their name")
    parser.add_argument("--markdown", action="store_true", help="a table for documents")
    parser.add_argument("--attack", choices=ATTACKS, help=argparse.SUPPRESS)
    parser.add_argument("--aim", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.attack:
        attack(given.attack, given.aim, given.seconds)
        return
    with tempfile.TemporaryDirectory(dir=given.directory) as within:
        uvloop.run(compared(Path(within), given.seconds, given.turns, given.only, given.markdown))


if __name__ == "__main__":
    main()
