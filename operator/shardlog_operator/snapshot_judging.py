"""Where a ShardSnapshot stands, and what is to be done for it now.

Pure, and from levels alone: the object, whether its shard is there, its Job and what the pods say.
An operator that was killed anywhere, or another one, comes to the same.  Succeeded is only what the
command itself has reported, after the manifest was written: nothing half done looks complete.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shardlog.protocol.shard import Shard, Status
from shardlog_operator.operations import hosts
from shardlog_operator.snapshot_jobs import RETRIES_MAX, Course, JobSeen, Said
from shardlog_operator.snapshot_spec import SnapshotPhase, SnapshotSpec
from shardlog_operator.spec import Deletion

Json = Any
PATIENCE_S = 10.0
"""A Shard that is applied together with its ShardSnapshot may be heard of later."""
DELETE_AGAIN_S = 60.0
WARNINGS = ("PodWaits", "TriesAgain", "NoTemplate", "BadTemplate", "JobRefused", "ApiRefused")
TEXTS = ("id", "manifest")
NUMBERS = ("first", "end", "epoch", "records", "bytes", "segments", "written_bytes",
           "written_segments", "reused_bytes", "reused_segments", "given_up")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """`make`: the Job is to be there. `discard`: the one that is there tells nothing any more."""

    phase: SnapshotPhase
    reason: str
    message: str
    make: bool = False
    discard: bool = False
    result: Json = field(default=None)

    @property
    def is_warning(self) -> bool:
        return self.phase is SnapshotPhase.FAILED or self.reason in WARNINGS


def _pending(reason: str, message: str) -> Verdict:
    return Verdict(SnapshotPhase.PENDING, reason, message)


def _failed(reason: str, message: str) -> Verdict:
    return Verdict(SnapshotPhase.FAILED, reason, message)


def _runs(reason: str, message: str, **fields: bool) -> Verdict:
    return Verdict(SnapshotPhase.RUNNING, reason, message, **fields)


def judge(
    asked: SnapshotSpec,
    record: Shard | None,
    shard_is_there: bool,
    job: JobSeen | None,
    pods: Said,
    age_s: float,
) -> Verdict:
    """`shard_is_there`: there is a Shard of that name; `age_s`: since the object was made."""
    if job is None:
        return _before(asked, record, shard_is_there, age_s)
    if job.leaving:
        return _runs("JobLeaves", f"Job {job.name} is being deleted, and is made again")
    match job.course:
        case Course.COMPLETE:
            return _after(job, pods)
        case Course.FAILED:
            return _after_failure(job, pods)
    return _meanwhile(job, pods)


def _before(
    asked: SnapshotSpec, record: Shard | None, shard_is_there: bool, age_s: float
) -> Verdict:
    if record is None and shard_is_there:
        return _pending("ShardNotCreated", f"shard {asked.shard} is not created yet")
    if record is None:
        told = f"there is no Shard {asked.shard}"
        is_late = age_s >= PATIENCE_S
        return _failed("NoSuchShard", told) if is_late else _pending("NoSuchShard", told)
    if record.status is Status.DELETING:
        return _failed("ShardDeleting", f"shard {asked.shard} is being deleted")
    if asked.node is not None and asked.node not in hosts(record):
        nodes = ", ".join(member.node for member in record.ensemble)
        told = f"{asked.node} holds no replica of {asked.shard}, but {nodes} do"
        return _failed("NoSuchReplica", told)
    return _runs("JobMade", f"Job takes a snapshot of {asked.shard}", make=True)


def _meanwhile(job: JobSeen, pods: Said) -> Verdict:
    if pods.waits and not job.ready:
        return _runs("PodWaits", f"its pod waits: {pods.waits}")
    if job.attempts_failed:
        _, why = _why(job, pods)
        told = f"attempt {job.attempts_failed} of {RETRIES_MAX + 1} failed: {why}; tries again"
        return _runs("TriesAgain", told)
    return _runs("JobMade", f"Job {job.name} is at work" if job.ready else f"Job {job.name} starts")


def _after(job: JobSeen, pods: Said) -> Verdict:
    if not pods.pods:
        # It is there, or it is made again under the same ID: then its Job will say.
        told = f"the pod of Job {job.name} is gone with its report: it is asked again"
        return _runs("ReportLost", told, discard=True)
    found = pods.report
    if not _is_whole(found):
        told = f"Job {job.name} has succeeded without a report: is its image of this version?"
        return _failed("NoReport", told)
    told = f"[{found['first']}, {found['end']}): {found['records']} records"
    return Verdict(SnapshotPhase.SUCCEEDED, "Succeeded", told, result=found)


def _is_whole(report: Json) -> bool:
    return report is not None and (
        all(isinstance(report.get(name), str) for name in TEXTS)
        and all(isinstance(report.get(name), int) for name in NUMBERS)
        and all(isinstance(each, str) for each in report.get("deleted") or ())
    )


def _after_failure(job: JobSeen, pods: Said) -> Verdict:
    return _failed(*_why(job, pods))


def _why(job: JobSeen, pods: Said) -> tuple[str, str]:
    """The command's own words; else how its container ended; else what the Job says."""
    if job.reason == "DeadlineExceeded":
        seen = pods.waits or (pods.report or {}).get("message") or ""
        return job.reason, "not within its timeout" + (f"; last: {seen}" if seen else "")
    if pods.report is not None and "failed" in pods.report:
        return str(pods.report["failed"]), str(pods.report.get("message", ""))
    if pods.message:
        return pods.reason or "Failed", pods.message
    return job.reason or "JobFailed", job.message or f"Job {job.name} has failed"


# --- the end -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ending:
    """`done`: the object may go.  `stop`: the Job that takes the snapshot is still to be ended."""

    done: bool = False
    stop: bool = False
    make: bool = False
    discard: bool = False
    reason: str = ""
    message: str = ""
    stuck: bool = False


def ending(
    asked: SnapshotSpec, taking: JobSeen | None, deleting: JobSeen | None, pods: Said, idle_s: float
) -> Ending:
    """`deleting` is the Job that deletes, `pods` are its own; `idle_s`: since it ended."""
    gone = not asked.begun or asked.failed or asked.phase is SnapshotPhase.EXPIRED
    if asked.deletion is Deletion.RETAIN or gone:
        told = f"{asked.id} stays at {asked.url}" if not gone else "there is no snapshot of it"
        return Ending(True, taking is not None, reason="NothingDeleted" if gone else "Retained",
                      message=told)  # fmt: skip
    if taking is not None and taking.course is Course.ACTIVE:
        return Ending(stop=True, reason="Deleting", message=f"Job {taking.name} is stopped")
    if deleting is None:
        told = f"{asked.id} is deleted from {asked.url}"
        return Ending(make=True, reason="Deleting", message=told)
    if deleting.leaving or deleting.course is Course.ACTIVE:
        waits = f": its pod waits: {pods.waits}" if pods.waits and not deleting.ready else ""
        return Ending(reason="Deleting", message=f"Job {deleting.name} deletes {asked.id}{waits}")
    if deleting.course is Course.COMPLETE:
        return Ending(True, reason="Deleted", message=f"{asked.id} is deleted from {asked.url}")
    reason, why = _why(deleting, pods)
    if reason == "NoSuchSnapshot":
        return Ending(True, reason="Deleted", message=f"{asked.id} is not there any more")
    told = f"{why}; it is tried again, and with deletionPolicy Retain it goes and the data stay"
    return Ending(discard=idle_s >= DELETE_AGAIN_S, reason=reason, message=told, stuck=True)
