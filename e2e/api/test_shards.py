"""The Shard as the API server has it: what it refuses, in which words; defaults, subresources."""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.api.manifests import refusal, shard
from e2e.api_server import ApiServer
from e2e.kubernetes import Refused

LEGAL: dict[str, dict[str, Any]] = {
    "nothing said": shard(),
    "one replica": shard(replicas=1),
    "seven replicas": shard(replicas=7),
    "an even number": shard(replicas=4),
    "read-mostly quorums": shard(replicas=5, quorum={"replication": 5, "fencing": 1}),
    "write-mostly quorums": shard(replicas=5, quorum={"replication": 2, "fencing": 4}),
    "one quorum given": shard(replicas=5, quorum={"replication": 3}),
    "the other given": shard(replicas=5, quorum={"fencing": 4}),
    "retention": shard(retention={"bytes": 1048576, "time": "168h"}),
    "retention in parts": shard(retention={"time": "1h30m5s"}),
    "the shortest retention": shard(retention={"time": "60s"}),
    "the longest retention": shard(retention={"time": "999999h999999m999999s"}),
    "relaxed": shard(durability="Relaxed"),
    "another pool": shard(pool="fast-2"),
    "zones": shard(placement={"topologyKey": "topology.kubernetes.io/zone"}),
    "a label of one's own": shard(placement={"topologyKey": "Rack_no.1"}),
    "delete": shard(deletionPolicy="Delete", paused=True),
    "the longest name": shard("a" * 63),
}

NAME = "the name of a Shard is also that of its Service: at most 63 lower case letters"
TIME = "time is hours, minutes and seconds in whole numbers, in this order, for example 168h"
POOL = "pool is the value of a label: lower case letters, digits and '-'"
KEY = "topologyKey is the key of a label of machines, for example kubernetes.io/hostname"

ILLEGAL: dict[str, tuple[dict[str, Any], str]] = {
    "no replicas": (shard(replicas=0), "should be greater than or equal to 1"),
    "fewer than none": (shard(replicas=-3), "should be greater than or equal to 1"),
    "too many replicas": (shard(replicas=8), "should be less than or equal to 7"),
    "half a replica": (shard(replicas=2.5), "must be of type integer"),
    "replicas in words": (shard(replicas="three"), 'must be of type integer: "string"'),
    "replication beyond all": (
        shard(replicas=3, quorum={"replication": 4}),
        "quorum.replication is 4, but replicas is 3",
    ),
    "fencing beyond all": (
        shard(replicas=1, quorum={"fencing": 2}),
        "quorum.fencing is 2, but replicas is 1",
    ),
    "quorums that can miss each other": (
        shard(replicas=5, quorum={"replication": 2, "fencing": 3}),
        "quorum.replication (2) + quorum.fencing (3) must be more than replicas (5)",
    ),
    "a majority does not suffice": (
        shard(replicas=5, quorum={"replication": 2}),
        "quorum.replication (2) + quorum.fencing (3) must be more than replicas (5)",
    ),
    "nor the other way round": (
        shard(replicas=4, quorum={"fencing": 1}),
        "quorum.replication (3) + quorum.fencing (1) must be more than replicas (4)",
    ),
    "no replication": (
        shard(quorum={"replication": 0, "fencing": 3}),
        "spec.quorum.replication in body should be greater than or equal to 1",
    ),
    "an empty quorum": (shard(quorum={}), "should have at least 1 properties"),
    "a name that begins with a digit": (shard("2orders"), NAME),
    "a name with a dot": (shard("orders.eu"), NAME),
    "a name that is too long": (shard("a" * 64), NAME),
    "a name in capitals": (shard("Orders"), "metadata.name: Invalid value"),
    "days": (shard(retention={"time": "7d"}), TIME),
    "no unit": (shard(retention={"time": "3600"}), TIME),
    "no time": (shard(retention={"time": ""}), TIME),
    "fractions": (shard(retention={"time": "1.5h"}), TIME),
    "minutes before hours": (shard(retention={"time": "5m1h"}), TIME),
    "a negative time": (shard(retention={"time": "-1h"}), TIME),
    "hardly any time": (shard(retention={"time": "59s"}), "records are kept for at least 1m"),
    "hardly any bytes": (
        shard(retention={"bytes": 1024}),
        "spec.retention.bytes in body should be greater than or equal to 1048576",
    ),
    "bytes with a unit": (shard(retention={"bytes": "10Gi"}), "must be of type integer"),
    "an unknown durability": (
        shard(durability="sync"),
        'spec.durability: Unsupported value: "sync": supported values: "Sync", "Relaxed"',
    ),
    "an unknown policy": (shard(deletionPolicy="Keep"), 'supported values: "Retain", "Delete"'),
    "paused in words": (shard(paused="yes"), 'must be of type boolean: "string"'),
    "a pool in capitals": (shard(pool="Fast"), POOL),
    "a pool that ends oddly": (shard(pool="fast-"), POOL),
    "no pool": (shard(pool=""), "spec.pool in body should be at least 1 chars long"),
    "no label key": (shard(placement={"topologyKey": "zone!"}), KEY),
    "two slashes": (shard(placement={"topologyKey": "a/b/c"}), KEY),
    "an unknown field": (shard(replica=3), 'unknown field "spec.replica"'),
    "an unknown field below": (
        shard(retention={"size": 1}),
        'unknown field "spec.retention.size"',
    ),
}


@pytest.mark.parametrize("manifest", LEGAL.values(), ids=LEGAL)
def test_legal(api: ApiServer, manifest: dict[str, Any]):
    assert refusal(api, manifest, "default") == ""


@pytest.mark.parametrize(("manifest", "told"), ILLEGAL.values(), ids=ILLEGAL)
def test_illegal(api: ApiServer, manifest: dict[str, Any], told: str):
    assert told in refusal(api, manifest, "default")


def test_there_are_enough_illegal_ones():
    assert len(ILLEGAL) >= 25


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "pool": ({}, {"pool": "fast"}, "pool cannot be changed: replicas do not move between pools"),
    "durability": ({}, {"durability": "Relaxed"}, "durability cannot be changed"),
    "quorum set": ({}, {"quorum": {"fencing": 3}}, "quorum cannot be changed, neither set nor"),
    "quorum removed": ({"quorum": {"fencing": 3}}, {"quorum": None}, "quorum cannot be changed"),
    "quorum": ({"quorum": {"fencing": 3}}, {"quorum": {"fencing": 2}}, "quorum cannot be changed"),
    "scaled beyond its quorum": (
        {"quorum": {"replication": 2, "fencing": 2}},
        {"replicas": 5},
        "quorum.replication (2) + quorum.fencing (2) must be more than replicas (5)",
    ),
    "replicas": ({}, {"replicas": 5}, ""),
    "retention": ({}, {"retention": {"time": "24h"}}, ""),
    "placement": ({}, {"placement": {"topologyKey": "topology.kubernetes.io/zone"}}, ""),
    "deletionPolicy": ({}, {"deletionPolicy": "Delete"}, ""),
    "paused": ({}, {"paused": True}, ""),
    "the same quorum": ({"quorum": {"fencing": 3}}, {"quorum": {"fencing": 3}}, ""),
}


@pytest.mark.parametrize(("before", "change", "told"), CHANGES.values(), ids=CHANGES)
def test_changes(
    api: ApiServer, namespace: str, before: dict[str, Any], change: dict[str, Any], told: str
):
    api.apply(shard(**before), "-n", namespace)
    patch = json.dumps({"spec": change})
    arguments = ("patch", "shard", "orders", "-n", namespace, "--type=merge", "-p", patch)
    if told:
        with pytest.raises(Refused) as refused:
            api.kubectl(*arguments)
        assert told in str(refused.value)
    else:
        api.kubectl(*arguments)


def test_defaults(api: ApiServer, namespace: str):
    api.apply({key: value for key, value in shard().items() if key != "spec"}, "-n", namespace)
    assert api.get("shard", "orders", "-n", namespace)["spec"] == {
        "replicas": 3,
        "pool": "default",
        "durability": "Sync",
        "placement": {"topologyKey": "kubernetes.io/hostname"},
        "deletionPolicy": "Retain",
        "paused": False,
    }


STATUS: dict[str, Any] = {
    "observedGeneration": 1,
    "phase": "Reconfiguring",
    "epoch": 7,
    "leader": "shardlog-node-1",
    "replicas": 3,
    "selector": "app.kubernetes.io/component=node,shardlog.dev/pool=default",
    "commitOffset": 123,
    "waitingFor": "entry (6, 120) on shardlog-node-2",
    "ensemble": [
        {
            "node": "shardlog-node-1",
            "role": "Leader",
            "incarnation": "18446744073709551615",
            "head": 124,
            "commit": 123,
            "lag": 0,
            "state": "serving",
        }
    ],
    "history": [{"epoch": 7, "first": 100}],
    "reconfiguration": {"operation": "Expand", "phase": "Prepare", "newNode": "shardlog-node-3"},
    "conditions": [
        {
            "type": "Ready",
            "status": "False",
            "reason": "Reconfiguring",
            "message": "shardlog-node-3 is being added",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-11-16T12:00:00Z",
        }
    ],
}


def patch_status(api: ApiServer, namespace: str, kind: str, name: str, status: Any) -> None:
    patch = json.dumps({"status": status})
    api.kubectl(
        "patch", kind, name, "-n", namespace, "--subresource=status", "--type=merge", "-p", patch
    )


def test_status_is_a_subresource(api: ApiServer, namespace: str):
    """All that the operator reports is kept, and neither side can write what is the other's."""
    api.apply(shard() | {"status": {"phase": "Halted"}}, "-n", namespace)
    assert "status" not in api.get("shard", "orders", "-n", namespace)
    patch_status(api, namespace, "shard", "orders", STATUS)
    found = api.get("shard", "orders", "-n", namespace)
    assert found["status"] == STATUS
    assert found["metadata"]["generation"] == 1


def test_scale(api: ApiServer, namespace: str):
    api.apply(shard(), "-n", namespace)
    patch_status(api, namespace, "shard", "orders", STATUS)
    api.kubectl("scale", "shard/orders", "--replicas=5", "-n", namespace)
    path = f"/apis/shardlog.dev/v1alpha1/namespaces/{namespace}/shards/orders/scale"
    scale = json.loads(api.kubectl("get", "--raw", path))
    assert scale["spec"] == {"replicas": 5}
    assert scale["status"] == {"replicas": 3, "selector": STATUS["selector"]}
    assert api.get("shard", "orders", "-n", namespace)["metadata"]["generation"] == 2


@pytest.mark.parametrize(("replicas", "told"), [(8, "less than or equal to 7"), (0, "equal to 1")])
def test_scale_is_held_to_the_rules(api: ApiServer, namespace: str, replicas: int, told: str):
    api.apply(shard(), "-n", namespace)
    with pytest.raises(Refused, match=told):
        api.kubectl("scale", "shard/orders", f"--replicas={replicas}", "-n", namespace)


def test_columns(api: ApiServer, namespace: str):
    api.apply(shard(), "-n", namespace)
    patch_status(api, namespace, "shard", "orders", STATUS)
    head, row = api.kubectl("get", "shards", "-n", namespace).splitlines()
    assert head.split() == ["NAME", "READY", "LEADER", "EPOCH", "REPLICAS", "PHASE", "AGE"]
    assert row.split()[:6] == ["orders", "False", "shardlog-node-1", "7", "3", "Reconfiguring"]
    wide = api.kubectl("get", "shd", "-n", namespace, "-o", "wide")
    assert wide.split("\n")[0].split()[6:] == ["COMMIT", "POOL", "WAITING", "FOR", "AGE"]
    assert "entry (6, 120) on shardlog-node-2" in wide


def test_category(api: ApiServer, namespace: str):
    api.apply(shard(), "-n", namespace)
    assert api.kubectl("get", "shardlog", "-n", namespace, "-o", "name").split() == [
        "shard.shardlog.dev/orders"
    ]


def test_explain(api: ApiServer):
    """Every field of the spec is explained, with its default and its choices."""
    told = api.kubectl("explain", "shard.spec", "--recursive")
    text = " ".join(api.kubectl("explain", "shard.spec").split())
    for field in ("replicas", "pool", "retention", "durability", "quorum", "placement", "paused"):
        assert f"\n  {field}\t<" in told
    assert "How many nodes hold a copy of the log, from 1 to 7." in text
    assert "enum: Sync, Relaxed" in text
    assert "<no description>" not in text
