"""What the directory of a cluster says of a shard, as JSON: on one machine and on Kubernetes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardlog.protocol.choice import Waiting
from shardlog.protocol.entry import EntryId, Header
from shardlog.protocol.messages import StatusReport
from shardlog.protocol.shard import Shard
from shardlog.protocol.transferring import Transfer

Json = Any
AddressOf = Callable[[str], str | None]
JOINING = "JOINING"


def shard_json(
    shard: Shard,
    replicas: int,
    trouble: str | None,
    data_address: AddressOf,
    waiting: Waiting | None = None,
    at_stake: Header | None = None,
) -> Json:
    """`replicas` is how many there shall be, `trouble` why nothing more is done for it."""
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
        "replicas": replicas,
        "quorum": {"replication": shard.quorum.replication, "fencing": shard.quorum.fencing},
        "retention": {
            "bytes": shard.upkeep.retention_bytes or None,
            "time_ms": shard.upkeep.retention_ms or None,
        },
        "durability": "Relaxed" if shard.upkeep.relaxed else "Sync",
        "addresses": {node: address for node, address in addresses.items() if address},
        "reconfiguration": change,
        "halted": trouble,
        "waiting": waiting_json(waiting, at_stake),
        "losses": [loss_json(lost) for lost in shard.losses],
    }


def waiting_json(waiting: Waiting | None, at_stake: Header | None = None) -> Json:
    """`nodes` are those from which what is awaited could come.

    `at_stake` is what would be lost if nobody waited any longer.
    """
    if waiting is None:
        return None
    return {
        "reason": waiting.reason,
        "entry": entry_json(waiting.entry),
        "nodes": [member.node for member in waiting.members],
        "at_stake": loss_json(at_stake) if at_stake else None,
    }


def loss_json(lost: Header) -> Json:
    """`end` is None if all from `first` on was given up."""
    return {"epoch": lost.epoch, "first": lost.base, "end": lost.end if lost.count else None}


def entry_json(entry: EntryId | None) -> Json:
    return None if entry is None else {"epoch": entry.epoch, "offset": entry.offset}


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
        "bad": report.bad,
        "awaited": entry_json(report.awaited),
        "repaired": report.repaired,
        "scrubbed": report.scrubbed,
        "scrub_rounds": report.scrub_rounds,
        "cursors": [
            {
                "node": cursor.member.node,
                "acked": cursor.acked,
                "standby": cursor.standby,
                "lost": cursor.lost,
                "heard_ms_ago": cursor.heard_ms_ago,
                "sent_bytes": cursor.sent_bytes,
            }
            for cursor in report.cursors
        ],
        "transfer": _transfer(report.transfer),
        "full": report.full,
    }


def _transfer(transfer: Transfer | None) -> Json:
    """How far a replica is that receives what it lacks."""
    if transfer is None:
        return None
    return {
        "source": transfer.source.node,
        "first": transfer.first,
        "at": transfer.at,
        "end": transfer.end,
        "done_bytes": transfer.done_bytes,
        "bytes_per_s": transfer.bytes_per_s,
    }


def reports_json(shard: Shard, reports: list[StatusReport]) -> Json:
    ends = [each.end for each in reports if each.member == shard.leader and each.serving]
    return [report_json(each, ends[0] if ends else None) for each in reports]
