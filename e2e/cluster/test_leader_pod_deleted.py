"""The leader's pod is deleted, as by `kubectl delete pod`: it hands over, and comes back."""

from __future__ import annotations

from e2e.cluster.scenario import Scenarios


def test_the_leader_pod_is_deleted(scenarios: Scenarios):
    with scenarios.scenario("the leader's pod is deleted", "deleted") as it:
        before = it.pod(it.leader())
        it.break_by(lambda: it.release.kubectl("delete", "pod", before.name, "--wait=false"))
        it.prove("leader", before.name, it.leader)
        it.prove(
            "pod UID", before.uid, lambda: (found := it.release.pod(before.name)) and found.uid
        )
        it.until_steady()
