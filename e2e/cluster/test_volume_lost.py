"""A node comes back with an empty volume: its replica is another one, and is made whole."""

from __future__ import annotations

from e2e.cluster.scenario import Scenarios


def test_a_volume_is_lost(scenarios: Scenarios):
    release = scenarios.release
    with scenarios.scenario("a volume lost → new incarnation", "emptied") as it:
        node = sorted(it.members() - {it.leader()})[0]
        incarnation = it.incarnation(node)
        claim = release.get("pvc", f"volume-{node}")
        assert claim

        def lose() -> None:
            release.kubectl("delete", "pvc", f"volume-{node}", "--wait=false")
            release.kubectl("delete", "pod", node, "--grace-period=0", "--force")

        it.break_by(lose)
        it.prove(
            "claim",
            claim["metadata"]["uid"],
            lambda: (found := release.get("pvc", f"volume-{node}")) and found["metadata"]["uid"],
        )
        release.until(lambda: (pod := release.pod(node)) and pod.is_ready, f"{node} is not Ready")
        it.until_steady()
        if node in it.members():
            it.prove("incarnation", incarnation, lambda: it.incarnation(node))
