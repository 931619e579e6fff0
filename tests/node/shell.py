"""Node processes, as somebody would start them from a shell."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from cluster_keys import KEY, key_file
from prometheus_client.parser import text_string_to_metric_families

from node.bodies import body_of
from node.cluster import registration
from node.planes import BareClient
from shardlog.checksum import seal_body
from shardlog.coordinator.calls import NodeControl
from shardlog.coordinator.host import CoordinatorHost
from shardlog.metadata.memory import Memory
from shardlog.protocol.coordination import CreateShard
from shardlog.protocol.messages import Append, Appended, Registered
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Status
from shardlog.transport.connection import ConnectionLimits
from shardlog.transport.control import ControlClient, ControlLimits, ControlTls
from shardlog.transport.endpoints import Inbox, connect
from shardlog.transport.handshake import Role

PATIENCE_S = 60
COMMAND = (sys.executable, "-m", "shardlog_node.main")
ANY_PORT = ("--data-port", "0", "--control-port", "0", "--http-port", "0")


_KEY_DIRECTORY = tempfile.TemporaryDirectory(prefix="shardlog-key-")


def clean_environment() -> dict[str, str]:
    """No settings of a node but the key of its cluster."""
    ours = {name: it for name, it in os.environ.items() if not name.startswith("SHARDLOG_NODE_")}
    return {**ours, "SHARDLOG_NODE_CLUSTER_KEY_FILE": key_file(Path(_KEY_DIRECTORY.name))}


def refused(*arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Exit status and standard error of a node that does not come up."""
    ended = subprocess.run(
        (*COMMAND, *arguments),
        env=environment or clean_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.stdout == ""
    return ended.returncode, ended.stderr


class Node:
    """A process that has said that it is ready."""

    def __init__(self, directory: Path, name: str, *arguments: str, plain: bool = True) -> None:
        self.name = name
        self.directory = directory
        self.log = directory.with_suffix(".log")
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                (*COMMAND, "--name", name, "--directory", str(directory), *ANY_PORT)
                + (("--plain",) if plain else ())
                + arguments,
                env=clean_environment(),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        watchdog = threading.Timer(PATIENCE_S, self.process.kill)
        watchdog.start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        watchdog.cancel()
        assert line, self.log.read_text()
        self.ready: dict[str, str] = json.loads(line)

    def get(self, path: str) -> tuple[int, str]:
        connection = HTTPConnection(self.ready["http"], timeout=PATIENCE_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def readiness(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get("/readyz")[1])
        return found

    def metrics(self) -> dict[tuple[str, ...], float]:
        """Value by name and values of the labels, the shard first."""
        families = text_string_to_metric_families(self.get("/metrics")[1])
        return {
            (sample.name, *_ordered(sample.labels)): sample.value
            for family in families
            for sample in family.samples
        }

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def told(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.events() if each["event"] == event]

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        return self.process.wait(PATIENCE_S)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def node(directory: Path, name: str, *arguments: str, plain: bool = True) -> Iterator[Node]:
    running = Node(directory, name, *arguments, plain=plain)
    try:
        yield running
    finally:
        running.end()


def _ordered(labels: dict[str, str]) -> list[str]:
    return [labels[name] for name in sorted(labels, key=lambda name: (name != "shard", name))]


def until(wanted: Callable[[], object], what: str = "") -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE_S
    while not wanted():
        assert time.monotonic() < deadline, what or "never came true"
        time.sleep(0.02)


class Cluster:
    """Node processes and a coordinator in this one."""

    def __init__(self, directory: Path, *names: str, arguments: tuple[str, ...] = ()) -> None:
        self.directory = directory
        self.names = names
        self.arguments = arguments
        self.tls: ControlTls | None = None
        self.nodes: dict[str, Node] = {}
        self.coordinator: CoordinatorHost
        self._coordinating: asyncio.Task[None]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        client = ControlClient(ControlLimits(), self.tls, KEY)
        try:
            for name in self.names:
                await asyncio.to_thread(self.start, name)
            control = NodeControl(client, self._address("control"), self._address("data"))
            store = Memory().handle()
            self.coordinator = CoordinatorHost("operator", store, control, _now_ms)
            self._coordinating = asyncio.create_task(self.coordinator.run())
            async with asyncio.timeout(PATIENCE_S):
                yield
            await self.stop_coordinator()
        finally:
            for each in self.nodes.values():
                each.end()
            await client.close()

    async def stop_coordinator(self) -> None:
        self._coordinating.cancel()
        await asyncio.wait([self._coordinating])

    def start(self, name: str) -> None:
        plain = self.tls is None
        arguments = self.arguments
        self.nodes[name] = Node(self.directory / name, name, *arguments, plain=plain)

    def _address(self, plane: str) -> Callable[[str], str | None]:
        return lambda name: self.nodes[name].ready[plane] if name in self.nodes else None

    async def create(self, shard: str) -> str:
        """A shard on all nodes; its leader."""
        await self.coordinator.command(shard, CreateShard(self.names, QuorumPolicy()))
        return await self.leader(shard)

    async def leader(self, shard: str, other_than: str = "") -> str:
        while True:
            found = self.coordinator.shards.get(shard)
            leader = found.leader if found is not None and found.status is Status.STEADY else None
            if leader is not None and leader.node != other_than:
                return leader.node
            await asyncio.sleep(0.01)

    @asynccontextmanager
    async def client(
        self, name: str, shard: str, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[BareClient]:
        host, _, port = self.nodes[name].ready["data"].rpartition(":")
        inbox = Inbox()
        connection = await connect(
            host.strip("[]"),
            int(port),
            name="a client",
            role=Role.CLIENT,
            receiver=inbox,
            limits=ConnectionLimits(),
            wall_ns=time.time_ns,
            timeout_ms=5000,
            tls=tls,
        )
        bare = BareClient(connection, inbox)
        await bare.attach(1, shard)
        try:
            yield bare
        finally:
            connection.close()
            await connection.closed()


async def append(client: BareClient, records: int, size: int = 10) -> None:
    """So many, one after the other, in a session of their own."""
    session = await client.ask(registration())
    assert isinstance(session, Registered), session
    for request in range(1, records + 1):
        body = body_of((b"record %d" % request).ljust(size))
        answer = await client.ask(Append(session.session, request, 1, body, seal_body(body)))
        assert isinstance(answer, Appended), answer


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
