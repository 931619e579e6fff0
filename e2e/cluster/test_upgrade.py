"""`helm upgrade` to a second tag of the images, node after node, and `helm rollback`.

The nodes of the second tag also find on their volumes what the oldest format version wrote
(`tests/golden_volumes`): they take it up with all its records.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from golden_volumes import NODES, SHARD, VERSIONS, GoldenVolumes

from e2e.cluster.records import records_of
from e2e.cluster.release import NEXT
from e2e.cluster.scenario import Scenario, Scenarios
from shardlog import __version__

Json = Any

KINDS = ("node", "operator")
VOLUME = "/var/lib/shardlog/volume"
OLDEST = GoldenVolumes(VERSIONS[0])


def images(it: Scenario) -> set[str]:
    return {pod.image for kind in KINDS for pod in it.release.pods(kind).values()}


def until_images(it: Scenario, tag: str) -> None:
    """Those that are replaced may still be there when helm has done its work."""
    wanted = {f"shardlog-{kind}:{tag}" for kind in KINDS}
    it.release.until(lambda: images(it) == wanted, f"not all pods are {tag}")


def test_upgraded_and_rolled_back(scenarios: Scenarios):
    release = scenarios.release
    with scenarios.scenario("helm upgrade of nodes and operators", "upgraded") as it:
        for kind in KINDS:
            image = f"docker.io/library/shardlog-{kind}"
            release.cluster.tag(f"{image}:{__version__}", f"{image}:{NEXT}")
        put_on_volumes(it)
        before = images(it)
        flags = [f"--set={kind}.image.tag={NEXT}" for kind in ("nodes", "operator")]
        it.break_by(lambda: release.upgrade(*flags))
        it.prove("images", before, lambda: images(it))
        until_images(it, NEXT)
        it.until_steady()
        the_oldest_is_taken_up(it)
    with scenarios.scenario("helm rollback", "rolled-back") as it:
        before = images(it)
        it.break_by(lambda: release.helm("rollback", "shardlog", "--wait"))
        it.prove("images", before, lambda: images(it))
        until_images(it, __version__)
        it.until_steady()


def put_on_volumes(it: Scenario) -> None:
    """Of each node what is its own; it looks at its volume when it starts."""
    archive = base64.b64encode(OLDEST.archive.read_bytes()).decode()
    for node in NODES:
        script = f"base64 -d | tar -xz --no-same-owner --strip-components=1 -C {VOLUME} {node}"
        it.release.kubectl("exec", "-i", node, "--", "sh", "-ec", script, stdin=archive)


def the_oldest_is_taken_up(it: Scenario) -> None:
    release = it.release
    for node in NODES:
        directory = f"{VOLUME}/{SHARD}"
        said = release.kubectl(
            "exec", node, "--", "shardlog", "storage", "inspect", directory, "-o", "json"
        )
        (replica,) = json.loads(said)["replicas"]
        assert f"v{replica['format_version']}" == OLDEST.version
        release.kubectl("exec", node, "--", "shardlog", "storage", "verify", directory)
    with records_of(release) as records:
        records.put(SHARD, OLDEST.record)
    try:
        release.create_shard(SHARD)
        release.until(lambda: release.steady(SHARD, len(NODES)), f"{SHARD} is not taken up")
        found = {each["node"]: each["incarnation"] for each in release.status(SHARD)["ensemble"]}
        held = {member.node: str(member.incarnation) for member in OLDEST.shard.ensemble}
        assert found == held
        assert read(it) == OLDEST.records
        release.kubectl("exec", it.clients.name, "--", "shardlog", "append", SHARD, "one more")
        *old, last = read(it)
        assert old == OLDEST.records
        assert last["value"] == "one more"
    finally:
        release.kubectl("delete", f"shard/{SHARD}", "--ignore-not-found", "--wait=false")
    it.proofs.append(f"{len(old)} records of format {OLDEST.version} on {len(NODES)} nodes: read")


def read(it: Scenario) -> list[Json]:
    """All records of the golden shard, by a client in the cluster."""
    said = it.release.kubectl(
        "exec", it.clients.name, "--", "shardlog", "read", SHARD, "-o", "json"
    )
    return [json.loads(line) for line in said.splitlines()]
