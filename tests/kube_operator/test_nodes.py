"""Pods and machines as nodes, and the readiness gate of their pods."""

from __future__ import annotations

from typing import Any

import pytest

from kube_operator.installation import LABELS, machine_body
from shardlog_operator.nodes import GATE, Machine, NodePod, Nodes, leaving, machine_of, node_pod
from shardlog_operator.placing import Place
from shardlog_operator.rolling import Gate, Replication, gate_of, patch
from shardlog_operator.watched import Watched

Json = Any


def pod(name: str = "node-0", *, ready: str = "True", **changes: Json) -> Json:
    meta = {"name": name, "uid": f"uid-{name}", "labels": dict(LABELS)}
    return {
        "metadata": meta | changes.pop("metadata", {}),
        "spec": {"nodeName": "m", "readinessGates": [{"conditionType": GATE}]}
        | changes.pop("spec", {}),
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "conditions": [{"type": "ContainersReady", "status": ready}, *changes.pop("more", [])],
        }
        | changes.pop("status", {}),
    }


def test_a_pod_is_read():
    found = node_pod(pod(more=[{"type": GATE, "status": "False"}]))
    assert found == NodePod(
        "node-0", "uid-node-0", "default", "10.0.0.1", None, "m",
        {"data": 7400, "control": 7401, "http": 7402}, True, False, True, "False", "", "",
    )  # fmt: skip


def test_ports_are_those_of_the_container_and_annotations_go_before():
    ports = [{"name": "data", "containerPort": 1}, {"name": "public", "containerPort": 2}]
    body = pod(spec={"containers": [{"ports": ports}]})
    assert node_pod(body).ports == {"data": 1, "control": 7401, "http": 7402, "public": 2}
    body["metadata"]["annotations"] = {"shardlog.dev/data-port": "9", "shardlog.dev/http-port": "x"}
    assert node_pod(body).ports["data"] == 9
    assert node_pod(body).ports["http"] == 7402


@pytest.mark.parametrize(
    ("changes", "alive"),
    [
        ({}, True),
        ({"ready": "False"}, False),
        ({"status": {"phase": "Failed"}}, False),
        ({"status": {"podIP": None}}, False),
        # Our own gate must not count: it waits for the node, not the node for it.
        ({"more": [{"type": "Ready", "status": "False"}]}, True),
    ],
)
def test_a_node_is_alive_by_its_containers(changes: Json, alive: bool):
    nodes = Nodes(lambda: 0.0)
    nodes.take(node_pod(pod(**changes)))
    assert nodes.places((), frozenset(), 60.0).is_alive("node-0") == alive


def test_how_long_a_node_is_lost_is_counted_here():
    now = [100.0]
    nodes = Nodes(lambda: now[0])
    nodes.take(node_pod(pod()))

    def place(name: str = "node-0") -> Place:
        return nodes.places(["node-9"], frozenset(), 60.0).nodes[name]

    assert place().lost_s is None
    assert place("node-9").lost_s == 0.0
    nodes.take(node_pod(pod(ready="False")))
    assert place().lost_s == 0.0
    now[0] = 130.0
    assert place().lost_s == 30.0
    assert place("node-9").lost_s == 30.0
    nodes.take(node_pod(pod()))
    assert place().lost_s is None
    nodes.drop("node-0", "another uid")
    assert place().lost_s is None
    nodes.drop("node-0", "uid-node-0")
    assert "node-0" not in nodes.places((), frozenset(), 60.0).nodes


def test_a_machine_that_is_not_ready_loses_its_nodes():
    nodes = Nodes(lambda: 0.0)
    nodes.take(node_pod(pod()))
    nodes.machines = {"m": Machine("m", ready=False)}
    assert not nodes.places((), frozenset(), 60.0).is_alive("node-0")


def test_a_machine_is_read():
    body = machine_body("m", **{"topology.kubernetes.io/zone": "z"})
    found = machine_of(body)
    assert (found.ready, found.cordoned) == (True, False)
    assert found.labels["topology.kubernetes.io/zone"] == "z"
    body["spec"]["unschedulable"] = True
    body["status"]["conditions"][0]["status"] = "Unknown"
    assert (machine_of(body).ready, machine_of(body).cordoned) == (False, True)


def test_addresses():
    nodes = Nodes(lambda: 0.0)
    nodes.take(node_pod(pod()))
    assert nodes.control_address("node-0") == "10.0.0.1:7401"
    assert nodes.data_address("node-1") is None
    nodes.take(node_pod(pod(status={"podIP": "fd00::1"})))
    assert nodes.data_address("node-0") == "[fd00::1]:7400"
    nodes.take(node_pod(pod(metadata={"annotations": {"shardlog.dev/host": "elsewhere"}})))
    assert nodes.data_address("node-0") == "elsewhere:7400"
    named = Nodes(lambda: 0.0, "{node}.nodes.logs.svc")
    named.take(node_pod(pod()))
    assert named.control_address("node-0") == "node-0.nodes.logs.svc:7401"


def test_pods_with_other_labels_are_no_nodes():
    nodes = Nodes(lambda: 0.0)
    watched = Watched(nodes, {"app.kubernetes.io/component": "node"})
    heard: list[str] = []
    watched.pod_heard = heard.append
    watched.pod("ADDED", pod(metadata={"labels": {"app.kubernetes.io/component": "etcd"}}))
    assert (nodes.pods, heard) == ({}, [])


def test_a_list_is_as_old_as_it_says():
    """What was heard of meanwhile is not gone because it was not there yet."""
    nodes = Nodes(lambda: 0.0)
    watched = Watched(nodes, {"app.kubernetes.io/component": "node"})
    for name, version in (("node-0", "5"), ("node-1", "9")):
        watched.pod("ADDED", pod(name, metadata={"resourceVersion": version}))
        watched.shard("ADDED", {"metadata": {"name": name, "resourceVersion": version}})
    for plural in ("pods", "shards"):
        watched.relist(plural, {"metadata": {"resourceVersion": "7"}, "items": []})
    assert list(nodes.pods) == list(watched.shards) == ["node-1"]


def shard_of(version: int, uid: str = "1", **told: object) -> dict[str, object]:
    meta = {"name": "orders", "uid": uid, "resourceVersion": str(version)}
    return {"metadata": meta, "spec": told}


def test_what_is_older_than_what_is_known_is_no_news():
    """As when a watch tells again what stood there before our own write was answered."""
    watched = Watched(Nodes(lambda: 0.0), {})
    watched.shard("ADDED", shard_of(5, replicas=3))
    watched.wrote_shard(shard_of(9, replicas=5))
    watched.shard("MODIFIED", shard_of(7, replicas=4))
    assert watched.shards["orders"] == shard_of(9, replicas=5)
    watched.relist("shards", {"metadata": {"resourceVersion": "8"}, "items": [shard_of(7)]})
    assert watched.shards["orders"] == shard_of(9, replicas=5)
    listed = {"metadata": {"resourceVersion": "12"}, "items": [shard_of(12, replicas=1)]}
    watched.relist("shards", listed)
    assert watched.shards["orders"] == shard_of(12, replicas=1)


def test_the_deletion_of_an_earlier_one_takes_nothing_from_the_one_that_is_there():
    watched = Watched(Nodes(lambda: 0.0), {})
    watched.shard("ADDED", shard_of(5, "1"))
    watched.wrote_shard(shard_of(9, "2"))
    watched.shard("DELETED", shard_of(8, "1"))
    assert watched.shards == {"orders": shard_of(9, "2")}
    watched.shard("DELETED", shard_of(10, "2"))
    assert not watched.shards


def rolled(*revisions: str) -> list[NodePod]:
    return [
        node_pod(
            pod(
                f"node-{number}",
                metadata={
                    "labels": LABELS
                    | {
                        "controller-revision-hash": revision.rstrip("!"),
                        "shardlog.dev/pool": revision.partition("/")[2].rstrip("!") or "default",
                    },
                    "creationTimestamp": "2026-01-02"
                    if revision.startswith("new")
                    else "2026-01-01",
                    "deletionTimestamp": "now" if revision.endswith("!") else None,
                },
            )
        )
        for number, revision in enumerate(revisions)
    ]


@pytest.mark.parametrize(
    ("revisions", "names"),
    [
        (("old", "old", "old"), ()),
        (("old", "old", "old!"), ("node-2",)),
        (("old", "old", "new"), ("node-1",)),
        (("old", "old!", "new"), ("node-1",)),
        (("old", "new", "new"), ("node-0",)),
        (("new", "new", "new"), ()),
        (("", "", ""), ()),
        (("old", "old", "new/fast", "new/fast"), ()),
        (("old", "new", "old/fast", "old/fast"), ("node-0",)),
        (("old", "new", "old/fast", "new/fast"), ("node-0", "node-2")),
    ],
)
def test_the_next_pod_of_a_roll_is_leaving(revisions: tuple[str, ...], names: tuple[str, ...]):
    assert leaving(rolled(*revisions)) == set(names)


# --- gates ---------------------------------------------------------------------------------------


def shards(**behind: str | None) -> dict[str, Replication]:
    members = frozenset({"node-0", "node-1", "node-2"})
    return {
        name: Replication(members, None if nodes is None else tuple(nodes.split()))
        for name, nodes in behind.items()
    }


UNREADABLE = {"newer": Replication(None, None)}
GATES = {
    "no shard": (None, {}, True),
    "all is well": (None, shards(orders="", events=""), True),
    "and is known": ("True", shards(orders=""), None),
    "its own replica lags": ("True", shards(orders="node-0"), False),
    "that is known": ("False", shards(orders="node-0"), None),
    "another one lags when it comes up": (None, shards(orders="node-1"), False),
    "another one lags later": ("True", shards(orders="node-1"), None),
    "nobody leads when it comes up": (None, shards(orders=None), False),
    "nobody leads later": ("True", shards(orders=None), None),
    "it has caught up": ("False", shards(orders=""), True),
    "one of two lags": ("False", shards(orders="", events="node-2"), None),
    "a record cannot be read when it comes up": (None, shards(orders="") | UNREADABLE, False),
    "a record cannot be read later": ("True", shards(orders="") | UNREADABLE, None),
}


@pytest.mark.parametrize("case", GATES)
def test_gates(case: str):
    before, known, wanted = GATES[case]
    more = [{"type": GATE, "status": before}] if before else []
    found = gate_of(node_pod(pod(more=more)), known)
    assert (found.open if found else None) == wanted


def test_no_gate_no_word():
    assert gate_of(node_pod(pod(spec={"readinessGates": []})), {}) is None
    assert gate_of(node_pod(pod(ready="False")), {}) is None


def test_a_gate_is_one_condition_of_the_pod():
    assert patch(Gate(True, "FullyReplicated", "2 shards"), "now") == {
        "status": {
            "conditions": [
                {"type": GATE, "status": "True", "reason": "FullyReplicated",
                 "message": "2 shards", "lastTransitionTime": "now"}
            ]
        }
    }  # fmt: skip
