"""ShardSnapshots as the API server hands them out, as values.

The ID that a snapshot gets at its destination follows from the object alone, before anything is
begun.  So however often its Job is made and its pods are started again, there is one snapshot of
it; and what is to be deleted with it is known even if nobody could write down how it went.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from shardlog.process.quantities import duration_ms
from shardlog_operator.spec import GROUP, Body, Deletion

Json = Any
SNAPSHOTS = "shardsnapshots"
SNAPSHOT_FINALIZER = f"{GROUP}/snapshot"
TIMEOUT = "24h"


class SnapshotPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    EXPIRED = "Expired"
    DELETING = "Deleting"


class Work(StrEnum):
    """What a Job does for a ShardSnapshot."""

    CREATE = "create"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class SnapshotSpec:
    """What is to be taken, and how far it is by its own status."""

    name: str
    uid: str
    generation: int
    created: str
    shard: str
    url: str
    secret: str | None = None
    claim: str | None = None
    node: str | None = None
    keep: int | None = None
    older_s: int | None = None
    timeout_s: int = duration_ms(TIMEOUT) // 1000
    deletion: Deletion = Deletion.RETAIN
    phase: SnapshotPhase = SnapshotPhase.PENDING
    # A Job was made, or may have been.
    begun: bool = False
    complete: bool = False
    failed: bool = False
    # What its retention has deleted.
    deleted: tuple[str, ...] = ()
    deleting: bool = False
    finalized: bool = False

    @property
    def ended(self) -> bool:
        return self.complete or self.failed or self.phase is SnapshotPhase.EXPIRED

    @property
    def id(self) -> str:
        return _id(self.created, self.uid)

    def job(self, work: Work) -> str:
        """Another object of the same name has other Jobs."""
        return f"{self.name}-{_digest(self.uid, work)}"


def id_of(body: Body) -> str:
    """Of the snapshot that an object asks for."""
    meta = body["metadata"]
    return _id(meta.get("creationTimestamp", ""), meta.get("uid", ""))


def _id(created: str, uid: str) -> str:
    """As the command makes them: when, and which."""
    return f"{re.sub('[-:]', '', created).removesuffix('Z')}.000Z-{_digest(uid)}"


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=4).hexdigest()


def snapshot_spec(body: Body) -> SnapshotSpec:
    meta, spec, status = body["metadata"], body["spec"], body.get("status") or {}
    destination, retention = spec["destination"], spec.get("retention") or {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    older = retention.get("time")
    return SnapshotSpec(
        name=meta["name"],
        uid=meta.get("uid", ""),
        generation=meta.get("generation", 1),
        created=meta.get("creationTimestamp", ""),
        shard=spec["shard"],
        url=destination["url"],
        secret=destination.get("secretName"),
        claim=destination.get("claimName"),
        node=spec.get("node"),
        keep=retention.get("keep"),
        older_s=duration_ms(older) // 1000 if older else None,
        timeout_s=duration_ms(spec.get("timeout", TIMEOUT)) // 1000,
        deletion=Deletion(spec.get("deletionPolicy", Deletion.RETAIN)),
        phase=SnapshotPhase(status.get("phase") or SnapshotPhase.PENDING),
        begun=bool(status.get("job")),
        complete=conditions.get("Complete") == "True",
        failed=conditions.get("Failed") == "True",
        deleted=tuple(status.get("deleted") or ()),
        deleting=bool(meta.get("deletionTimestamp")),
        finalized=SNAPSHOT_FINALIZER in (meta.get("finalizers") or ()),
    )
