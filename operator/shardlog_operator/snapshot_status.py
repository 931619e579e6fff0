"""The status of a ShardSnapshot, from what was judged; what was taken stays in it for good."""

from __future__ import annotations

from typing import Any

from shardlog_operator.conditions import Condition, Truth, merged
from shardlog_operator.snapshot_judging import Ending, Verdict
from shardlog_operator.snapshot_spec import SnapshotPhase, SnapshotSpec, Work
from shardlog_operator.spec import Deletion

Json = Any
DONE = (SnapshotPhase.SUCCEEDED, SnapshotPhase.FAILED)


def status_of(asked: SnapshotSpec, before: Json, verdict: Verdict, at: str) -> Json:
    """`before` is the status so far, `at` is now, as the API writes it."""
    phase = verdict.phase
    conditions = [
        Condition("Complete", Truth.of(phase is SnapshotPhase.SUCCEEDED), verdict.reason,
                  verdict.message),
        Condition("Failed", Truth.of(phase is SnapshotPhase.FAILED), verdict.reason,
                  verdict.message),
    ]  # fmt: skip
    status: Json = {
        **before,
        "phase": phase.value,
        "message": verdict.message,
        "observedGeneration": asked.generation,
        "conditions": merged(before.get("conditions") or (), conditions, asked.generation, at),
    }
    if verdict.make or phase is SnapshotPhase.RUNNING:
        status |= {
            "job": asked.job(Work.CREATE),
            "snapshot": asked.id,
            "startedAt": before.get("startedAt", at),
        }
    if verdict.result is not None:
        status |= taken(verdict.result)
    if phase in DONE:
        status["completedAt"] = before.get("completedAt", at)
    return status


def taken(report: Json) -> Json:
    """Of what the command has reported."""
    found = {
        "snapshot": report["id"],
        "manifest": report["manifest"],
        "range": {"start": report["first"], "end": report["end"]},
        "epoch": report["epoch"],
        "records": report["records"],
        "givenUp": report["given_up"],
        "bytes": report["bytes"],
        "segments": report["segments"],
        "written": {"bytes": report["written_bytes"], "segments": report["written_segments"]},
        "shared": {"bytes": report["reused_bytes"], "segments": report["reused_segments"]},
    }
    if report.get("deleted"):
        found["deleted"] = report["deleted"]
    return found


def expired(by: str) -> Verdict:
    """`by` is whose retention has deleted it."""
    return Verdict(SnapshotPhase.EXPIRED, "Expired", f"deleted by the retention of {by}")


def status_of_end(asked: SnapshotSpec, before: Json, end: Ending, at: str) -> Json:
    """How it went stays in it until it is gone."""
    known = before.get("conditions") or []
    conditions = [each for each in known if each["type"] != "DataDeleted"]
    if asked.deletion is Deletion.DELETE:
        told = Condition("DataDeleted", Truth.of(end.done), end.reason, end.message)
        conditions += merged(known, [told], asked.generation, at)
    return {
        **before,
        "phase": SnapshotPhase.DELETING.value,
        "message": end.message,
        "observedGeneration": asked.generation,
        "conditions": conditions,
    }
