"""What the operator writes to the API beside status: events, Services, EndpointSlices, gates."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from shardlog.process.logs import Logger
from shardlog_operator import discovery, events, rolling
from shardlog_operator.discovery import LeaderPod
from shardlog_operator.events import Told
from shardlog_operator.kube import STRATEGIC, ApiFailure, ApiUnavailable, Conflict, Kube, NotFound
from shardlog_operator.nodes import Nodes
from shardlog_operator.rolling import Replication
from shardlog_operator.spec import ShardSpec

Json = Any
EVENTS_MAX = 1000
AGAIN_S = 2.0
CHECK_S = 600.0
GATES_S = 0.2
GATES_REST = 20
"""So many times as long as a look at all shards takes, the next one waits: some are thousands."""


def written(now_s: float) -> str:
    """A time as the API writes it."""
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class EventPoster:
    """Events in the order they were told; while nobody takes them the oldest are dropped."""

    def __init__(self, kube: Kube, instance: str, log: Logger) -> None:
        self._kube = kube
        self._instance = instance
        self._log = log
        self._waiting: deque[Json] = deque(maxlen=EVENTS_MAX)
        self._some = asyncio.Event()

    def tell(self, about: Json, told: Told) -> None:
        now_s = time.time()
        level = self._log.warning if told.warning else self._log.info
        level(told.reason, about=about["metadata"]["name"], told=told.message)
        self._waiting.append(
            events.manifest(told, about, discovery.COMPONENT, self._instance, now_s, written(now_s))
        )
        self._some.set()

    async def run(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            while self._waiting:
                event = self._waiting[0]
                try:
                    await self._kube.create(self._kube.events(), event)
                except ApiUnavailable:
                    await asyncio.sleep(AGAIN_S)
                    continue
                except Conflict:
                    pass  # another operator has said so
                except ApiFailure as failure:
                    self._log.warning("event refused", why=str(failure))
                if self._waiting and self._waiting[0] is event:
                    self._waiting.popleft()


class Publisher:
    """The Service and the EndpointSlice of every shard."""

    def __init__(self, kube: Kube, clock_s: Callable[[], float]) -> None:
        self._kube = kube
        self._clock_s = clock_s
        self._published: dict[str, tuple[object, float]] = {}

    async def publish(self, spec: ShardSpec, leader: LeaderPod | None) -> str | None:
        """What stands in the way, if something does: a Service that is not ours."""
        known = self._published.get(spec.name)
        now_s = self._clock_s()
        if known is not None and known[0] == (spec.uid, leader) and now_s - known[1] < CHECK_S:
            return None
        kube, namespace = self._kube, self._kube.namespace
        wanted = (
            (kube.service, discovery.service(spec, namespace)),
            (kube.endpoint_slice, discovery.endpoint_slice(spec, namespace, leader)),
        )
        for path, manifest in wanted:
            foreign = await self._apply(path, manifest, spec)
            if foreign:
                return foreign
        self._published[spec.name] = ((spec.uid, leader), now_s)
        return None

    async def _apply(self, path: Callable[[str], str], wanted: Json, spec: ShardSpec) -> str | None:
        try:
            found = await self._kube.get(path(spec.name))
        except NotFound:
            await self._kube.create(path(""), wanted)
            return None
        if not discovery.is_ours(found, spec):
            return f"a {wanted['kind']} {spec.name} is there that is not of this Shard"
        if discovery.differs(found, wanted):
            version = found["metadata"].get("resourceVersion")
            changed = wanted | {"metadata": wanted["metadata"] | {"resourceVersion": version}}
            await self._kube.patch(path(spec.name), changed)
        return None

    async def withdraw(self, spec: ShardSpec) -> None:
        """The garbage collector would do it too, a while later."""
        self._published.pop(spec.name, None)
        for path in (self._kube.service, self._kube.endpoint_slice):
            try:
                found = await self._kube.get(path(spec.name))
            except NotFound:
                continue
            if discovery.is_ours(found, spec):
                await self._kube.delete(path(spec.name), found["metadata"].get("uid", ""))

    def forget(self, name: str) -> None:
        self._published.pop(name, None)


class Gates:
    """Sets the readiness gates of pods; `look` says that something has changed."""

    def __init__(
        self,
        kube: Kube,
        nodes: Nodes,
        shards: Callable[[], Mapping[str, Replication] | None],
        log: Logger,
    ) -> None:
        self._kube = kube
        self._nodes = nodes
        self._shards = shards
        self._log = log
        self._some = asyncio.Event()

    def look(self) -> None:
        self._some.set()

    async def run(self) -> None:
        """`shards` tells None while the records have not been read: then nobody is let through."""
        while True:
            await self._some.wait()
            self._some.clear()
            begun_s = time.perf_counter()
            shards = self._shards()
            if shards is not None:
                for pod in list(self._nodes.pods.values()):
                    gate = rolling.gate_of(pod, shards)
                    if gate is not None:
                        await self._set(pod.name, gate)
            spent_s = time.perf_counter() - begun_s
            await asyncio.sleep(max(GATES_S, GATES_REST * spent_s))

    async def _set(self, name: str, gate: rolling.Gate) -> None:
        """What does not succeed is tried again with the next look, which the pod's news brings."""
        body = rolling.patch(gate, written(time.time()))
        try:
            await self._kube.patch(self._kube.pod(name, "status"), body, STRATEGIC)
        except NotFound:
            return
        except ApiFailure as failure:
            self._log.warning("gate not set", node=name, why=str(failure))
            await asyncio.sleep(AGAIN_S)
            self._some.set()
        else:
            self._log.info("gate", node=name, open=gate.open, reason=gate.reason)
