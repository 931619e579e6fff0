"""Real processes of which some lack entries: filled, watched, killed and started again."""

from __future__ import annotations

import asyncio
import os
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from cluster_keys import KEY
from faults.cluster import FaultCluster, until, until_true
from faults.network import Network
from faults.nursery import Nursery
from prometheus_client.parser import text_string_to_metric_families

from shardlog.client import Client
from shardlog.metadata.records import decode_shard, encode_shard, shard_key
from shardlog.metadata.sqlite import SqliteStore
from shardlog.protocol.messages import Envelope, Fence, Refused
from shardlog.protocol.shard import Status
from shardlog.transport.control import ControlClient, ControlLimits

SHARD = "orders"
RECORD_BYTES = 16 << 10
MIB = 1 << 20
CALL_MS = 60_000
SLOW = {"CATCH_UP_BYTES_PER_S_MAX": "2MiB", "FOLLOWER_INFLIGHT_BYTES_MAX": "4MiB"}
"""So that there is a middle in which something can happen: what is under way is not held back."""


class Transfers(FaultCluster):
    """A shard on the first three of four nodes."""

    @classmethod
    @asynccontextmanager
    async def begun(
        cls,
        directory: Path,
        nursery: Nursery,
        settings: dict[str, str],
        network: Network | None = None,
    ) -> AsyncIterator[Transfers]:
        cluster = cls(
            directory / "cluster", nodes=4, network=network, settings=settings, nursery=nursery
        )
        async with cluster.running():
            made = {"name": SHARD, "replicas": 3, "nodes": ["node-1", "node-2", "node-3"]}
            await cluster.ask("POST", "/v1/shards", made)
            await until_true(cluster.steady, "the shard is not led")
            yield cluster

    async def steady(self) -> bool:
        found = await self.shard(SHARD)
        return found is not None and found["status"] == "STEADY" and found["leader"] is not None

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        async with Client("shardlog://unused:1", directory=self.directory()) as client:
            yield client

    async def fill(self, size: int) -> list[bytes]:
        """Records that come to so many bytes, acknowledged."""
        values = [os.urandom(RECORD_BYTES) for _ in range(size // RECORD_BYTES)]
        async with (
            self.client() as client,
            client.producer(SHARD, deadline_ms=60_000) as producer,
        ):
            for start in range(0, len(values), 16):
                await producer.append_many(values[start : start + 16])
        return values

    async def values(self) -> list[bytes]:
        """All that a client reads."""
        async with self.client() as client:
            return [record.value async for record in client.read(SHARD)]

    async def roles(self) -> tuple[str, list[str]]:
        """The leader and the others of the ensemble."""
        await until_true(self.steady, "the shard is not led")
        found = await self.shard(SHARD)
        leader = found["leader"]
        return leader, [node for node in found["ensemble"] if node != leader]

    async def swap(self, old: str, new: str) -> None:
        asked = {"operation": "swap", "old": old, "new": new}
        assert await self.ask("POST", f"/v1/shards/{SHARD}/operations", asked) is not None

    async def scale(self, replicas: int) -> None:
        asked = {"replicas": replicas}
        assert await self.ask("PUT", f"/v1/shards/{SHARD}/replicas", asked) is not None

    async def abort(self) -> None:
        asked = {"operation": "abort"}
        assert await self.ask("POST", f"/v1/shards/{SHARD}/operations", asked) is not None

    async def ensemble_has(self, node: str) -> bool:
        found = await self.shard(SHARD)
        return (
            found is not None
            and found["status"] == "STEADY"
            and not found["reconfiguration"]
            and node in found["ensemble"]
        )

    async def leave_an_election(self) -> None:
        """As a coordinator does that dies in one: whoever finds it starts over and asks all."""
        store, key = await SqliteStore.open(self.layout.metadata), shard_key(SHARD)

        async def written() -> bool:
            found = await store.get(key)
            assert found is not None
            record = decode_shard(key, found.value)
            epoch = record.epoch + 1
            begun = replace(record, status=Status.ELECTION, epoch=epoch, leader=None)
            return (await store.compare_and_swap(key, found.version, encode_shard(begun))).done

        try:
            await until_true(written, "others write all the time")
        finally:
            await store.close()

    async def awaits(self, *nodes: str) -> bool:
        """Whether an election has been answered by all others, and waits for the votes of these."""
        found = await self.shard(SHARD)
        waiting = found["waiting"] if found and found["status"] == "ELECTION" else None
        return waiting is not None and sorted(waiting["nodes"]) == sorted(nodes)

    async def vote(self, node: str, incarnation: int, epoch: int) -> Any:
        """What it says to a fence in the name of this incarnation: the refusal, if it is one."""
        address = next(place.control for place in self.places.nodes if place.name == node)
        asked = Envelope(SHARD, "a coordinator", 0, node, incarnation, Fence(epoch))
        caller = ControlClient(ControlLimits(), None, KEY)
        try:
            answer = await caller.call(address, asked, CALL_MS)
        finally:
            await caller.close()
        assert answer is not None
        message = answer.message
        return message.refusal if isinstance(message, Refused) else message

    async def report(self, node: str) -> Any:
        """What a replica says of itself; None if it does not."""
        found = await self.status(SHARD)
        reports = found["reports"] if found else []
        return next((each for each in reports if each["node"] == node), None)

    async def until_report(self, node: str, wanted: Callable[[Any], bool], what: str) -> Any:
        """What it says once it says what is wanted."""
        last: Any = None

        async def said() -> bool:
            nonlocal last
            last = await self.report(node)
            return last is not None and wanted(last)

        await until_true(said, what)
        return last

    async def until_received(self, node: str, size: int) -> None:
        """A transfer to it has got so far, and is not done."""
        await self.until_report(
            node,
            lambda it: it["transfer"] is not None and it["transfer"]["done_bytes"] >= size,
            f"{node} receives nothing",
        )

    async def until_equal(self, nodes: list[str]) -> None:
        async def equal() -> bool:
            found = await self.status(SHARD)
            told = {each["node"]: each for each in found["reports"]} if found else {}
            ends = {(told[node]["end"], told[node]["commit"]) for node in nodes if node in told}
            return set(nodes) <= told.keys() and len(ends) == 1

        await until_true(equal, f"{nodes} do not come into step")

    def http(self, node: str) -> str:
        return next(place.http for place in self.places.nodes if place.name == node)

    async def metric(self, node: str, name: str, **labels: str) -> float:
        text = await asyncio.to_thread(self._metrics, node)
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def _metrics(self, node: str) -> str:
        with urllib.request.urlopen(f"http://{self.http(node)}/metrics", timeout=60) as answer:
            return str(answer.read().decode())

    async def until_metric(self, node: str, name: str, least: float, **labels: str) -> None:
        async def reached() -> bool:
            return await self.metric(node, name, **labels) >= least

        await until_true(reached, f"{name} of {node} stays below {least}")

    async def revive(self, node: str) -> None:
        self.nodes[node].start()
        await until(lambda: self.nodes[node].running, f"{node} does not start")
        await until_true(self.all_alive, f"{node} does not come up")
