"""Shards and ShardOperations as the API server hands them out, as values.

The API server has validated them, so here is only reading.  A field that is missing has the default
of the CRD: an object may be older than the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from shardlog.process.quantities import duration_ms
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.upkeep import USUAL, Upkeep

GROUP = "shardlog.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
SHARDS = "shards"
OPERATIONS = "shardoperations"
FINALIZER = f"{GROUP}/shard"
ABORTED = f"{GROUP}/aborted-generation"
"""Annotation: the generation of the Shard whose scaling a person has aborted."""
TOPOLOGY_KEY = "kubernetes.io/hostname"

Body = Mapping[str, Any]
"""An object of the API."""


class Deletion(StrEnum):
    RETAIN = "Retain"
    DELETE = "Delete"


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """What somebody wants of a shard."""

    name: str
    uid: str
    generation: int
    replicas: int = 3
    pool: str = "default"
    quorum: QuorumPolicy = QuorumPolicy()
    topology_key: str = TOPOLOGY_KEY
    deletion: Deletion = Deletion.RETAIN
    paused: bool = False
    upkeep: Upkeep = USUAL
    # Its deletion was asked for; the finalizer keeps it until we are done.
    deleting: bool = False
    finalized: bool = True
    # The generation whose scaling was given up.
    aborted_generation: int | None = None

    @property
    def scaling_aborted(self) -> bool:
        return self.aborted_generation == self.generation


def shard_spec(body: Body) -> ShardSpec:
    meta, spec = body["metadata"], body.get("spec") or {}
    quorum = spec.get("quorum") or {}
    aborted = (meta.get("annotations") or {}).get(ABORTED, "")
    return ShardSpec(
        name=meta["name"],
        uid=meta.get("uid", ""),
        generation=meta.get("generation", 1),
        replicas=spec.get("replicas", 3),
        pool=spec.get("pool", "default"),
        quorum=QuorumPolicy(quorum.get("replication"), quorum.get("fencing")),
        topology_key=(spec.get("placement") or {}).get("topologyKey", TOPOLOGY_KEY),
        deletion=Deletion(spec.get("deletionPolicy", Deletion.RETAIN)),
        paused=bool(spec.get("paused", False)),
        upkeep=_upkeep(spec),
        deleting=bool(meta.get("deletionTimestamp")),
        finalized=FINALIZER in (meta.get("finalizers") or ()),
        aborted_generation=int(aborted) if aborted.isdecimal() else None,
    )


def _upkeep(spec: Body) -> Upkeep:
    retention = spec.get("retention") or {}
    time = retention.get("time")
    return Upkeep(
        retention_bytes=retention.get("bytes", 0),
        retention_ms=duration_ms(time) if time else 0,
        relaxed=spec.get("durability") == "Relaxed",
    )


class Operation(StrEnum):
    PROMOTE = "Promote"
    SWAP = "Swap"
    ABORT = "Abort"
    DRAIN = "Drain"
    ACCEPT_LOSS = "AcceptLoss"


class OperationPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


ENDED = (OperationPhase.SUCCEEDED, OperationPhase.FAILED)


@dataclass(frozen=True, slots=True)
class OperationSpec:
    """What a person asks for once, and how far it is by its own status."""

    name: str
    uid: str
    generation: int
    operation: Operation
    shard: str | None = None
    node: str | None = None
    old: str | None = None
    new: str | None = None
    entry: tuple[int, int] | None = None
    phase: OperationPhase = OperationPhase.PENDING
    # The change that it asked for has been seen under way.
    started: bool = False
    # When it was made, by the API server's clock, as the API writes times.
    created: str = ""
    deleting: bool = False

    @property
    def ended(self) -> bool:
        return self.phase in ENDED


def operation_spec(body: Body) -> OperationSpec:
    meta, spec, status = body["metadata"], body["spec"], body.get("status") or {}
    entry = spec.get("entry")
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    return OperationSpec(
        name=meta["name"],
        uid=meta.get("uid", ""),
        generation=meta.get("generation", 1),
        operation=Operation(spec["operation"]),
        shard=spec.get("shard"),
        node=spec.get("node"),
        old=spec.get("oldNode"),
        new=spec.get("newNode"),
        entry=(int(entry["epoch"]), int(entry["offset"])) if entry else None,
        phase=OperationPhase(status.get("phase") or OperationPhase.PENDING),
        started=conditions.get("Started") == "True",
        created=meta.get("creationTimestamp", ""),
        deleting=bool(meta.get("deletionTimestamp")),
    )
