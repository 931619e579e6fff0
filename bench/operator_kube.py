"""One operator with many Shards: how fast it makes them, what it needs, and what it does at rest.

    python bench/operator_kube.py [--shards 1000] [--replicas 3] [--nodes 5] [--json FILE]

The operator is a process of its own, over a real etcd.  Nodes are replica machines in another
process, each behind a gRPC server of its own, with disks in memory (`operator_scale_nodes`).  The
API server is the one of the operator's tests: it answers over HTTP, keeps objects in memory, and
counts what is written to it.

create     all Shards at once, until each is Ready
idle       nothing happens: writes to the API server and to etcd, processor time
appended   some shards are appended to once a second: writes of positions to their status
kill       the operator is killed and another started: until it has looked at all of them

Processor seconds, counts and memory do not depend on what else the machine does; times do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from etcd.cluster import EtcdCluster  # noqa: E402
from kube_operator.emulator import Api  # noqa: E402
from kube_operator.installation import machine_body, pod_body, shard_body  # noqa: E402

Figures = dict[str, Any]
REPLICAS = 3
SETTLE_S = 30.0
"""After all are Ready, until the last positions have been written."""
POSITIONS_S = 30.0
LOOK_S = 0.5


class Operator:
    def __init__(self, process: Process, http: str) -> None:
        self.process = process
        self.http = http
        self.watched = psutil.Process(process.pid)

    def cpu_s(self) -> float:
        times = self.watched.cpu_times()
        return float(times.user + times.system)

    def rss_max_mib(self) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(lines.partition("VmHWM:")[2].split()[0]) / 1024

    async def reconciles(self) -> int:
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"http://{self.http}/metrics") as answer,
        ):
            found = re.search(
                r"^shardlog_operator_reconciles_total (\S+)", await answer.text(), re.MULTILINE
            )
        return int(float(found.group(1))) if found else 0


@asynccontextmanager
async def running(script: str, *arguments: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(HERE / script), *arguments, stdin=PIPE, stdout=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def said(process: Process) -> Figures:
    assert process.stdout
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError("a process ended")
    found: Figures = json.loads(line)
    return found


class Bench:
    def __init__(
        self, api: Api, etcd: EtcdCluster, machines: Process, shards: int, replicas: int
    ) -> None:
        self.api = api
        self.etcd = etcd
        self.machines = machines
        self.replicas = replicas
        self.names = [f"shard-{number:04}" for number in range(shards)]

    def ready(self) -> int:
        return sum(_is_ready(self.api.objects["shards", name]) for name in self.names)

    async def until_ready(self) -> None:
        while (ready := self.ready()) < len(self.names):
            print(f"\r{ready} of {len(self.names)}", end="", file=sys.stderr, flush=True)
            await asyncio.sleep(LOOK_S)
        print("\r", end="", file=sys.stderr)

    async def create(self, operator: Operator) -> Figures:
        async with self.measured(operator) as figures:
            for name in self.names:
                await self.api.create("shards", shard_body(name, replicas=self.replicas))
            await self.until_ready()
        return figures

    async def idle(self, operator: Operator, seconds: float) -> Figures:
        async with self.measured(operator) as figures:
            await asyncio.sleep(seconds)
        return figures

    async def appended(self, operator: Operator, shards: int, seconds: float) -> Figures:
        """Once a second to each of the first so many."""
        some, rounds = self.names[:shards], 0
        async with self.measured(operator) as figures:
            ends_s = time.monotonic() + seconds
            while time.monotonic() < ends_s:
                assert self.machines.stdin
                self.machines.stdin.write(json.dumps(some).encode() + b"\n")
                await said(self.machines)
                rounds += 1
                await asyncio.sleep(1)
        of_each = Counter(path for _, path in figures.pop("paths"))
        most = max((of_each[f"shards/{name}/status"] for name in some), default=0)
        return figures | {"rounds": rounds, "status_writes_of_one_max": most, "shards": shards}

    @asynccontextmanager
    async def measured(self, operator: Operator) -> AsyncIterator[Figures]:
        figures: Figures = {}
        begun, cpu_s, written = time.perf_counter(), operator.cpu_s(), len(self.api.writes)
        revision, reconciles = self.etcd.revision, await operator.reconciles()
        yield figures
        figures |= {
            "seconds": time.perf_counter() - begun,
            "cpu_s": operator.cpu_s() - cpu_s,
            "api_writes": len(self.api.writes) - written,
            "etcd_writes": self.etcd.revision - revision,
            "reconciles": await operator.reconciles() - reconciles,
            "paths": self.api.writes[written:],
            "load": os.getloadavg()[0],
        }


def _is_ready(body: Any) -> bool:
    conditions = (body.get("status") or {}).get("conditions") or ()
    held = {each["type"] for each in conditions if each["status"] == "True"}
    return {"Ready", "FullyReplicated"} <= held


@asynccontextmanager
async def operating(api: Api, etcd: EtcdCluster) -> AsyncIterator[Operator]:
    server = f"http://127.0.0.1:{api.port}"
    async with running(
        "operator_scale_operator.py", api.namespace, server, ",".join(etcd.endpoints)
    ) as process:
        yield Operator(process, (await said(process))["http"])


async def run(arguments: argparse.Namespace, directory: Path) -> Figures:
    names = [f"node-{number}" for number in range(arguments.nodes)]
    found: Figures = {name: vars(arguments)[name] for name in ("shards", "nodes", "replicas")}
    async with AsyncExitStack() as stack:
        etcd = stack.enter_context(EtcdCluster(directory / "etcd"))
        api = await stack.enter_async_context(Api().running())
        machines = await stack.enter_async_context(running("operator_scale_nodes.py", *names))
        for name, control in (await said(machines)).items():
            await api.create("nodes", machine_body(f"machine-{name}"))
            planes = {"control": control, "data": "127.0.0.1:1", "http": "127.0.0.1:1"}
            await api.create("pods", pod_body(name, planes))
        bench = Bench(api, etcd, machines, arguments.shards, arguments.replicas)
        async with operating(api, etcd) as operator:
            found["create"] = await bench.create(operator)
            await asyncio.sleep(SETTLE_S)
            found["idle"] = await bench.idle(operator, arguments.idle_s)
            some = min(arguments.appended, arguments.shards)
            found["appended"] = await bench.appended(operator, some, arguments.appended_s)
            found["rss_max_mib"] = operator.rss_max_mib()
        async with operating(api, etcd) as operator:
            begun = time.perf_counter()
            while await operator.reconciles() < arguments.shards:
                await asyncio.sleep(LOOK_S)
            found["start"] = {"seconds": time.perf_counter() - begun, "cpu_s": operator.cpu_s()}
            found["start"]["rss_max_mib"] = operator.rss_max_mib()
    return found


def table(found: Figures) -> str:
    shards, create, idle, appended = (
        found[key] for key in ("shards", "create", "idle", "appended")
    )
    rows = [
        ("create, Shards/s", shards / create["seconds"]),
        ("create, operator CPU ms for each", 1000 * create["cpu_s"] / shards),
        ("create, reconciles for each", create["reconciles"] / shards),
        ("create, reconciles/s", create["reconciles"] / create["seconds"]),
        ("create, writes to the API server for each", create["api_writes"] / shards),
        ("create, writes to etcd for each", create["etcd_writes"] / shards),
        ("idle, writes to the API server", idle["api_writes"]),
        ("idle, writes to etcd", idle["etcd_writes"]),
        ("idle, operator CPU s/s", idle["cpu_s"] / idle["seconds"]),
        (f"appended for {appended['seconds']:.0f} s, most writes of a status",
         appended["status_writes_of_one_max"]),
        ("appended, writes to etcd", appended["etcd_writes"]),
        ("another operator starts, CPU ms for each", 1000 * found["start"]["cpu_s"] / shards),
        ("operator, most memory, MiB", found["rss_max_mib"]),
        ("load", create["load"]),
    ]  # fmt: skip
    return "\n".join(f"{name:<52} {value:>10.2f}" for name, value in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--replicas", type=int, default=REPLICAS)
    parser.add_argument("--idle-s", type=float, default=60.0)
    parser.add_argument("--appended", type=int, default=100)
    parser.add_argument("--appended-s", type=float, default=3 * POSITIONS_S)
    parser.add_argument("--json", help="where the figures are written in full")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(run(arguments, Path(directory)))
    found["idle"].pop("paths"), found["create"].pop("paths")
    print(table(found))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
