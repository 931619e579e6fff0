"""etcd: one member dies, then all of them. Appends go on without it while nobody else dies."""

from __future__ import annotations

from e2e.cluster.scenario import Scenarios

MEMBERS = "statefulset/shardlog-etcd"


def test_a_member_is_killed(scenarios: Scenarios):
    with scenarios.scenario("a member of etcd killed", "two-thirds") as it:
        before = it.pod("shardlog-etcd-0")
        it.break_by(lambda: it.release.cluster.kill_processes(before.machine, before.uid))
        it.release.kubectl("scale", "shard/two-thirds", "--replicas=4")
        it.until_steady(4)
        it.prove("restarts", before.restarts, lambda: it.pod(before.name).restarts)


def test_etcd_is_down_and_comes_back(scenarios: Scenarios):
    """While it is down records are appended, and what needs it waits; then it is done."""
    release = scenarios.release
    with scenarios.scenario("etcd down and back", "unattended") as it:
        before = {name: pod.uid for name, pod in release.pods("etcd").items()}
        try:
            it.break_by(lambda: release.kubectl("scale", MEMBERS, "--replicas=0"))
            release.until(lambda: not release.pods("etcd"), "etcd is still there")
            it.clients.until_more(100)
        finally:
            release.kubectl("scale", MEMBERS, "--replicas=3")
        release.kubectl("scale", "shard/unattended", "--replicas=4")
        it.until_steady(4)
        it.prove("pods", before, lambda: {n: p.uid for n, p in release.pods("etcd").items()})
