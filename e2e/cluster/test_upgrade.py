"""`helm upgrade` to a second tag of the images, node after node, and `helm rollback`."""

from __future__ import annotations

from e2e.cluster.release import NEXT
from e2e.cluster.scenario import Scenario, Scenarios
from shardlog import __version__

KINDS = ("node", "operator")


def images(it: Scenario) -> set[str]:
    return {pod.image for kind in KINDS for pod in it.release.pods(kind).values()}


def test_upgraded_and_rolled_back(scenarios: Scenarios):
    release = scenarios.release
    with scenarios.scenario("helm upgrade of nodes and operators", "upgraded") as it:
        for kind in KINDS:
            image = f"docker.io/library/shardlog-{kind}"
            release.cluster.tag(f"{image}:{__version__}", f"{image}:{NEXT}")
        before = images(it)
        flags = [f"--set={kind}.image.tag={NEXT}" for kind in ("nodes", "operator")]
        it.break_by(lambda: release.upgrade(*flags))
        it.prove("images", before, lambda: images(it))
        assert images(it) == {f"shardlog-{kind}:{NEXT}" for kind in KINDS}
        it.until_steady()
    with scenarios.scenario("helm rollback", "rolled-back") as it:
        before = images(it)
        it.break_by(lambda: release.helm("rollback", "shardlog", "--wait"))
        it.prove("images", before, lambda: images(it))
        assert images(it) == {f"shardlog-{kind}:{__version__}" for kind in KINDS}
        it.until_steady()
