"""The objects of the API as kopf's watches last told of them, and who wants to know.

Nothing here is the truth: an object may be older than what stands at the API server, so every write
names the version that it was made from.  What a write answers is taken at once, so that nobody
looks at what we have just replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardlog_operator.nodes import Nodes, node_pod, version_of
from shardlog_operator.snapshot_jobs import SNAPSHOT_LABEL
from shardlog_operator.snapshot_spec import SNAPSHOTS, id_of
from shardlog_operator.spec import OPERATIONS, SHARDS, Operation, OperationSpec, operation_spec

Json = Any
PODS = "pods"
Heard = Callable[[str], None]


class Watched:
    """What is `…_heard` of gets a name, `nodes_changed` is told of any change."""

    def __init__(self, nodes: Nodes, node_labels: dict[str, str]) -> None:
        self.nodes = nodes
        self._node_labels = node_labels
        self.shards: dict[str, Json] = {}
        self.operations: dict[str, Json] = {}
        self.snapshots: dict[str, Json] = {}
        # By ID: what is taken under it, and whose retention has deleted it.
        self._taken_as: dict[str, str] = {}
        self.deleters: dict[str, str] = {}
        self.shard_heard: Heard = _nobody
        self.operation_heard: Heard = _nobody
        self.snapshot_heard: Heard = _nobody
        self.nodes_changed: Callable[[], None] = lambda: None
        self.pod_heard: Heard = _nobody

    # --- kopf's side -----------------------------------------------------------------------------

    def shard(self, kind: str | None, body: Json) -> None:
        _take(self.shards, kind, body)
        self.shard_heard(body["metadata"]["name"])

    def operation(self, kind: str | None, body: Json) -> None:
        _take(self.operations, kind, body)
        self.operation_heard(body["metadata"]["name"])
        if body["spec"].get("operation") == Operation.DRAIN:
            self.nodes_changed()

    def snapshot(self, kind: str | None, body: Json) -> None:
        self._take_snapshot(kind, body)
        self.snapshot_heard(body["metadata"]["name"])

    def _take_snapshot(self, kind: str | None, body: Json) -> None:
        _take(self.snapshots, kind, body)
        name = body["metadata"]["name"]
        if kind == "DELETED":
            self._taken_as.pop(id_of(body), None)
        else:
            self._taken_as[id_of(body)] = name
        for each in (body.get("status") or {}).get("deleted") or ():
            if self.deleters.setdefault(each, name) == name and each in self._taken_as:
                self.snapshot_heard(self._taken_as[each])

    def job(self, kind: str | None, body: Json) -> None:
        """Only that it is not as it was: a Job is read when it is needed."""
        name = (body["metadata"].get("labels") or {}).get(SNAPSHOT_LABEL)
        if name in self.snapshots:
            self.snapshot_heard(name)

    def pod(self, kind: str | None, body: Json) -> None:
        meta = body["metadata"]
        labels = meta.get("labels") or {}
        if any(labels.get(name) != value for name, value in self._node_labels.items()):
            return
        if kind == "DELETED":
            changed = self.nodes.drop(meta["name"], meta.get("uid"))
        else:
            changed = self.nodes.take(node_pod(body))
        self.pod_heard(meta["name"])
        if changed:
            self.nodes_changed()

    def relist(self, plural: str, listing: Json) -> None:
        """All that there was of a kind: what else we know of is gone, if it is not newer still."""
        bodies, at = listing["items"], version_of(listing)
        there = {body["metadata"]["name"] for body in bodies}
        if plural == PODS:
            pods = self.nodes.pods.values()
            for name in [each.name for each in pods if each.version <= at]:
                if name not in there:
                    self.pod("DELETED", {"metadata": {"name": name} | self._labelled()})
            for body in bodies:
                self.pod(None, body)
            return
        known, take = {
            SHARDS: (self.shards, self.shard),
            OPERATIONS: (self.operations, self.operation),
            SNAPSHOTS: (self.snapshots, self.snapshot),
        }[plural]
        for gone in [each for each in known.values() if version_of(each) <= at]:
            if gone["metadata"]["name"] not in there:
                take("DELETED", gone)
        for body in bodies:
            before = known.get(body["metadata"]["name"])
            if before is None or version_of(before) < version_of(body):
                take(None, body)

    def _labelled(self) -> Json:
        return {"labels": dict(self._node_labels)}

    # --- our own writes --------------------------------------------------------------------------

    def wrote_shard(self, body: Json) -> None:
        _take(self.shards, None, body)

    def wrote_operation(self, body: Json) -> None:
        _take(self.operations, None, body)

    def wrote_snapshot(self, body: Json) -> None:
        self._take_snapshot(None, body)

    # --- looking ---------------------------------------------------------------------------------

    def drained(self) -> frozenset[str]:
        """Nodes that a Drain names, for as long as it is there."""
        drains = (each for each in self.specs() if each.operation is Operation.DRAIN)
        return frozenset(each.node for each in drains if each.node and not each.deleting)

    def specs(self) -> list[OperationSpec]:
        return [operation_spec(body) for body in self.operations.values()]


def _nobody(name: str) -> None:
    pass


def _take(known: dict[str, Json], kind: str | None, body: Json) -> None:
    """An older one is not taken for news, and another one of the name is not deleted by mistake."""
    meta = body["metadata"]
    name = meta["name"]
    before = known.get(name)
    same = before is not None and before["metadata"].get("uid") == meta.get("uid")
    if kind == "DELETED":
        if before is None or same:
            known.pop(name, None)
    elif before is None or version_of(body) >= version_of(before):
        known[name] = body
