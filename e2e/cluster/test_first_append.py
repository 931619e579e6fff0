"""Installed as a user would: the first append, `helm test`, and what kubectl shows."""

from __future__ import annotations

import json

from e2e.cluster.release import NODES, Release
from e2e.cluster.scenario import Scenarios


def test_install_and_first_append(release: Release, scenarios: Scenarios):
    with scenarios.scenario("install and first append", "orders") as it:
        it.clients.until_more(100)
        machines = {pod.machine for pod in release.pods("node").values()}
        it.prove("machines that nodes are spread over", 1, lambda: len(machines))
        held = {it.pod(node).machine for node in it.members()}
        assert len(held) == min(3, len(machines)), held


def test_helm_test(release: Release):
    said = release.helm("test", "shardlog")
    assert "Phase:          Succeeded" in said


def test_what_the_plugin_says(release: Release, scenarios: Scenarios):
    with scenarios.scenario("kubectl shardlog status", "plugin") as it:
        told = release.plugin("status", "plugin", "-o", "json")
        assert told.returncode == 0, told.stderr
        leader = it.leader()
        assert json.loads(told.stdout)["status"]["leader"] == leader
        table = release.plugin("status")
        assert table.returncode == 0, table.stderr
        assert "plugin" in table.stdout
        nodes = json.loads(release.plugin("status", "-o", "json").stdout)["nodes"]
        assert len(nodes) == NODES
        columns = release.kubectl("get", "shard", "plugin").splitlines()[1].split()
        assert columns[:3] == ["plugin", "True", leader]
        other = sorted(it.members() - {leader})[0]
        it.break_by(lambda: release.plugin("promote", "plugin", other))
        it.prove("leader", leader, it.leader)
        it.until_steady()
        assert_logs_name(release, "plugin", it.leader())


def assert_logs_name(release: Release, shard: str, leader: str) -> None:
    """Lines of nodes and of operators, each with its pod, and none that is not about the shard."""
    told = release.plugin("logs", shard, "--tail=-1")
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    assert [line for line in lines if shard not in line] == []
    pods = {line.partition("]")[0].removeprefix("[pod/").partition("/")[0] for line in lines}
    assert leader in pods
    assert pods & set(release.pods("operator"))
    assert pods <= {*release.pods("node"), *release.pods("operator")}
