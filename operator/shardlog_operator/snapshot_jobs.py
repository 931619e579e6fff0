"""The Jobs that take and delete snapshots: what is asked of them, and what they say.

Bytes go from nodes to the destination through the Job's pod, never through the operator.  The pod
is that of a PodTemplate of the installation, which says which image and account it has, which
certificates and how much memory; here it gets what to do.  How it ended is a short JSON document
in the container's termination message (`shardlog snapshot … --report`), which stands in the pod's
status: nobody has to read logs, and the pod needs no right to write anything to the API.

What can never succeed (a usage error, damage, a refusal) ends the Job with the first attempt; what
may pass is tried again a few times, less and less often.  A pod that was evicted does not count.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from typing import Any

from shardlog_operator.discovery import COMPONENT
from shardlog_operator.snapshot_spec import SnapshotSpec, Work
from shardlog_operator.spec import API_VERSION

Json = Any
CONTAINER = "snapshot"
SNAPSHOT_LABEL = "shardlog.dev/snapshot"
JOB_LABELS = {
    "app.kubernetes.io/name": "shardlog",
    "app.kubernetes.io/component": "snapshot",
    "app.kubernetes.io/managed-by": COMPONENT,
}
JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
REPORT = "/dev/termination-log"
MOUNT = "/snapshots"
RETRIES_MAX = 4
"""After 10, 20, 40 and 80 seconds."""
KEPT_S = 86_400
CLUSTER_TIMEOUT_S = 60
FINAL_EXITS = (2, 7, 9)
"""Of the `shardlog` command: usage, damage, refused."""


class BadTemplate(ValueError):  # noqa: N818 - named after what it is
    """The message is one line for a person."""


def job(asked: SnapshotSpec, work: Work, template: Json, namespace: str) -> Json:
    """`template` is a PodTemplate; raises `BadTemplate`."""
    labels = JOB_LABELS | {SNAPSHOT_LABEL: asked.name, "shardlog.dev/shard": asked.shard}
    pod = deepcopy(template.get("template") or {})
    meta = pod.setdefault("metadata", {})
    meta["labels"] = {**(meta.get("labels") or {}), **labels}
    _fill(pod.setdefault("spec", {}), asked, work)
    owner = {
        "apiVersion": API_VERSION,
        "kind": "ShardSnapshot",
        "name": asked.name,
        "uid": asked.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": asked.job(work),
            "namespace": namespace,
            "labels": labels,
            "ownerReferences": [owner],
        },
        "spec": {
            "backoffLimit": RETRIES_MAX,
            "activeDeadlineSeconds": asked.timeout_s,
            "ttlSecondsAfterFinished": KEPT_S,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": _rules()},
            "template": pod,
        },
    }


def _rules() -> list[Json]:
    final = {"containerName": CONTAINER, "operator": "In", "values": list(FINAL_EXITS)}
    return [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": final},
    ]


def _fill(spec: Json, asked: SnapshotSpec, work: Work) -> None:
    containers = [each for each in spec.get("containers") or () if each.get("name") == CONTAINER]
    if len(containers) != 1:
        raise BadTemplate(f"the PodTemplate has no container {CONTAINER}")
    (container,) = containers
    container["args"] = arguments(asked, work)
    container["terminationMessagePath"] = REPORT
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"
    if asked.secret:
        source = {"secretRef": {"name": asked.secret}}
        container["envFrom"] = [*(container.get("envFrom") or ()), source]
    if asked.claim:
        mount = {"name": "destination", "mountPath": MOUNT}
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
        volume = {"name": "destination", "persistentVolumeClaim": {"claimName": asked.claim}}
        spec["volumes"] = [*(spec.get("volumes") or ()), volume]
    spec["restartPolicy"] = "Never"


def arguments(asked: SnapshotSpec, work: Work) -> list[str]:
    """Of the `shardlog` command."""
    if work is Work.DELETE:
        return ["snapshot", "delete", f"--report={REPORT}", "--yes", "--",
                asked.shard, asked.url, asked.id]  # fmt: skip
    found = ["snapshot", "create", f"--id={asked.id}", f"--report={REPORT}",
             f"--timeout={CLUSTER_TIMEOUT_S}"]  # fmt: skip
    if asked.node:
        found.append(f"--node={asked.node}")
    if asked.keep is not None:
        found.append(f"--keep={asked.keep}")
    if asked.older_s is not None:
        found.append(f"--older-than={asked.older_s}s")
    return [*found, "--", asked.shard, asked.url]


# --- looking -------------------------------------------------------------------------------------


class Course(Enum):
    ACTIVE = "active"
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class JobSeen:
    """A Job as it stands; `reason` and `message` are its own, once it has failed."""

    name: str
    uid: str
    course: Course
    ready: bool = False
    attempts_failed: int = 0
    reason: str = ""
    message: str = ""
    leaving: bool = False
    ended: str = ""


def job_seen(body: Json) -> JobSeen:
    meta, status = body["metadata"], body.get("status") or {}
    true = {each["type"]: each for each in status.get("conditions") or ()
            if each["status"] == "True"}  # fmt: skip
    end = true.get("Complete") or true.get("Failed") or {}
    course = Course.ACTIVE
    if end:
        course = Course.COMPLETE if "Complete" in true else Course.FAILED
    return JobSeen(
        name=meta["name"],
        uid=meta.get("uid", ""),
        course=course,
        ready=bool(status.get("ready")),
        attempts_failed=status.get("failed", 0),
        reason=end.get("reason", ""),
        message=end.get("message", ""),
        leaving=bool(meta.get("deletionTimestamp")),
        ended=end.get("lastTransitionTime", ""),
    )


def is_of(pod: Json, job: JobSeen) -> bool:
    """Made by it: a label alone could be anybody's."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(each.get("uid") == job.uid for each in owners)


@dataclass(frozen=True, slots=True)
class Said:
    """What the pods of a Job tell.

    `report` is of the attempt that ended last, or of the one that succeeded.  `waits` is what a pod
    that has not started yet waits for.
    """

    pods: int = 0
    report: Json = None
    reason: str = ""
    message: str = ""
    waits: str = ""


def said(pods: Sequence[Json]) -> Said:
    ended, waits = [], ""
    for pod in pods:
        status = pod.get("status") or {}
        state = _state(status)
        if "terminated" in state:
            found = state["terminated"]
            ended.append((found.get("exitCode") == 0, found.get("finishedAt") or "", found))
        else:
            waits = waits or _waits(status, state)
    if not ended:
        return Said(len(pods), waits=waits)
    _, _, last = max(ended, key=lambda each: each[:2])
    text = str(last.get("message") or "")
    reason = str(last.get("reason") or "")
    return Said(len(pods), _report(text), reason, _plain(text, last), waits)


def _state(status: Json) -> Json:
    for each in status.get("containerStatuses") or ():
        if each.get("name") == CONTAINER:
            return each.get("state") or {}
    return {}


def _waits(status: Json, state: Json) -> str:
    """A pod that cannot be scheduled, or a container that cannot be made."""
    waiting = state.get("waiting") or {}
    if waiting.get("message"):
        return f"{waiting.get('reason', 'waits')}: {waiting['message']}"
    for each in status.get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return f"{each.get('reason', 'Unschedulable')}: {each.get('message', '')}"
    return ""


def _report(text: str) -> Json:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _plain(text: str, terminated: Json) -> str:
    """Of an attempt that left no report: its last line, and how it ended."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ended = f"{terminated.get('reason') or 'ended'}, exit status {terminated.get('exitCode')}"
    return f"{ended}: {lines[-1]}" if lines else ended
