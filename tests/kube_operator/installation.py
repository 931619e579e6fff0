"""An installation in one process: real nodes on 127.0.0.1, operators, a store, the API emulated.

Nodes speak gRPC and TCP as they do anywhere; their pods are objects that the tests write, since
there is no kubelet.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
from cluster_keys import key_file

from kube_operator.emulator import Api
from shardlog.metadata.memory import Memory
from shardlog.metadata.store import MetadataStore
from shardlog.protocol.shard import Shard, Status
from shardlog_node.process import NodeProcess
from shardlog_node.settings import NodeSettings
from shardlog_operator.nodes import GATE
from shardlog_operator.process import OperatorProcess
from shardlog_operator.settings import OperatorSettings

Json = Any
NAMES = "node-0 node-1 node-2 node-3 node-4"
LABELS = {
    "app.kubernetes.io/name": "shardlog",
    "app.kubernetes.io/component": "node",
    "shardlog.dev/pool": "default",
}


def shard_body(name: str = "orders", **spec: object) -> Json:
    return {"metadata": {"name": name}, "spec": spec}


def operation_body(name: str, operation: str, **spec: object) -> Json:
    return {"metadata": {"name": name}, "spec": {"operation": operation, **spec}}


class Installation:
    def __init__(self, directory: Path, names: str = NAMES) -> None:
        self.directory = directory
        self.names = names.split()
        self.api = Api()
        self.memory = Memory()
        self.nodes: dict[str, NodeProcess] = {}
        self.operators: dict[str, tuple[OperatorProcess, asyncio.Task[None]]] = {}

    @asynccontextmanager
    async def running(self, operators: int = 1) -> AsyncIterator[Installation]:
        async with self.api.running():
            for name in self.names:
                await self.api.create("nodes", machine_body(f"machine-{name}"))
                await self.start_node(name)
            try:
                for number in range(operators):
                    await self.start_operator(f"operator-{number}")
                async with asyncio.timeout(300):
                    yield self
            finally:
                for name in list(self.operators):
                    await self.end_operator(name)
                for name in list(self.nodes):
                    await self.end_node(name)

    # --- nodes -----------------------------------------------------------------------------------

    async def start_node(self, name: str, pod: bool = True) -> None:
        settings = NodeSettings(
            name=name, directory=str(self.directory / name), plain=True,
            cluster_key_file=key_file(self.directory),
            data_port=0, control_port=0, http_port=0, scrub_core_percent=0,
        )  # fmt: skip
        node = NodeProcess(settings)
        await node.start()
        self.nodes[name] = node
        if pod:
            await self.make_pod(name)

    async def make_pod(self, name: str, **changes: Json) -> None:
        body = pod_body(name, self.nodes[name].addresses) | changes
        if self.api.find("pods", name) is not None:
            await self.api.delete("pods", name)
        await self.api.create("pods", body)

    async def end_node(self, name: str) -> None:
        """At once, without handing anything over."""
        node = self.nodes.pop(name)
        node.hurry()
        await node.stop()

    async def lose_node(self, name: str) -> None:
        await self.end_node(name)
        await self.set_running(name, False)

    async def set_running(self, name: str, running: bool) -> None:
        conditions = [{"type": "ContainersReady", "status": str(running)}]
        await self.api.change("pods", name, {"status": {"conditions": conditions}}, "status")

    # --- operators -------------------------------------------------------------------------------

    async def start_operator(
        self, name: str = "operator-0", store: MetadataStore | None = None, **changes: object
    ) -> OperatorProcess:
        told: Json = {
            "namespace": self.api.namespace, "name": name, "metadata": "unused", "plain": True,
            "cluster_key_file": key_file(self.directory),
            "http_port": 0, "node_grace_s": 1.0, "positions_s": 1.0,
        }  # fmt: skip
        settings = OperatorSettings(**(told | changes))
        process = OperatorProcess(settings, store or self.memory.handle(), self.api.connect)
        self.operators[name] = process, asyncio.create_task(process.run())
        return process

    async def end_operator(self, name: str) -> None:
        process, task = self.operators.pop(name)
        process.stop.set()
        await task

    async def kill_operator(self, name: str) -> None:
        """As near to a kill as a task comes: everything is cancelled where it stands."""
        _, task = self.operators.pop(name)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    @property
    def operator(self) -> OperatorProcess:
        return next(iter(self.operators.values()))[0]

    # --- looking ---------------------------------------------------------------------------------

    def record(self, name: str = "orders") -> Shard | None:
        return self.operator.host.shards.get(name)

    def status(self, name: str = "orders") -> Json:
        body = self.api.find("shards", name)
        return (body or {}).get("status") or {}

    def condition(self, kind: str, name: str = "orders") -> Json:
        found = {each["type"]: each for each in self.status(name).get("conditions", [])}
        return found.get(kind, {})

    def reasons(self) -> list[str]:
        return [each["reason"] for each in self.api.all("events")]

    def events(self) -> list[tuple[str, str, str]]:
        """Type, reason and message."""
        found = self.api.all("events")
        return [(each["type"], each["reason"], each["message"]) for each in found]

    async def until_told(self, *reasons: str) -> None:
        """Events follow what they tell of, whenever the API takes them."""
        await self.api.until(lambda: set(reasons) <= set(self.reasons()))

    async def ready(self, name: str = "orders", replicas: int = 3) -> Json:
        """Until the Shard says that it is as wanted, about its current spec."""

        def is_ready() -> Json:
            body, status = self.api.get("shards", name), self.status(name)
            current = status.get("observedGeneration") == body["metadata"]["generation"]
            holds = self.condition("Ready", name).get("status") == "True"
            whole = self.condition("FullyReplicated", name).get("status") == "True"
            steady = status.get("phase") == "Steady" and status.get("replicas") == replicas
            return current and holds and whole and steady and status

        return await self.api.until(is_ready)

    async def until_record(self, wanted: Callable[[Shard], bool], name: str = "orders") -> Shard:
        def found() -> Shard | None:
            record = self.record(name)
            settled = record is not None and record.status is Status.STEADY and record.leader
            busy = record is None or record.change or record.joining
            return record if settled and not busy and record and wanted(record) else None

        shard: Shard = await self.api.until(found)
        return shard


async def told(process: OperatorProcess, path: str, wanted: Callable[[Json], bool]) -> Json:
    """Until the operator says so; the installation's timeout ends a wait that is in vain."""
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"http://{process.address}{path}") as answer:
                is_json = answer.content_type == "application/json"
                found = await (answer.json() if is_json else answer.text())
            if wanted(found):
                return found
            await asyncio.sleep(0.05)


def machine_body(name: str, **labels: str) -> Json:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod_body(name: str, addresses: dict[str, str]) -> Json:
    ports = {
        f"shardlog.dev/{plane}-port": address.rpartition(":")[2]
        for plane, address in addresses.items()
    }
    return {
        "metadata": {"name": name, "labels": dict(LABELS), "annotations": ports},
        "spec": {"nodeName": f"machine-{name}", "readinessGates": [{"conditionType": GATE}]},
        "status": {
            "phase": "Running",
            "podIP": "127.0.0.1",
            "conditions": [{"type": "ContainersReady", "status": "True"}],
        },
    }
