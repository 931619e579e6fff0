"""`kubectl scale` of a Shard, up and down again."""

from __future__ import annotations

from e2e.cluster.scenario import Scenarios


def test_scaled_up_and_down(scenarios: Scenarios):
    with scenarios.scenario("kubectl scale 3 → 5 → 3", "scaled") as it:
        it.break_by(lambda: it.release.kubectl("scale", "shard/scaled", "--replicas=5"))
        it.prove("members", 3, lambda: len(it.members()))
        it.until_steady(5)
        it.clients.until_more()
        it.release.kubectl("scale", "shard/scaled", "--replicas=3")
        it.until_steady(3)
        assert len(it.members()) == 3
