"""ShardSnapshots judged by what is there, and the Jobs that are made for them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kube_operator.values import record
from shardlog.protocol.shard import Shard, Status
from shardlog_operator.snapshot_jobs import (
    RETRIES_MAX,
    BadTemplate,
    Course,
    JobSeen,
    Said,
    arguments,
    is_of,
    job,
    job_seen,
    said,
)
from shardlog_operator.snapshot_judging import DELETE_AGAIN_S, PATIENCE_S, ending, judge
from shardlog_operator.snapshot_spec import SnapshotPhase, SnapshotSpec, Work, snapshot_spec
from shardlog_operator.snapshot_status import expired, status_of, status_of_end
from shardlog_operator.spec import Deletion

Json = Any
PENDING, RUNNING = SnapshotPhase.PENDING, SnapshotPhase.RUNNING
DONE, FAILED = SnapshotPhase.SUCCEEDED, SnapshotPhase.FAILED
CREATED = "2026-11-17T05:48:03Z"
AT = "2026-11-17T06:00:00Z"

REPORT = {
    "id": "x", "manifest": "s3://b/orders/snapshots/x.json", "first": 10, "end": 110, "epoch": 3,
    "records": 99, "bytes": 5000, "segments": 3, "written_bytes": 2000, "written_segments": 1,
    "reused_bytes": 3000, "reused_segments": 2, "given_up": 0, "deleted": ["old"],
}  # fmt: skip


def asked(**fields: object) -> SnapshotSpec:
    return SnapshotSpec("nightly", "uid-1", 1, CREATED, "orders", "s3://b/p", **fields)  # type: ignore[arg-type]


def seen(course: Course = Course.ACTIVE, **fields: object) -> JobSeen:
    return JobSeen("nightly-1", "job-uid", course, **fields)  # type: ignore[arg-type]


COMPLETE = seen(Course.COMPLETE)
BROKEN = seen(Course.FAILED, reason="PodFailurePolicy", message="Container exited with 9")
REFUSAL = Said(1, {"failed": "DestinationRefused", "message": "s3://b/p: NoSuchBucket"})
TOO_MANY = seen(Course.FAILED, reason="BackoffLimitExceeded")
LATE = seen(Course.FAILED, reason="DeadlineExceeded")
NODE = asked(node="z")

CASES: dict[str, tuple[SnapshotSpec, Shard | None, bool, JobSeen | None, Said, float, Any, str]] = {
    "begin": (asked(), record(), True, None, Said(), 0.0, RUNNING, "JobMade"),
    "retained, and served on": (asked(), record(), False, None, Said(), 0.0, RUNNING, "JobMade"),
    "of a node": (asked(node="b"), record(), True, None, Said(), 0.0, RUNNING, "JobMade"),
    "of a node without one": (NODE, record(), True, None, Said(), 0.0, FAILED, "NoSuchReplica"),
    "not created yet": (asked(), None, True, None, Said(), 99.0, PENDING, "ShardNotCreated"),
    "nobody has heard": (asked(), None, False, None, Said(), 0.0, PENDING, "NoSuchShard"),
    "no such shard": (asked(), None, False, None, Said(), PATIENCE_S, FAILED, "NoSuchShard"),
    "being deleted": (
        asked(), record(leader=None, status=Status.DELETING), True, None, Said(), 0.0, FAILED,
        "ShardDeleting",
    ),
    "starts": (asked(), record(), True, seen(), Said(1), 0.0, RUNNING, "JobMade"),
    "at work though the Shard is gone": (
        asked(), None, False, seen(ready=True), Said(), 99.0, RUNNING, "JobMade",
    ),
    "waits for a secret": (
        asked(), record(), True, seen(), Said(1, waits="CreateContainerConfigError: no secret"),
        0.0, RUNNING, "PodWaits",
    ),
    "tries again": (
        asked(), record(), True, seen(attempts_failed=1), REFUSAL, 0.0, RUNNING, "TriesAgain",
    ),
    "somebody deletes its Job": (
        asked(), record(), True, seen(leaving=True), Said(), 0.0, RUNNING, "JobLeaves",
    ),
    "done": (asked(), record(), True, COMPLETE, Said(1, REPORT), 0.0, DONE, "Succeeded"),
    "done, and the report is lost": (
        asked(), record(), True, COMPLETE, Said(0), 0.0, RUNNING, "ReportLost",
    ),
    "done without a word": (asked(), record(), True, COMPLETE, Said(1), 0.0, FAILED, "NoReport"),
    "done with half a report": (
        asked(), record(), True, COMPLETE, Said(1, REPORT | {"end": "9"}), 0.0, FAILED, "NoReport",
    ),
    "refused": (asked(), record(), True, BROKEN, REFUSAL, 0.0, FAILED, "DestinationRefused"),
    "killed for its memory": (
        asked(), record(), True, TOO_MANY, Said(1, None, "OOMKilled", "OOMKilled, exit status 137"),
        0.0, FAILED, "OOMKilled",
    ),
    "failed without pods": (
        asked(), record(), True, TOO_MANY, Said(), 0.0, FAILED, "BackoffLimitExceeded",
    ),
    "too late": (
        asked(), record(), True, LATE, Said(1, waits="no volume"), 0.0, FAILED, "DeadlineExceeded",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_judged(case: str):
    spec, shard, is_there, there, pods, age_s, phase, reason = CASES[case]
    found = judge(spec, shard, is_there, there, pods, age_s)
    assert (found.phase, found.reason) == (phase, reason)
    assert found.message
    assert found.make == (there is None and phase is RUNNING)
    assert found.discard == (reason == "ReportLost")
    assert (found.result is not None) == (phase is DONE)


def test_what_failed_is_said_in_the_commands_own_words():
    assert judge(asked(), record(), True, BROKEN, REFUSAL, 0.0).message == "s3://b/p: NoSuchBucket"
    told = judge(asked(), record(), True, seen(attempts_failed=2), REFUSAL, 0.0).message
    assert told == f"attempt 2 of {RETRIES_MAX + 1} failed: s3://b/p: NoSuchBucket; tries again"
    late = judge(asked(), record(), True, LATE, Said(1, waits="no volume"), 0.0).message
    assert late == "not within its timeout; last: no volume"


# --- names and Jobs ------------------------------------------------------------------------------

TEMPLATE = {
    "template": {
        "metadata": {"labels": {"app.kubernetes.io/instance": "shardlog", "team": "a"}},
        "spec": {
            "containers": [
                {
                    "name": "snapshot", "image": "shardlog-node:1", "command": ["shardlog"],
                    "volumeMounts": [{"name": "tls", "mountPath": "/tls"}],
                }
            ],
            "volumes": [{"name": "tls", "secret": {"secretName": "tls"}}],
        },
    }
}  # fmt: skip


def test_names_follow_from_the_object():
    one, other = asked(), replace(asked(), uid="uid-2")
    assert one.id == replace(one, phase=FAILED).id
    assert one.id.startswith("20261117T054803.000Z-")
    assert one.id != other.id
    names = {one.job(Work.CREATE), one.job(Work.DELETE), other.job(Work.CREATE)}
    assert len(names) == 3
    assert len(replace(one, name="n" * 52).job(Work.CREATE)) <= 63


def test_what_the_command_is_told():
    whole = asked(node="n-1", keep=7, older_s=5400)
    assert arguments(whole, Work.CREATE) == [
        "snapshot", "create", f"--id={whole.id}", "--report=/dev/termination-log", "--timeout=60",
        "--node=n-1", "--keep=7", "--older-than=5400s", "--", "orders", "s3://b/p",
    ]  # fmt: skip
    assert arguments(asked(), Work.CREATE)[-3:] == ["--", "orders", "s3://b/p"]
    assert arguments(whole, Work.DELETE) == [
        "snapshot", "delete", "--report=/dev/termination-log", "--yes", "--", "orders",
        "s3://b/p", whole.id,
    ]  # fmt: skip


def test_the_command_takes_what_it_is_told():
    from shardlog.cli.snapshot import snapshot

    for spec in (asked(), asked(node="n-1", keep=7, older_s=5400)):
        for work in Work:
            _, name, *rest = arguments(spec, work)
            command = snapshot.commands[name]
            told = [each for each in rest if not each.startswith("--cluster")]
            if work is Work.CREATE:
                told = ["--cluster=http://nobody", *told]
            context = command.make_context(name, told)
            assert context.params["place"] == spec.url


def test_the_job():
    spec = asked(secret="keys", claim="disk", timeout_s=90)
    made = job(spec, Work.CREATE, TEMPLATE, "logs")
    meta, body = made["metadata"], made["spec"]
    assert meta["ownerReferences"][0]["uid"] == "uid-1"
    assert meta["labels"]["shardlog.dev/snapshot"] == "nightly"
    assert (body["backoffLimit"], body["activeDeadlineSeconds"]) == (RETRIES_MAX, 90)
    pod = body["template"]
    assert pod["metadata"]["labels"].items() >= {"team": "a", **meta["labels"]}.items()
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["shardlog"]
    assert container["args"] == arguments(spec, Work.CREATE)
    assert container["envFrom"] == [{"secretRef": {"name": "keys"}}]
    assert [each["mountPath"] for each in container["volumeMounts"]] == ["/tls", "/snapshots"]
    assert pod["spec"]["volumes"][1]["persistentVolumeClaim"] == {"claimName": "disk"}
    assert pod["spec"]["restartPolicy"] == "Never"
    assert "args" not in TEMPLATE["template"]["spec"]["containers"][0]  # type: ignore[index]


def test_a_template_without_the_container():
    with pytest.raises(BadTemplate, match="no container snapshot"):
        job(asked(), Work.CREATE, {"template": {"spec": {"containers": []}}}, "logs")


# --- what Jobs and pods say ----------------------------------------------------------------------


def pod(**status: Json) -> Json:
    return {"metadata": {"name": "p"}, "status": status}


def ended(exit_code: int, message: str, at: str = AT, reason: str = "Error") -> Json:
    found = {"exitCode": exit_code, "message": message, "finishedAt": at, "reason": reason}
    return pod(containerStatuses=[{"name": "snapshot", "state": {"terminated": found}}])


def test_the_last_attempt_counts_or_the_one_that_succeeded():
    first = ended(8, json.dumps({"failed": "A", "message": "a"}), "2026-11-17T06:00:00Z")
    second = ended(8, json.dumps({"failed": "B", "message": "b"}), "2026-11-17T06:01:00Z")
    assert said([second, first]).report == {"failed": "B", "message": "b"}
    good = ended(0, json.dumps(REPORT), "2026-11-17T05:00:00Z")
    assert said([good, second]).report == REPORT


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("", "Error, exit status 3"),
        ("Traceback\n  File\nValueError: x\n", "Error, exit status 3: ValueError: x"),
        ('{"id": "cut o', 'Error, exit status 3: {"id": "cut o'),
        ("[1]", "Error, exit status 3: [1]"),
    ],
)
def test_without_a_report_the_last_line_is_told(message: str, told: str):
    found = said([ended(3, message)])
    assert (found.report, found.message) == (None, told)


def test_what_a_pod_waits_for():
    waiting = {"waiting": {"reason": "CreateContainerConfigError", "message": "no secret keys"}}
    one = pod(containerStatuses=[{"name": "snapshot", "state": waiting}])
    assert said([one]).waits == "CreateContainerConfigError: no secret keys"
    unbound = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
               "message": "claim disk not found"}  # fmt: skip
    assert said([pod(conditions=[unbound])]).waits == "Unschedulable: claim disk not found"
    starting = {"waiting": {"reason": "ContainerCreating"}}
    assert said([pod(containerStatuses=[{"name": "snapshot", "state": starting}])]).waits == ""


def test_a_job_as_it_stands():
    body: Json = {"metadata": {"name": "j", "uid": "u"}, "status": {"ready": 1, "failed": 2}}
    assert job_seen(body) == JobSeen("j", "u", Course.ACTIVE, True, 2)
    body["status"]["conditions"] = [
        {"type": "Suspended", "status": "False"},
        {"type": "Failed", "status": "True", "reason": "R", "message": "m",
         "lastTransitionTime": AT},
    ]  # fmt: skip
    found = job_seen(body)
    assert (found.course, found.reason, found.message, found.ended) == (Course.FAILED, "R", "m", AT)
    body["status"]["conditions"] = [{"type": "Complete", "status": "True"}]
    assert job_seen(body).course is Course.COMPLETE


def test_a_pod_is_the_jobs_by_its_owner():
    owner = {"ownerReferences": [{"uid": "job-uid"}], "name": "p"}
    assert is_of({"metadata": owner}, seen())
    assert not is_of({"metadata": {"name": "p"}}, seen())


# --- status --------------------------------------------------------------------------------------


def conditions(status: Json) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


def test_the_status_from_begin_to_end():
    begun = status_of(asked(), {}, judge(asked(), record(), True, None, Said(), 0.0), AT)
    assert (begun["phase"], begun["startedAt"], begun["snapshot"]) == ("Running", AT, asked().id)
    assert "manifest" not in begun
    assert conditions(begun) == {"Complete": ("False", "JobMade"), "Failed": ("False", "JobMade")}
    late = "2026-11-17T07:00:00Z"
    verdict = judge(asked(), record(), True, COMPLETE, Said(1, REPORT), 0.0)
    done = status_of(asked(), begun, verdict, late)
    assert (done["startedAt"], done["completedAt"]) == (AT, late)
    assert done["range"] == {"start": 10, "end": 110}
    assert (done["written"], done["shared"]) == (
        {"bytes": 2000, "segments": 1}, {"bytes": 3000, "segments": 2},
    )  # fmt: skip
    assert conditions(done) == {
        "Complete": ("True", "Succeeded"), "Failed": ("False", "Succeeded"),
    }  # fmt: skip
    gone = status_of(asked(), done, expired("later"), late)
    assert (gone["phase"], gone["range"]) == ("Expired", {"start": 10, "end": 110})
    assert conditions(gone)["Complete"] == ("False", "Expired")


def test_how_far_it_is_stands_in_its_status():
    verdict = judge(asked(), record(), True, COMPLETE, Said(1, REPORT), 0.0)
    body = {
        "metadata": {"name": "nightly", "uid": "uid-1", "creationTimestamp": CREATED},
        "spec": {
            "shard": "orders", "destination": {"url": "s3://b/p", "secretName": "keys"},
            "retention": {"keep": 3, "time": "1h30m"}, "timeout": "2m", "deletionPolicy": "Delete",
        },
        "status": status_of(asked(), {"job": "j"}, verdict, AT),
    }  # fmt: skip
    found = snapshot_spec(body)
    assert (found.keep, found.older_s, found.timeout_s, found.secret) == (3, 5400, 120, "keys")
    assert (found.begun, found.complete, found.ended, found.failed) == (True, True, True, False)
    assert found.deletion is Deletion.DELETE


# --- the end -------------------------------------------------------------------------------------

DELETED = asked(deletion=Deletion.DELETE, begun=True, complete=True)
MISSING = Said(1, {"failed": "NoSuchSnapshot", "message": "gone"})

ENDS: dict[str, tuple[SnapshotSpec, JobSeen | None, JobSeen | None, Said, float, str]] = {
    "retained": (asked(begun=True, complete=True), None, None, Said(), 0.0, "done"),
    "retained while at work": (asked(begun=True), seen(), None, Said(), 0.0, "done stop"),
    "never begun": (replace(DELETED, begun=False), None, None, Said(), 0.0, "done"),
    "failed": (replace(DELETED, complete=False, failed=True), BROKEN, None, Said(), 0.0,
               "done stop"),
    "stopped first": (replace(DELETED, complete=False), seen(), None, Said(), 0.0, "stop"),
    "the data go": (DELETED, COMPLETE, None, Said(), 0.0, "make"),
    "the data are going": (DELETED, COMPLETE, seen(), Said(), 0.0, ""),
    "the data are gone": (DELETED, COMPLETE, COMPLETE, Said(1, {}), 0.0, "done"),
    "the data were gone": (DELETED, None, BROKEN, MISSING, 0.0, "done"),
    "refused": (DELETED, None, BROKEN, REFUSAL, 0.0, "stuck"),
    "refused a while ago": (DELETED, None, BROKEN, REFUSAL, DELETE_AGAIN_S, "stuck discard"),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDS)
def test_the_end(case: str):
    spec, taking, deleting, pods, idle_s, wanted = ENDS[case]
    end = ending(spec, taking, deleting, pods, idle_s)
    found = {name for name in ("done", "stop", "make", "discard", "stuck") if getattr(end, name)}
    assert found == set(wanted.split())
    assert end.message


def test_what_was_taken_stays_in_the_status_until_it_is_gone():
    verdict = judge(asked(), record(), True, COMPLETE, Said(1, REPORT), 0.0)
    done = status_of(DELETED, {}, verdict, AT)
    end = ending(DELETED, None, BROKEN, REFUSAL, 0.0)
    told = status_of_end(DELETED, done, end, AT)
    assert (told["phase"], told["manifest"]) == ("Deleting", REPORT["manifest"])
    assert conditions(told)["Complete"] == ("True", "Succeeded")
    assert conditions(told)["DataDeleted"] == ("False", "DestinationRefused")
    assert "with deletionPolicy Retain it goes" in told["message"]
