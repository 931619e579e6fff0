"""One coordinator process with many shards: what they cost at rest, and how fast things get done.

    python bench/operator_scale.py [DIR] [--shards 1000] [--nodes 5] [--store sqlite] [--json FILE]

The nodes are processes as everybody runs them, real replicas behind real gRPC and frames, but their
volumes are in memory (DIR, by default /dev/shm): nobody waits for a disk.  The coordinator is a
process of its own.

create     all shards with three replicas each, until each is led
idle       nothing is asked for: processor time of the coordinator and of the nodes, calls, writes
scale      some shards from three replicas to five
kill       one node is killed: until every shard that it led is led by another
memory     the most that the coordinator ever had

Figures are processor seconds, counts and ratios; times depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from bench_key import key_file
from place import place

MEMORY = "/dev/shm"
COORDINATOR = Path(__file__).with_name("operator_scale_coordinator.py")
SEGMENT_BYTES = str(64 << 10)
REPLICAS, MORE_REPLICAS = 3, 5
SETTLE_S = 4.0
"""After all is led, until all is at rest."""

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    process: subprocess.Popen[str]
    addresses: dict[str, str]


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that speaks JSON lines, ended whatever happens."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> Figures:
    assert process.stdout
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r:.200} ended")
    found: Figures = json.loads(line)
    return found


@contextmanager
def node(name: str, directory: str) -> Iterator[subprocess.Popen[str]]:
    ports = [f"--{plane}-port=0" for plane in ("data", "control", "http")]
    command = [
        sys.executable, "-m", "shardlog_node.main", f"--name={name}",
        f"--directory={directory}/{name}", "--plain", f"--segment-bytes-min={SEGMENT_BYTES}",
        "--log-level=error", f"--cluster-key-file={key_file(directory)}", *ports,
    ]  # fmt: skip
    with running(command) as process:
        yield process


class Coordinator:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        said(process)

    def do(self, work: str, **how: Any) -> Figures:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"do": work, **how}) + "\n")
        self.process.stdin.flush()
        return said(self.process)


@contextmanager
def coordinator(nodes: list[Node], store: str, directory: str) -> Iterator[Coordinator]:
    told = {
        "nodes": {each.name: each.addresses for each in nodes},
        "store": store,
        "directory": directory,
    }
    with running([sys.executable, str(COORDINATOR), json.dumps(told)]) as process:
        yield Coordinator(process)


# --- processes -----------------------------------------------------------------------------------


def cpu_s(process: subprocess.Popen[str]) -> float:
    times = psutil.Process(process.pid).cpu_times()
    return float(times.user + times.system)


def rss_max_mib(process: subprocess.Popen[str]) -> float:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    (peak,) = [line for line in lines if line.startswith("VmHWM:")]
    return int(peak.split()[1]) / 1024


# --- what is measured ----------------------------------------------------------------------------


def measured(ensemble: list[Node], coordinating: Coordinator, work: str, **how: Any) -> Figures:
    """One piece of work: its figures, and the processor time of everybody for it."""
    everybody = [coordinating.process, *[each.process for each in ensemble]]
    before = coordinating.do("counts")
    cpu_before = [cpu_s(each) for each in everybody]
    if work == "idle":
        begun = time.perf_counter()
        time.sleep(how["seconds"])
        after = coordinating.do("counts") | {"seconds": time.perf_counter() - begun}
    else:
        after = coordinating.do(work, **how)
    spent = [cpu_s(each) - was for each, was in zip(everybody, cpu_before, strict=True)]
    calls = {rpc: count - before["calls"].get(rpc, 0) for rpc, count in after["calls"].items()}
    return {
        "seconds": after["seconds"],
        "coordinator_cpu_s": spent[0],
        "nodes_cpu_s": spent[1:],
        "writes": after["writes"] - before["writes"],
        "reads": after["reads"] - before["reads"],
        "epochs": after["epochs"] - before["epochs"],
        "calls": {rpc: count for rpc, count in calls.items() if count},
        "led": after["led"],
    }


def run(arguments: argparse.Namespace, directory: str) -> Figures:
    with ExitStack() as stack:
        names = [f"node-{number}" for number in range(1, arguments.nodes + 1)]
        processes = [stack.enter_context(node(name, directory)) for name in names]
        nodes = [Node(*each, said(each[1])) for each in zip(names, processes, strict=True)]
        coordinating = stack.enter_context(coordinator(nodes, arguments.store, directory))
        found: Figures = {"shards": arguments.shards, "nodes": arguments.nodes}
        shards = arguments.shards
        found["create"] = measured(nodes, coordinating, "create", count=shards, replicas=REPLICAS)
        time.sleep(SETTLE_S)
        found["idle"] = measured(nodes, coordinating, "idle", seconds=arguments.idle_s)
        if arguments.nodes >= MORE_REPLICAS:
            some = min(arguments.scaled, shards)
            found["scale"] = measured(
                nodes, coordinating, "scale", count=some, replicas=MORE_REPLICAS
            ) | {"shards": some}
            time.sleep(SETTLE_S)
        found["kill"] = killed(nodes, coordinating)
        time.sleep(SETTLE_S)
        found["idle_without_a_node"] = measured(
            nodes[1:], coordinating, "idle", seconds=arguments.idle_s
        )
        found["coordinator_rss_max_mib"] = rss_max_mib(coordinating.process)
        found["load"] = os.getloadavg()
        return found


def killed(nodes: list[Node], coordinating: Coordinator) -> Figures:
    first = nodes[0]
    led = coordinating.do("counts")["led"].get(first.name, 0)
    first.process.kill()
    figures = measured(nodes[1:], coordinating, "led_without", node=first.name)
    return figures | {"led": led}


# --- told ----------------------------------------------------------------------------------------


def table(found: Figures) -> str:
    shards, create, idle, kill = (found[key] for key in ("shards", "create", "idle", "kill"))
    rows = [
        ("create, shards/s", shards / create["seconds"]),
        ("create, coordinator CPU ms for each", 1000 * create["coordinator_cpu_s"] / shards),
        ("create, nodes CPU ms for each", 1000 * sum(create["nodes_cpu_s"]) / shards),
        ("create, metadata writes for each", create["writes"] / shards),
        *_idle_rows("idle", idle),
    ]
    if "scale" in found:
        scale = found["scale"]
        steps = scale["shards"] * (MORE_REPLICAS - REPLICAS)
        rows += [
            (f"scale {scale['shards']} from 3 to 5, replicas added/s", steps / scale["seconds"]),
            ("scale, coordinator CPU ms for each", 1000 * scale["coordinator_cpu_s"] / steps),
        ]
    rows += [
        ("kill, shards led by the node", kill["led"]),
        ("kill, seconds until all are led", kill["seconds"]),
        ("kill, elections/s", kill["led"] / kill["seconds"]),
        ("kill, coordinator CPU ms for each", 1000 * kill["coordinator_cpu_s"] / kill["led"]),
        *_idle_rows("idle without a node", found["idle_without_a_node"]),
        ("coordinator, most memory, MiB", found["coordinator_rss_max_mib"]),
    ]
    return "\n".join(f"{name:<48} {value:>10.2f}" for name, value in rows)


def _idle_rows(name: str, idle: Figures) -> list[tuple[str, float]]:
    seconds = idle["seconds"]
    return [
        (f"{name}, coordinator CPU s/s", idle["coordinator_cpu_s"] / seconds),
        (f"{name}, a node's CPU s/s", max(idle["nodes_cpu_s"]) / seconds),
        (f"{name}, calls/s", sum(idle["calls"].values()) / seconds),
        (f"{name}, metadata writes", idle["writes"]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "directory", nargs="?", type=place, default=MEMORY if os.path.isdir(MEMORY) else None
    )
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--scaled", type=int, default=100)
    parser.add_argument("--idle-s", type=float, default=20.0)
    parser.add_argument("--store", choices=["sqlite", "memory"], default="sqlite")
    parser.add_argument("--json", help="where the figures are written in full")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    directory = tempfile.mkdtemp(dir=arguments.directory)
    try:
        found = run(arguments, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(table(found))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
