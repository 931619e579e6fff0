"""Drives ShardSnapshots: writes where each stands, then makes or ends its Jobs.

The finalizer comes first, then the phase, then the Job: whoever finds Running makes the Job unless
it is there.  Its name follows from the object's UID, so several operators make one.  Once a
snapshot has ended nothing is done for it any more but to tell that a later one's retention has
deleted it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime
from typing import Any

from shardlog.coordinator.host import CoordinatorHost
from shardlog.process.logs import Logger
from shardlog_operator import snapshot_jobs
from shardlog_operator.events import Told
from shardlog_operator.kube import (
    ApiFailure,
    ApiUnavailable,
    Conflict,
    Forbidden,
    Kube,
    NotFound,
    Refused,
)
from shardlog_operator.publishing import EventPoster, written
from shardlog_operator.snapshot_jobs import BadTemplate, JobSeen, Said, is_of, job_seen, said
from shardlog_operator.snapshot_judging import Ending, Verdict, ending, judge
from shardlog_operator.snapshot_spec import (
    SNAPSHOT_FINALIZER,
    SnapshotPhase,
    SnapshotSpec,
    Work,
    snapshot_spec,
)
from shardlog_operator.snapshot_status import expired, status_of, status_of_end
from shardlog_operator.watched import Watched

Json = Any
AGAIN_S = 1.0
CONFLICT_S = 0.2
STARTS_S = 2.0
"""A pod that has not started is looked at so often: nobody else tells why."""
REFUSED_S = 15.0
BROKEN_S = 60.0
AT_WORK_S = 60.0
BACKGROUND, FOREGROUND = "Background", "Foreground"


class NotMade(Exception):  # noqa: N818 - named after what happened
    """A Job could not be made; `reason` and the message are for the status."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Snapshotting:
    """`template` names the PodTemplate of the pods."""

    def __init__(
        self,
        kube: Kube,
        watched: Watched,
        host: CoordinatorHost,
        template: str | None,
        poster: EventPoster,
        log: Logger,
    ) -> None:
        self._kube = kube
        self._watched = watched
        self._host = host
        self._template = template
        self._poster = poster
        self._log = log

    async def look(self, name: str) -> float | None:
        """Seconds until it is to be looked at again though nothing is heard."""
        body = self._watched.snapshots.get(name)
        if body is None:
            return None
        asked = snapshot_spec(body)
        try:
            if asked.deleting:
                return await self._end(body, asked) if asked.finalized else None
            if asked.ended:
                return await self._look_for_expiry(body, asked)
            if not self._host.begun.is_set():
                return AGAIN_S
            if not asked.finalized:
                asked = snapshot_spec(body := await self._change_finalizers(body, add=True))
            return await self._go_on(body, asked)
        except Conflict:
            return CONFLICT_S
        except NotFound:
            return AGAIN_S
        except ApiUnavailable as failure:
            self._log.info("snapshot waits", snapshot=name, why=str(failure))
            return AGAIN_S
        except ApiFailure as failure:
            self._log.error("snapshot waits", snapshot=name, why=str(failure))
            await self._say_refused(name, failure)
            return REFUSED_S
        except Exception:
            self._log.exception("snapshot failed", snapshot=name)
            return BROKEN_S

    # --- taking it -------------------------------------------------------------------------------

    async def _go_on(self, body: Json, asked: SnapshotSpec) -> float | None:
        job, pods = await self._seen(asked, Work.CREATE) if asked.begun else (None, Said())
        record = self._host.shards.get(asked.shard)
        is_there = asked.shard in self._watched.shards
        verdict = judge(asked, record, is_there, job, pods, _since_s(asked.created))
        if verdict.make and asked.begun:
            # Nothing new to tell; whoever has an old object conflicts here, and makes no Job.
            body = await self._put(body, asked, body["status"])
        else:
            body = await self._write(body, asked, verdict)
        if verdict.discard and job is not None:
            await self._delete_job(job, FOREGROUND)
            return AGAIN_S
        if verdict.make:
            try:
                await self._make(asked, Work.CREATE)
            except NotMade as failure:
                waits = Verdict(SnapshotPhase.PENDING, failure.reason, str(failure))
                await self._write(body, snapshot_spec(body), waits)
                return REFUSED_S
            return STARTS_S
        if verdict.phase is SnapshotPhase.PENDING:
            return AGAIN_S
        if verdict.phase is SnapshotPhase.RUNNING:
            return AT_WORK_S if job is not None and job.ready else STARTS_S
        return None

    async def _look_for_expiry(self, body: Json, asked: SnapshotSpec) -> float | None:
        if asked.complete:
            by = self._watched.deleters.get(asked.id)
            if by is not None:
                await self._write(body, asked, expired(by))
        return None

    async def _say_refused(self, name: str, failure: ApiFailure) -> None:
        """The operator may not do what it has to: that stands in the status, if that may be."""
        body = self._watched.snapshots.get(name)
        if body is None or (asked := snapshot_spec(body)).ended or asked.deleting:
            return
        waits = Verdict(SnapshotPhase.PENDING, "ApiRefused", str(failure))
        with suppress(ApiFailure):
            await self._write(body, asked, waits)

    # --- its end ---------------------------------------------------------------------------------

    async def _end(self, body: Json, asked: SnapshotSpec) -> float | None:
        taking, _ = await self._seen(asked, Work.CREATE, pods=False)
        deleting, pods = await self._seen(asked, Work.DELETE)
        idle_s = _since_s(deleting.ended) if deleting is not None and deleting.ended else 0.0
        end = ending(asked, taking, deleting, pods, idle_s)
        if end.done:
            if taking is not None:
                await self._delete_job(taking, BACKGROUND)
            self._poster.tell(body, Told(end.reason, end.message))
            await self._change_finalizers(body, add=False)
            return None
        if end.stop and taking is not None:
            await self._delete_job(taking, FOREGROUND)
        if end.discard and deleting is not None:
            await self._delete_job(deleting, FOREGROUND)
        if end.make:
            try:
                await self._make(asked, Work.DELETE)
            except NotMade as failure:
                if failure.reason == "NamespaceTerminating":
                    self._poster.tell(body, Told("Retained", f"{asked.id} stays: {failure}"))
                    await self._change_finalizers(body, add=False)
                    return None
                end = Ending(reason=failure.reason, message=str(failure), stuck=True)
        await self._write_end(body, asked, end)
        return REFUSED_S if end.stuck else STARTS_S

    async def _write_end(self, body: Json, asked: SnapshotSpec, end: Ending) -> None:
        before = body.get("status") or {}
        status = status_of_end(asked, before, end, written(time.time()))
        if status == before:
            return
        await self._put(body, asked, status)
        if end.message != before.get("message"):
            self._poster.tell(body, Told(end.reason, end.message, warning=end.stuck))

    # --- calls -----------------------------------------------------------------------------------

    async def _seen(
        self, asked: SnapshotSpec, work: Work, *, pods: bool = True
    ) -> tuple[JobSeen | None, Said]:
        name = asked.job(work)
        try:
            job = job_seen(await self._kube.get(self._kube.job(name)))
        except NotFound:
            return None, Said()
        if not pods or (job.ready and not job.attempts_failed):
            return job, Said()
        label = f"{snapshot_jobs.JOB_NAME_LABEL}={name}"
        found = await self._kube.get(self._kube.listing("pods", label))
        return job, said([each for each in found["items"] if is_of(each, job)])

    async def _make(self, asked: SnapshotSpec, work: Work) -> None:
        """Raises `NotMade`; that another operator was first is as good."""
        if self._template is None:
            raise NotMade("NoTemplate", "this operator has no snapshot_template")
        try:
            template = await self._kube.get(self._kube.pod_template(self._template))
            made = snapshot_jobs.job(asked, work, template, self._kube.namespace)
        except NotFound:
            told = f"there is no PodTemplate {self._template}"
            raise NotMade("NoTemplate", told) from None
        except BadTemplate as failure:
            raise NotMade("BadTemplate", str(failure)) from failure
        try:
            await self._kube.create(self._kube.job(), made)
        except Conflict:
            return
        except (Forbidden, Refused) as failure:
            reason = "NamespaceTerminating" if failure.is_terminating else "JobRefused"
            raise NotMade(reason, f"its Job is refused: {failure}") from failure

    async def _delete_job(self, job: JobSeen, propagation: str) -> None:
        if not job.leaving:
            await self._kube.delete(self._kube.job(job.name), job.uid, propagation)

    async def _change_finalizers(self, body: Json, *, add: bool) -> Json:
        meta = body["metadata"]
        kept = [each for each in meta.get("finalizers") or () if each != SNAPSHOT_FINALIZER]
        finalizers = [*kept, SNAPSHOT_FINALIZER] if add else kept
        version = meta.get("resourceVersion")
        change = {"metadata": {"finalizers": finalizers, "resourceVersion": version}}
        changed = await self._kube.patch(self._kube.snapshot(meta["name"]), change)
        if add:
            self._watched.wrote_snapshot(changed)
        return changed

    async def _write(self, body: Json, asked: SnapshotSpec, verdict: Verdict) -> Json:
        """The object as it is then."""
        before = body.get("status") or {}
        status = status_of(asked, before, verdict, written(time.time()))
        if status == before:
            return body
        changed = await self._put(body, asked, status)
        if verdict.is_warning:
            told = Told(verdict.reason, verdict.message, warning=True)
        else:
            told = Told(verdict.phase.value, verdict.message)
        is_other = verdict.is_warning and verdict.message != before.get("message")
        if verdict.phase is not asked.phase or is_other:
            self._poster.tell(changed, told)
        return changed

    async def _put(self, body: Json, asked: SnapshotSpec, status: Json) -> Json:
        path = self._kube.snapshot(asked.name, "status")
        changed = await self._kube.replace(path, {**body, "status": status})
        self._watched.wrote_snapshot(changed)
        return changed


def _since_s(at: str) -> float:
    return time.time() - datetime.fromisoformat(at).timestamp() if at else 0.0
