"""Events: every decision with its reason, and what became of it, where `kubectl describe` looks.

Several operators may come to the same decision, so an event's name follows from what it says: who
is second finds it there.  Decisions carry the epoch or the nodes that they are about; what may be
said again later with the same words gets a new name after a while.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from shardlog.protocol.shard import Shard, Status
from shardlog_operator.planning import described

Json = Any
SAME_FOR_S = 600
MESSAGE_MAX = 1000


@dataclass(frozen=True, slots=True)
class Told:
    """`reason` is CamelCase; a warning is for somebody to look at."""

    reason: str
    message: str
    warning: bool = False


def manifest(told: Told, about: Json, component: str, instance: str, now_s: float, at: str) -> Json:
    """`about` is the object; `at` is `now_s` as the API writes it."""
    meta = about["metadata"]
    said = (meta.get("uid", ""), told.reason, told.message, str(int(now_s // SAME_FOR_S)))
    digest = hashlib.blake2b("\0".join(said).encode(), digest_size=8).hexdigest()
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name']}.{digest}", "namespace": meta["namespace"]},
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta.get("uid", ""),
            "resourceVersion": meta.get("resourceVersion", ""),
        },
        "type": "Warning" if told.warning else "Normal",
        "reason": told.reason,
        "message": told.message[:MESSAGE_MAX],
        "action": told.reason,
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": instance,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


def changes(before: Shard | None, now: Shard | None) -> list[Told]:
    """What became of a shard between two looks at its record; None: there was none."""
    if now is None or before == now:
        return []
    if before is None:
        return _elected(now)
    found: list[Told] = []
    if now.halted and not before.halted:
        found.append(Told("Halted", now.halted, warning=True))
    if now.status is Status.ELECTION and before.status is not Status.ELECTION:
        found.append(Told("Electing", f"epoch {now.epoch}: a leader is elected"))
    if (before.leader, before.status) != (now.leader, now.status):
        found += _elected(now)
    if now.change and now.change != before.change:
        found.append(Told("Reconfiguring", f"epoch {now.epoch}: {described(now)}"))
    members, were = _nodes(now), _nodes(before)
    if members != were and now.epoch:
        found.append(
            Told("Reconfigured", f"epoch {now.epoch}: the members are {', '.join(members)}")
        )
    elif now.status is Status.STEADY and not now.change and _was_changing(before, now):
        told = f"epoch {now.epoch}: {described(before)}"
        found.append(Told("ReconfigurationAborted", told, warning=True))
    return found


def _elected(now: Shard) -> list[Told]:
    if now.status is not Status.STEADY or now.leader is None:
        return []
    return [Told("LeaderElected", f"epoch {now.epoch}: {now.leader.node} leads")]


def _was_changing(before: Shard, now: Shard) -> bool:
    """It was prepared, or somebody was joining; and nobody is any more."""
    return bool(before.change or (before.joining and not now.joining))


def _nodes(shard: Shard) -> list[str]:
    return [member.node for member in shard.ensemble]
