"""The readiness gate `shardlog.dev/replicated` of node pods: what an upgrade waits for.

A StatefulSet goes on to its next pod once the one before is ready, and a disruption budget counts
ready pods.  Containers that run are not enough: a replica that has just restarted still lacks what
was written meanwhile, and to restart the next node then would leave some entry on too few.  So a
pod becomes ready when every shard it hosts is fully replicated again, on all of its members.

Once open, a gate closes only for what its own replicas lack.  That some other node is lost is no
reason to take this one out of service as well.

A record that cannot be read, that of a newer operator say, does not tell who its members are; and
nobody here would bring a restarted one back into its ensemble.  So no pod is let through then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shardlog_operator.nodes import GATE, NodePod

Json = Any


@dataclass(frozen=True, slots=True)
class Replication:
    """Of one shard: who its members are and which of them lack something; None if unknown."""

    members: frozenset[str] | None
    behind: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Gate:
    open: bool
    reason: str
    message: str


def gate_of(pod: NodePod, shards: Mapping[str, Replication]) -> Gate | None:
    """What the gate of a pod shall say; None if it shall stay as it is."""
    if not pod.gated or not pod.running:
        return None
    hosted = {name: each for name, each in shards.items() if pod.name in (each.members or ())}
    unreadable = sorted(name for name, each in shards.items() if each.members is None)
    unknown = sorted(name for name, each in hosted.items() if each.behind is None)
    own = sorted(name for name, each in hosted.items() if pod.name in (each.behind or ()))
    others = sorted(name for name, each in hosted.items() if each.behind)
    if own:
        return _gate(pod, False, "ReplicasBehind", f"its replicas lack entries: {_some(own)}")
    if pod.gate == "True":
        return None
    if others:
        told = f"shards it hosts are not fully replicated: {_some(others)}"
        return _gate(pod, False, "ShardsBehind", told)
    if unreadable:
        told = f"it may host shards whose records cannot be read here: {_some(unreadable)}"
        return _gate(pod, False, "RecordUnreadable", told)
    if unknown:
        return _gate(pod, False, "NoAnswer", f"nobody leads now: {_some(unknown)}")
    return _gate(pod, True, "FullyReplicated", f"{len(hosted)} shards are fully replicated")


def _gate(pod: NodePod, is_open: bool, reason: str, message: str) -> Gate | None:
    if pod.gate == ("True" if is_open else "False"):
        return None
    return Gate(is_open, reason, message)


def _some(names: Iterable[str]) -> str:
    known = list(names)
    return ", ".join(known[:3]) + (f" and {len(known) - 3} more" if len(known) > 3 else "")


def patch(gate: Gate, at: str) -> Json:
    """A strategic merge: conditions of a pod are merged by their type."""
    condition = {
        "type": GATE,
        "status": "True" if gate.open else "False",
        "reason": gate.reason,
        "message": gate.message,
        "lastTransitionTime": at,
    }
    return {"status": {"conditions": [condition]}}
