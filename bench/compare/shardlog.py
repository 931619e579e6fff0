"""Shardlog: nodes, the coordinator and the supervisor, as `shardlog local up` starts them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from shardlog import __version__
from shardlog.cli.cluster import Cluster as Coordinator
from shardlog.local.change_lock import changing
from shardlog.local.failures import NotReady
from shardlog.local.layout import COORDINATOR, SUPERVISOR, Layout
from shardlog.local.pid_file import PidFile
from shardlog.local.starting import await_ready, prepare, start_supervisor
from shardlog.local.taking_down import delete, stop_all

from .system import Failed, Running, System

START_TIMEOUT_MS = 60_000
STOP_GRACE_MS = 5_000
WHOLE_TIMEOUT_S = 150.0
LOOK_S = 0.05
LOOK_ALL_S = 0.5
CREATORS = 16
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class RunningShardlog(Running):
    layout: Layout | None = None
    url: str = ""
    durability: str = ""

    @property
    def load(self) -> Sequence[str]:
        return (sys.executable, "-m", "bench.compare.shardlog_load", self.url)

    @property
    def environment(self) -> Mapping[str, str]:
        known = os.environ.get("PYTHONPATH")
        return {**os.environ, "PYTHONPATH": f"{ROOT}:{known}" if known else str(ROOT)}

    @property
    def coordinator(self) -> Coordinator:
        return Coordinator(self.url, 30)

    def create(self, log: str, shards: int = 1) -> None:
        names = [f"{log}-{number}" for number in range(shards)]
        with ThreadPoolExecutor(CREATORS) as threads:
            list(threads.map(self._create, names))
        deadline = time.monotonic() + WHOLE_TIMEOUT_S
        if shards > 1:
            self._until_led(set(names), deadline)
        for name in names:
            self._until_whole(name, deadline)

    def _until_led(self, names: set[str], deadline: float) -> None:
        """One look for all: to ask for the replicas of each would keep nodes from electing."""
        while time.monotonic() < deadline:
            found = self.coordinator.get("shards")["shards"]
            if names <= {each["name"] for each in found if each["status"] == "STEADY"}:
                return
            time.sleep(LOOK_ALL_S)
        raise Failed(f"create: not all of {len(names)} shards have a leader in time")

    def _create(self, shard: str) -> None:
        body: dict[str, Any] = {"name": shard, "replicas": self.replicas}
        if self.durability:
            body["durability"] = self.durability
        made = self.coordinator.post("shards", body=body)
        if self.durability and made.get("durability") != self.durability:
            raise Failed(f"durability {self.durability} is not offered by the local cluster")

    def _until_whole(self, shard: str, deadline: float) -> Any:
        """Led, and every replica follows."""
        while True:
            found = self.coordinator.get("shards", shard, "status")
            roles = [each["role"] for each in found["reports"] if each["epoch"] == found["epoch"]]
            if found["status"] == "STEADY" and roles.count("FOLLOWER") == self.replicas - 1:
                return found
            if time.monotonic() > deadline:
                raise Failed(f"create: {shard} is not whole: {roles}")
            time.sleep(LOOK_S)

    def kill_leader(self, log: str) -> None:
        leader = self.coordinator.shard(f"{log}-0")["leader"]
        if leader is None or not self._pid_file(leader).signal(signal.SIGKILL):
            raise Failed("pause: nobody leads")

    @property
    def servers(self) -> list[psutil.Process]:
        found = []
        names = [COORDINATOR, SUPERVISOR, *(path.name for path in self._nodes())]
        for name in names:
            pid = self._pid_file(name).pid()
            if pid is not None and psutil.pid_exists(pid):
                found.append(psutil.Process(pid))
        return found

    def _nodes(self) -> list[Path]:
        assert self.layout is not None
        return sorted(self.layout.nodes.iterdir())

    def _pid_file(self, name: str) -> PidFile:
        assert self.layout is not None
        return PidFile(self.layout.pid_file(name))


class Shardlog(System):
    name = "shardlog"
    title = "Shardlog"
    syncs = True
    settings = "the defaults of `shardlog local up`, through `shardlog.client`"
    durability = ""
    speaks_frames = True

    @property
    def version(self) -> str:
        return __version__

    @contextmanager
    def running(self, directory: Path, replicas: int) -> Iterator[Running]:
        layout = Layout((directory / "cluster").absolute())
        made = RunningShardlog(directory, replicas, layout=layout, durability=self.durability)
        try:
            with changing(layout, START_TIMEOUT_MS, make=True):
                wanted = prepare(layout, replicas)
                start_supervisor(layout)
            await_ready(layout, wanted, START_TIMEOUT_MS, lambda name, serves: None)
            made.url = wanted.url
            yield made
        except NotReady as failure:
            raise Failed(f"does not start: {failure}") from failure
        finally:
            stop_all(layout, STOP_GRACE_MS)
            delete(layout)


class ShardlogRelaxed(Shardlog):
    name = "shardlog-relaxed"
    title = "Shardlog, Relaxed"
    syncs = False
    settings = "durability: Relaxed"
    durability = "Relaxed"
