"""`kubectl shardlog` against a real API server and an operator that answers it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from e2e.operated.installation import Installation
from shardlog.cli import exit_codes

NODES = ("node-0", "node-1", "node-2", "node-3")


@pytest.fixture
def ready(it: Installation) -> Installation:
    it.start_nodes(*NODES)
    it.start_operator()
    it.shard(replicas=3)
    it.ready()
    return it


def said(it: Installation, *arguments: str) -> str:
    done = it.plugin(*arguments)
    assert done.returncode == exit_codes.OK, done.stderr
    return done.stdout


def refused(it: Installation, *arguments: str) -> str:
    done = it.plugin(*arguments)
    assert done.returncode == exit_codes.REFUSED, done.stderr
    assert done.stderr.splitlines()[-1].startswith("shardlog: ")
    return done.stderr


def test_a_person_at_work(ready: Installation, tmp_path: Path):
    it = ready
    told = json.loads(said(it, "status", "-o", "json"))
    assert [each["name"] for each in told["nodes"]] == list(NODES)
    assert told["shards"][0]["status"]["phase"] == "Steady"
    assert "orders" in said(it, "status")
    one = said(it, "status", "orders")
    assert "history" in one
    assert "AllCaughtUp" in one

    leader = it.status()["leader"]
    other = sorted(it.members() - {leader})[0]
    assert "Succeeded" in said(it, "promote", "orders", other)
    assert it.until(lambda: it.status()["leader"] == other)

    outside = (set(NODES) - it.members()).pop()
    assert "Succeeded" in said(it, "swap", "orders", leader, outside)
    it.until(lambda: outside in it.members())

    drained = json.loads(said(it, "drain", other, "-o", "json"))
    assert drained["status"]["phase"] == "Succeeded"
    assert "Succeeded" in said(it, "drain", other)
    it.until(lambda: other not in it.members())
    nodes = json.loads(said(it, "status", "-o", "json"))["nodes"]
    assert [each["name"] for each in nodes if each["drained"]] == [other]
    assert "deleted" in said(it, "undrain", other)

    assert "not drained" in refused(it, "undrain", other)
    assert "no reconfiguration" in refused(it, "abort", "orders")
    assert "not a member" in refused(it, "promote", "orders", "node-9")
    assert "not found" in refused(it, "status", "no-such-shard")

    it.template()
    asked = json.loads(said(it, "snapshot", "create", "orders", "s3://backups/logs", "--keep", "3",
                            "--older-than", "7d", "--no-wait", "-o", "json"))  # fmt: skip
    assert asked["spec"]["retention"] == {"keep": 3, "time": "168h"}
    name = asked["name"]
    it.until(lambda: json.loads(said(it, "snapshot", "list", "orders", "-o", "json"))
             ["snapshots"][0]["status"].get("phase") == "Running")  # fmt: skip
    assert said(it, "snapshot", "list").split()[10:13] == [name, "orders", "Running"]
    assert "no Shard nothing" in refused(it, "snapshot", "create", "nothing", "s3://b/p")
    assert "needs claimName" in refused(it, "snapshot", "create", "orders", "file:///snapshots")
    assert "deleted" in said(it, "snapshot", "delete", name)

    path = tmp_path / "report.tar.gz"
    said(it, "report", "--file", str(path))
    with tarfile.open(path) as archive:
        names = archive.getnames()
    assert "shardlog-report/objects/shards.json" in names
    assert "shardlog-report/objects/events.json" in names


def test_no_operator_is_not_waited_for_without_end(it: Installation):
    it.shard(replicas=3)
    done = it.plugin("abort", "orders", "--timeout", "1")
    assert done.returncode == exit_codes.UNAVAILABLE
    assert "not within 1 s" in done.stderr
    asked = said(it, "abort", "orders", "--no-wait")
    assert "Pending" in asked
