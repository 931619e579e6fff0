"""`helm uninstall` keeps CRDs, Shards and volumes; installed again, all records are there."""

from __future__ import annotations

from e2e.cluster.release import NODES
from e2e.cluster.scenario import Scenarios

CRDS = ("shards.shardlog.dev", "shardoperations.shardlog.dev", "shardsnapshots.shardlog.dev")


def test_uninstalled_and_installed_again(scenarios: Scenarios):
    release = scenarios.release
    with scenarios.scenario("uninstall and install again", "kept") as it:
        before = {name: pod.uid for name, pod in release.pods("node").items()}
        held = {node: it.incarnation(node) for node in it.members()}
        it.clients.until_more()
        it.break_by(lambda: release.helm("uninstall", "shardlog", "--wait"))
        release.until(lambda: not release.pods("node"), "nodes are still there")
        for name in CRDS:
            assert release.get("crd", name)
        assert release.get("shard", "kept")
        claims = release.listed("pvc", "app.kubernetes.io/component=node")
        assert len(claims) == NODES
        release.install()
        it.prove("pod UIDs", before, lambda: {n: p.uid for n, p in release.pods("node").items()})
        it.until_steady()
        assert {node: it.incarnation(node) for node in it.members()} == held
