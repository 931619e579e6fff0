"""The ShardSnapshot as the API server has it, and the Jobs that are made of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.api.manifests import refusal, snapshot
from e2e.api.test_chart_rendered import VALUES
from e2e.api_server import ApiServer
from e2e.charts import only, rendered
from e2e.kubernetes import Refused
from shardlog_operator.snapshot_jobs import job
from shardlog_operator.snapshot_spec import Work, snapshot_spec

BUCKET = {"url": "s3://backups/logs", "secretName": "keys"}
VOLUME = {"url": "file:///snapshots/logs", "claimName": "disk"}

LEGAL: dict[str, dict[str, Any]] = {
    "to a bucket": snapshot(),
    "with credentials": snapshot(destination=BUCKET),
    "to a volume": snapshot(destination=VOLUME),
    "to the whole volume": snapshot(destination=VOLUME | {"url": "file:///snapshots"}),
    "of a node": snapshot(node="shardlog-node-1"),
    "the last ones": snapshot(retention={"keep": 7}),
    "the young ones": snapshot(retention={"time": "168h"}),
    "both": snapshot(retention={"keep": 1, "time": "1h30m"}, deletionPolicy="Delete"),
    "a long name": snapshot("n" * 52, timeout="10s"),
}

ILLEGAL: dict[str, tuple[dict[str, Any], str]] = {
    "no shard": (
        {**snapshot(), "spec": {"destination": BUCKET}},
        "spec.shard: Required value",
    ),
    "no destination": ({**snapshot(), "spec": {"shard": "o"}}, "spec.destination: Required value"),
    "no URL": (snapshot(destination={}), "spec.destination.url: Required value"),
    "a path": (
        snapshot(destination={"url": "/snapshots"}),
        "url is a URL: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX",
    ),
    "a password in the URL": (
        snapshot(destination={"url": "s3://me:secret@backups/logs"}),
        "url holds no user or password; credentials come from the Secret secretName",
    ),
    "a file and no claim": (
        snapshot(destination={"url": "file:///snapshots"}),
        "a file:// destination needs claimName: the volume claim that is mounted at /snapshots",
    ),
    "a claim and no file": (
        snapshot(destination=BUCKET | {"claimName": "disk"}),
        "claimName is for destinations file:///snapshots alone",
    ),
    "another directory": (
        snapshot(destination=VOLUME | {"url": "file:///tmp/x"}),
        "the claim is mounted at /snapshots, so url is file:///snapshots or below it",
    ),
    "a directory that begins alike": (
        snapshot(destination=VOLUME | {"url": "file:///snapshots-2"}),
        "the claim is mounted at /snapshots",
    ),
    "out of the volume": (
        snapshot(destination=VOLUME | {"url": "file:///snapshots/../etc"}),
        "url holds no '..'",
    ),
    "out of the volume in other letters": (
        snapshot(destination=VOLUME | {"url": "file:///snapshots/%2e%2e/etc"}),
        "a file:// url holds no '%'",
    ),
    "no shard's name": (snapshot(shard="Orders.eu"), "shard is the name of a Shard"),
    "no node's name": (snapshot(node="10.0.0.1:7400"), "node is the name of a node's pod"),
    "keep none": (
        snapshot(retention={"keep": 0}),
        "spec.retention.keep in body should be greater than or equal to 1",
    ),
    "an empty retention": (
        snapshot(retention={}),
        "spec.retention in body should have at least 1 properties",
    ),
    "days": (snapshot(retention={"time": "7d"}), "time is hours, minutes and seconds in whole"),
    "seconds": (snapshot(retention={"time": "5s"}), "snapshots are kept for at least 1m"),
    "no time at all": (snapshot(timeout="soon"), "timeout is hours, minutes and seconds in whole"),
    "too little time": (snapshot(timeout="9s"), "timeout is at least 10s"),
    "a policy in lower case": (
        snapshot(deletionPolicy="retain"),
        'supported values: "Retain", "Delete"',
    ),
    "too long a name": (snapshot("n" * 53), "the name of a ShardSnapshot begins that of its Job"),
    "a name with dots": (snapshot("a.b"), "the name of a ShardSnapshot begins that of its Job"),
    "an unknown field": (snapshot(schedule="@daily"), 'unknown field "spec.schedule"'),
}


@pytest.mark.parametrize("manifest", LEGAL.values(), ids=LEGAL)
def test_legal(api: ApiServer, manifest: dict[str, Any]):
    assert refusal(api, manifest, "default") == ""


@pytest.mark.parametrize(("manifest", "told"), ILLEGAL.values(), ids=ILLEGAL)
def test_illegal(api: ApiServer, manifest: dict[str, Any], told: str):
    assert told in refusal(api, manifest, "default")


def test_defaults(api: ApiServer, namespace: str):
    api.apply(snapshot(), "-n", namespace)
    spec = api.get("shdsnap", "nightly", "-n", namespace)["spec"]
    assert (spec["deletionPolicy"], spec["timeout"]) == ("Retain", "24h")


CHANGES: dict[str, dict[str, Any]] = {
    "shard": {"shard": "other"},
    "place": {"destination": {"url": "s3://other"}},
    "credentials": {"destination": {"secretName": "other"}},
    "node": {"node": "n-1"},
    "retention": {"retention": {"keep": 1}},
    "timeout": {"timeout": "1h"},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_spec_never_changes(api: ApiServer, namespace: str, change: dict[str, Any]):
    api.apply(snapshot(), "-n", namespace)
    patch = json.dumps({"spec": change})
    with pytest.raises(Refused, match="cannot be changed, but for deletionPolicy"):
        api.kubectl("patch", "shdsnap", "nightly", "-n", namespace, "--type=merge", "-p", patch)


def test_but_for_what_becomes_of_it(api: ApiServer, namespace: str):
    api.apply(snapshot(retention={"keep": 2}, node="n-1"), "-n", namespace)
    patch = json.dumps({"spec": {"deletionPolicy": "Delete"}})
    api.kubectl("patch", "shdsnap", "nightly", "-n", namespace, "--type=merge", "-p", patch)


STATUS: dict[str, Any] = {
    "observedGeneration": 1,
    "phase": "Succeeded",
    "message": "[0, 500): 498 records",
    "job": "nightly-1",
    "snapshot": "20261117T054803.000Z-0badcafe",
    "manifest": "s3://backups/logs/orders/snapshots/x.json",
    "range": {"start": 0, "end": 500},
    "epoch": 3,
    "records": 498,
    "givenUp": 0,
    "bytes": 4096,
    "segments": 2,
    "written": {"bytes": 1024, "segments": 1},
    "shared": {"bytes": 3072, "segments": 1},
    "deleted": ["old"],
    "startedAt": "2026-11-17T05:48:03Z",
    "completedAt": "2026-11-17T05:49:03Z",
    "conditions": [
        {
            "type": "Complete",
            "status": "True",
            "reason": "Succeeded",
            "message": "",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-11-17T05:49:03Z",
        }
    ],
}


def test_status_and_columns(api: ApiServer, namespace: str):
    api.apply(snapshot(), "-n", namespace)
    patch = json.dumps({"status": STATUS})
    arguments = ("-n", namespace, "--subresource=status", "--type=merge", "-p", patch)
    api.kubectl("patch", "shdsnap", "nightly", *arguments)
    assert api.get("shdsnap", "nightly", "-n", namespace)["status"] == STATUS
    head, row = api.kubectl("get", "shdsnap", "-n", namespace).splitlines()
    assert head.split() == [
        "NAME", "SHARD", "PHASE", "END", "BYTES", "WRITTEN", "MESSAGE", "AGE",
    ]  # fmt: skip
    assert row.split()[:6] == ["nightly", "orders", "Succeeded", "500", "4096", "1024"]
    wide = api.kubectl("get", "shdsnap", "-n", namespace, "-o", "wide").splitlines()
    assert "s3://backups/logs" in wide[1]
    assert "20261117T054803.000Z-0badcafe" in wide[1]
    waits = ("wait", "--for=condition=Complete", "shdsnap/nightly", "--timeout=5s")
    assert "condition met" in api.kubectl(*waits, "-n", namespace)


def test_explain(api: ApiServer):
    text = " ".join(api.kubectl("explain", "shardsnapshot.spec", "--recursive=false").split())
    assert "The Shard, in the same namespace" in text
    assert "enum: Retain, Delete" in text
    assert "<no description>" not in text


@pytest.mark.parametrize("mode", ["defaults", "generated certificates", "everything on"])
@pytest.mark.parametrize("work", Work)
def test_its_jobs_are_admitted_where_nobody_has_privileges(
    api: ApiServer, namespace: str, mode: str, work: Work
):
    """Of the chart's own template, as the operator fills it in."""
    api.create_namespace(namespace, **{"pod-security.kubernetes.io/enforce": "restricted"})
    name = "log-snapshot" if mode == "everything on" else "shardlog-snapshot"
    template = only(rendered(VALUES[mode], namespace), "PodTemplate", name)
    destination = VOLUME | {"secretName": "keys"}
    api.apply(snapshot(destination=destination, node="n-1"), "-n", namespace)
    asked = snapshot_spec(api.get("shdsnap", "nightly", "-n", namespace))
    made = job(asked, work, template, namespace)
    assert "created (server dry run)" in api.apply(made, "--dry-run=server")
    pod = made["spec"]["template"]
    meta = pod["metadata"] | {"name": "one", "namespace": namespace}
    account = {"apiVersion": "v1", "kind": "ServiceAccount",
               "metadata": {"name": pod["spec"]["serviceAccountName"]}}  # fmt: skip
    api.apply(account, "-n", namespace)
    api.apply({"apiVersion": "v1", "kind": "Pod", **pod, "metadata": meta}, "--dry-run=server")
