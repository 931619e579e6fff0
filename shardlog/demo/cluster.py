"""The cluster of the demonstration: in a directory of its own, and taken down whatever happens."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from shardlog.local.change_lock import changing
from shardlog.local.cluster_file import Cluster
from shardlog.local.layout import Layout
from shardlog.local.processes import signal_process
from shardlog.local.starting import await_ready, prepare, start_supervisor
from shardlog.local.taking_down import stop_all

Json = Any
UP_TIMEOUT_MS = 60_000
LOCK_TIMEOUT_MS = 10_000
GRACE_MS = 2_000
LOOK_MS = 50
REQUEST_TIMEOUT_S = 15.0
ACT_TIMEOUT_S = 60.0
LAG_RECORDS_MAX = 20_000
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class NotInTime(Exception):  # noqa: N818 - named after what happened
    """The cluster did not become what it was told to."""


class Unanswered(NotInTime):
    """The coordinator does not answer, for now."""


class Rejected(Exception):  # noqa: N818 - as above
    """The coordinator says no."""


class DemoCluster:
    """A cluster that runs, and what is done to it."""

    def __init__(self, layout: Layout, cluster: Cluster) -> None:
        self.url = cluster.url
        self.nodes = [node.name for node in cluster.nodes]
        self._layout = layout
        self._session: aiohttp.ClientSession | None = None

    async def kill(self, node: str) -> None:
        """SIGKILL; returns when the process is gone."""
        await asyncio.to_thread(signal_process, self._layout, node, signal.SIGKILL)

    async def ask(self, method: str, path: str, body: Json = None) -> Json:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
            self._session = aiohttp.ClientSession(self.url, timeout=timeout)
        try:
            async with self._session.request(method, f"/v1/{path}", json=body) as answer:
                found = await answer.json()
        except (aiohttp.ClientError, TimeoutError, OSError) as failure:
            raise Unanswered(f"{method} {path}: {failure or 'no answer'}") from failure
        if answer.status >= 500:
            raise Unanswered(f"{method} {path}: {found['error']}")
        if answer.status >= 400:
            raise Rejected(f"{method} {path}: {found['error']}")
        return found

    async def until(self, shard: str, wanted: Callable[[Json], bool], what: str) -> Json:
        """The shard, once it is as wanted and nothing about it changes any more."""
        return await self._until(f"shards/{shard}", lambda it: _is_steady(it) and wanted(it), what)

    async def until_in_step(self, shard: str, what: str) -> Json:
        """Once every replica serves, and is hardly behind its leader."""

        def is_in_step(found: Json) -> bool:
            lags = {each["node"]: each["lag"] for each in found["reports"]}
            behind = [lags.get(node) for node in found["ensemble"]]
            return _is_steady(found) and all(
                lag is not None and lag < LAG_RECORDS_MAX for lag in behind
            )

        return await self._until(f"shards/{shard}/status", is_in_step, what)

    async def _until(self, path: str, wanted: Callable[[Json], bool], what: str) -> Json:
        deadline = time.monotonic() + ACT_TIMEOUT_S
        said = "no answer of the coordinator"
        while time.monotonic() < deadline:
            try:
                found = await self.ask("GET", path)
            except Unanswered as failure:
                said = str(failure)
            else:
                if wanted(found):
                    return found
                said = json.dumps(found)
            await asyncio.sleep(LOOK_MS / 1000)
        raise NotInTime(f"{what}: not within {ACT_TIMEOUT_S:g} s, now {said}")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def _is_steady(found: Json) -> bool:
    """Somebody leads, and nothing is being changed."""
    steady = found["status"] == "STEADY" and found["leader"] and not found["halted"]
    return bool(steady and not found["reconfiguration"])


async def interruptible(work: Coroutine[Any, Any, None]) -> None:
    """Signals come between steps of the loop, and not in the midst of one."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    for number in SIGNALS:
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.default_int_handler)


@contextmanager
def temporary_directory() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="shardlog-demo-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def running(directory: Path, nodes: int, tell: Callable[[int, int], None]) -> Iterator[DemoCluster]:
    """`tell` hears how many of how many processes serve.

    Ctrl-C, a termination and a terminal that is closed come out as `KeyboardInterrupt`; once
    everything is being taken down they no longer hurry it.
    """
    layout = Layout.of(directory)
    serving: set[str] = set()

    def heard(name: str, serves: bool) -> None:
        (serving.add if serves else serving.discard)(name)
        tell(len(serving), nodes + 1)

    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        for number in SIGNALS:
            signal.signal(number, signal.default_int_handler)
        with changing(layout, LOCK_TIMEOUT_MS, make=True):
            cluster = prepare(layout, nodes)
            start_supervisor(layout)
        await_ready(layout, cluster, UP_TIMEOUT_MS, heard)
        yield DemoCluster(layout, cluster)
    finally:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        stop_all(layout, GRACE_MS)
        for number in SIGNALS:
            signal.signal(number, before[number])
