"""A node is lost for good: its replica moves to another one, by itself."""

from __future__ import annotations

from e2e.cluster.release import NODES
from e2e.cluster.scenario import Scenarios

NODE_SET = "statefulset/shardlog-node"


def test_a_node_is_lost_for_good(scenarios: Scenarios):
    """The last node of the set leads; then the set is one smaller, and it never comes back."""
    release = scenarios.release
    last = f"shardlog-node-{NODES - 1}"
    with scenarios.scenario("a node lost for good → swap", "lost") as it:
        if last not in it.members():
            gone = sorted(it.members() - {it.leader()})[0]
            assert it.operate("Swap", oldNode=gone, newNode=last)["phase"] == "Succeeded"
            release.until(lambda: last in it.members(), f"{last} is no member")
        if it.leader() != last:
            assert it.operate("Promote", node=last)["phase"] == "Succeeded"
        it.until_leader(last)
        before = it.pod(last)
        members = sorted(it.members())
        try:
            it.break_by(lambda: release.kubectl("scale", NODE_SET, f"--replicas={NODES - 1}"))
            release.until(lambda: release.pod(last) is None, f"{last} is still there")
            it.prove("members", members, lambda: sorted(it.members()))
            release.until(lambda: last not in it.members(), f"{last} is still a member")
            it.until_steady()
        finally:
            release.kubectl("scale", NODE_SET, f"--replicas={NODES}")
        release.until_whole()
        assert it.pod(last).uid != before.uid
