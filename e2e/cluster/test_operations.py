"""ShardOperations: promote, swap, and abort of a swap that cannot end."""

from __future__ import annotations

from e2e.cluster.scenario import Scenarios


def test_promote_swap_and_abort(scenarios: Scenarios):
    with scenarios.scenario("ShardOperations promote, swap, abort", "operated") as it:
        leader = it.leader()
        other = sorted(it.members() - {leader})[0]
        it.break_by(lambda: None)
        assert it.operate("Promote", node=other)["phase"] == "Succeeded"
        it.prove("leader", leader, it.leader)

        outside = it.outsiders()[0]
        assert it.operate("Swap", oldNode=leader, newNode=outside)["phase"] == "Succeeded"
        it.prove("members", {}, lambda: outside in it.members() and sorted(it.members()))
        it.until_steady()
        assert leader not in it.members()

        refused = it.operate("Abort")
        assert refused["phase"] == "Failed"
        assert "no reconfiguration" in refused["message"]
        it.until_steady()
