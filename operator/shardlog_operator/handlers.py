"""What kopf calls: one handler for each kind that is watched, and its settings.

Only raw events are taken (`on.event`).  kopf then writes nothing of its own to any object: no
annotations, no progress, no finalizer, so that idle Shards cost no writes and two operators do not
undo each other's bookkeeping.  What an event means is decided by the reconcile, from levels.

There is no peering: it compares wall clocks and is no mutual exclusion, and with equal priorities
it would stop every operator.  Any number of them may run; compare-and-swap decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kopf

from shardlog_operator.snapshot_jobs import JOB_LABELS
from shardlog_operator.snapshot_spec import SNAPSHOTS
from shardlog_operator.spec import GROUP, OPERATIONS, SHARDS, VERSION
from shardlog_operator.watched import Watched

WATCH_S = 300
WATCH_CLIENT_S = 310
CONNECT_S = 30


Connect = Callable[[], kopf.ConnectionInfo]
HandOver = Callable[..., None]
"""Calls a function on the loop where it belongs."""


def registry_of(watched: Watched, connect: Connect, hand_over: HandOver) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return connect()

    @kopf.on.event(GROUP, VERSION, SHARDS, registry=registry)
    async def shard(event: Any, **_: Any) -> None:
        hand_over(watched.shard, event["type"], event["object"])

    @kopf.on.event(GROUP, VERSION, OPERATIONS, registry=registry)
    async def operation(event: Any, **_: Any) -> None:
        hand_over(watched.operation, event["type"], event["object"])

    @kopf.on.event(GROUP, VERSION, SNAPSHOTS, registry=registry)
    async def snapshot(event: Any, **_: Any) -> None:
        hand_over(watched.snapshot, event["type"], event["object"])

    @kopf.on.event("batch", "v1", "jobs", registry=registry)
    async def job(event: Any, **_: Any) -> None:
        hand_over(watched.job, event["type"], event["object"])

    @kopf.on.event("v1", "pods", registry=registry)
    async def pod(event: Any, **_: Any) -> None:
        hand_over(watched.pod, event["type"], event["object"])

    return registry


def kopf_settings(node_selector: str) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = WATCH_S
    settings.watching.client_timeout = WATCH_CLIENT_S
    settings.watching.connect_timeout = CONNECT_S
    settings.watching.label_selectors["v1", "pods"] = node_selector
    settings.watching.label_selectors["batch", "v1", "jobs"] = ",".join(
        f"{name}={value}" for name, value in JOB_LABELS.items()
    )
    settings.networking.connect_timeout = CONNECT_S
    settings.persistence.finalizer = f"{GROUP}/kopf"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP)
    return settings
