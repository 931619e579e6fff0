"""The storage commands' JSON.  Scripts read it: fields are added, never renamed or given up.

`docs/storage-commands.md` describes it.  Checksums and incarnations use all of 64 bits, which many
readers of JSON round, so they are strings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardlog.protocol.messages import Snapshot
    from shardlog.storage.findings import Finding, Found
    from shardlog.storage.inspection import Inspection, SegmentSummary
    from shardlog.storage.root import Root

Json = dict[str, Any]


def replica(inspection: Inspection) -> Json:
    from shardlog.storage.layout import FORMAT_VERSION

    told: Json = {"directory": inspection.directory, "format_version": FORMAT_VERSION}
    told |= _root(inspection.root) if inspection.root else {"shard": None, "node": None}
    context = inspection.context
    told["commit_context"] = {"end": context.end, "checksum": checksum(context.checksum)}
    told["superblock"] = [
        {"place": place.number, "sequence": place.sequence, "state": place.state}
        for place in inspection.places
    ]
    told["segments"] = [segment(inspection, each) for each in inspection.segments]
    told["findings"] = [finding(each) for each in inspection.findings]
    return told


def _root(root: Root) -> Json:
    block = root.superblock
    return {
        "shard": root.shard,
        "node": root.node,
        "incarnation": str(block.incarnation),
        "lineage": root.lineage,
        "epoch": block.epoch,
        "led": block.led,
        "history": [{"epoch": span.epoch, "first": span.first} for span in block.history],
        "first": root.first,
        "boundary": checksum(root.boundary),
        "commit": block.commit,
        "cut_to": root.cut_to,
        "segments_made": root.segments,
        "in_doubt": block.in_doubt,
        "sessions": len(block.sessions),
        "sessions_at": block.sessions_at,
        "syncing": _syncing(block.syncing),
        "records": [
            {
                "sequence": record.sequence,
                "type": record.type.name,
                "number": record.number,
                "epoch": record.epoch,
                "offset": record.offset,
            }
            for record in root.records
        ],
    }


def _syncing(snapshot: Snapshot | None) -> Json | None:
    if snapshot is None:
        return None
    return {"source": str(snapshot.source), "first": snapshot.first, "end": snapshot.end}


def segment(inspection: Inspection, summary: SegmentSummary) -> Json:
    known = summary.segment
    return {
        "file": summary.path.rpartition("/")[2],
        "state": segment_state(inspection, summary),
        "first": known.first if known else None,
        "end": summary.end,
        "entries": summary.entries if known else None,
        "slots": known.head.slots if known else None,
        "used_bytes": known.position if known else None,
        "size_bytes": known.head.size if known else None,
    }


def segment_state(inspection: Inspection, summary: SegmentSummary) -> str:
    if summary.left_over:
        return "left over"
    if summary.segment is None:
        return "unreadable"
    return "damaged" if inspection.is_damaged(summary.path) else "ok"


def entry(found: Found) -> Json:
    """A stretch that cannot be read has a count of 0 if nobody knows how far it reaches."""
    header = found.header
    return {
        "state": found.mark.name.lower(),
        "epoch": header.epoch,
        "offset": header.base,
        "count": header.count,
        "kind": header.kind.name,
        "session": header.session,
        "request": header.request,
        "timestamp_ms": header.timestamp_ms,
        "checksum": checksum(header.checksum),
        "parent": checksum(header.parent),
        "file": found.path.rpartition("/")[2],
        "position": found.position,
        "body_bytes": found.length,
    }


def finding(each: Finding) -> Json:
    return {
        "file": each.path,
        "position": each.position,
        "what": each.what,
        "consequence": each.consequence.name.lower(),
        "damage": each.is_damage,
    }


def checksum(value: int) -> str:
    return f"{value:016x}"
