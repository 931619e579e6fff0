"""What the HTTP API says, as values for JSON, and what it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardlog.local.administration import Administration, BadRequest
from shardlog.protocol.coordination import AbortChange, Command, Promote, Swap, TrimShard
from shardlog.protocol.messages import StatusReport
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Shard

Json = Any
AddressOf = Callable[[str], str | None]
JOINING = "JOINING"


# --- said ----------------------------------------------------------------------------------------


def shard_json(shard: Shard, administration: Administration, data_address: AddressOf) -> Json:
    members = [member.node for member in shard.ensemble]
    nodes = dict.fromkeys(members)
    change = _reconfiguration(shard)
    if change and change["new"]:
        nodes[change["new"]] = None
    addresses = {node: data_address(node) for node in nodes}
    return {
        "name": shard.name,
        "status": shard.status.value,
        "epoch": shard.epoch,
        "leader": shard.leader.node if shard.leader else None,
        "ensemble": members,
        "replicas": administration.replicas_wanted(shard),
        "quorum": {"replication": shard.quorum.replication, "fencing": shard.quorum.fencing},
        "addresses": {node: address for node, address in addresses.items() if address},
        "reconfiguration": change,
        "halted": administration.trouble(shard),
    }


def _reconfiguration(shard: Shard) -> Json:
    """One that is prepared or committed, or a node that joins before that."""
    change, joining = shard.change, shard.joining
    if change is not None and shard.phase is not None:
        return {
            "operation": change.operation.value,
            "phase": shard.phase.value,
            "old": change.old.node if change.old else None,
            "new": change.new.node if change.new else None,
        }
    if joining is not None:
        return {
            "operation": joining.operation.value,
            "phase": "CANCELLED" if joining.cancelled else JOINING,
            "old": joining.old.node if joining.old else None,
            "new": joining.node,
        }
    return None


def report_json(report: StatusReport, leader_end: int | None) -> Json:
    """`lag` counts records behind the leader; None while nobody leads."""
    return {
        "node": report.member.node,
        "role": report.role,
        "epoch": report.epoch,
        "history": [[span.epoch, span.first] for span in report.history],
        "end": report.end,
        "commit": report.commit,
        "lag": None if leader_end is None else max(0, leader_end - report.end),
        "leader": report.leader.node if report.leader else None,
        "heard_ms_ago": None if report.heard_ms_ago < 0 else report.heard_ms_ago,
        "serving": report.serving,
        "cursors": [
            {
                "node": cursor.member.node,
                "acked": cursor.acked,
                "standby": cursor.standby,
                "lost": cursor.lost,
            }
            for cursor in report.cursors
        ],
    }


def reports_json(shard: Shard, reports: list[StatusReport]) -> Json:
    ends = [each.end for each in reports if each.member == shard.leader and each.serving]
    return [report_json(each, ends[0] if ends else None) for each in reports]


# --- told ----------------------------------------------------------------------------------------


class Body:
    """A JSON object; every field is asked for, and no other may be there."""

    def __init__(self, found: Json) -> None:
        if not isinstance(found, dict):
            raise BadRequest("the body is no JSON object")
        self._left = dict(found)

    def text(self, name: str) -> str:
        value = self._left.pop(name, None)
        if not isinstance(value, str) or not value:
            raise BadRequest(f"{name}: a text is needed")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        value = self._left.pop(name, default)
        if type(value) is not int:
            raise BadRequest(f"{name}: a whole number is needed")
        return int(value)

    def texts(self, name: str) -> list[str] | None:
        value = self._left.pop(name, None)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise BadRequest(f"{name}: a list of texts is needed")
        return list(value)

    def quorum(self, name: str) -> QuorumPolicy:
        value = self._left.pop(name, None)
        if value is None:
            return QuorumPolicy()
        inner = Body(value)
        numbers = [inner._left.pop(each, None) for each in ("replication", "fencing")]
        inner.require_no_more()
        if any(each is not None and (type(each) is not int or each < 1) for each in numbers):
            raise BadRequest(f"{name}: replication and fencing are whole numbers from 1 on")
        return QuorumPolicy(*numbers)

    def require_no_more(self) -> None:
        if self._left:
            raise BadRequest(f"{next(iter(self._left))!r:.80} is not known here")


def operation(body: Body) -> Command:
    name = body.text("operation")
    command: Command
    match name:
        case "promote":
            command = Promote(body.text("node"))
        case "swap":
            command = Swap(body.text("old"), body.text("new"))
        case "abort":
            command = AbortChange()
        case "trim":
            command = TrimShard(body.number("first"))
        case _:
            raise BadRequest(f"{name!r:.80} is no operation: promote, swap, abort or trim")
    body.require_no_more()
    return command
