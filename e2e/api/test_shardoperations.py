"""The ShardOperation as the API server has it: which fields go with which operation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.api.manifests import operation, refusal
from e2e.api_server import ApiServer
from e2e.kubernetes import Refused

ENTRY = {"epoch": 3, "offset": 120}

LEGAL: dict[str, dict[str, Any]] = {
    "promote": operation(operation="Promote", shard="orders", node="shardlog-node-1"),
    "swap": operation(operation="Swap", shard="orders", oldNode="n-0", newNode="n-3"),
    "swap for any": operation(operation="Swap", shard="orders", oldNode="n-0"),
    "abort": operation(operation="Abort", shard="orders"),
    "drain": operation(operation="Drain", node="shardlog-node-1"),
    "accept a loss": operation(operation="AcceptLoss", shard="orders", entry=ENTRY),
    "accept the loss of the first": operation(
        operation="AcceptLoss", shard="orders", entry={"epoch": 1, "offset": 0}
    ),
}

ILLEGAL: dict[str, tuple[dict[str, Any], str]] = {
    "no operation": (operation(shard="orders"), "spec.operation: Required value"),
    "no spec": (
        {key: value for key, value in operation().items() if key != "spec"},
        "spec: Required value",
    ),
    "an unknown one": (
        operation(operation="promote", shard="orders", node="n-1"),
        'supported values: "Promote", "Swap", "Abort", "Drain", "AcceptLoss"',
    ),
    "promote without shard": (
        operation(operation="Promote", node="n-1"),
        "Promote needs shard: the Shard it is about",
    ),
    "promote without node": (
        operation(operation="Promote", shard="orders"),
        "Promote needs node: the node that shall lead",
    ),
    "promote with newNode": (
        operation(operation="Promote", shard="orders", node="n-1", newNode="n-2"),
        "Promote takes no newNode; only Swap does",
    ),
    "promote with oldNode": (
        operation(operation="Promote", shard="orders", node="n-1", oldNode="n-2"),
        "Promote takes no oldNode; only Swap does",
    ),
    "swap without shard": (operation(operation="Swap", oldNode="n-1"), "Swap needs shard"),
    "swap without oldNode": (
        operation(operation="Swap", shard="orders", newNode="n-1"),
        "Swap needs oldNode: the node whose replica shall be replaced",
    ),
    "swap with node": (
        operation(operation="Swap", shard="orders", oldNode="n-1", node="n-2"),
        "Swap takes no node; it takes oldNode and newNode",
    ),
    "swap for itself": (
        operation(operation="Swap", shard="orders", oldNode="n-1", newNode="n-1"),
        "oldNode and newNode are the same node",
    ),
    "abort without shard": (operation(operation="Abort"), "Abort needs shard"),
    "abort with node": (
        operation(operation="Abort", shard="orders", node="n-1"),
        "Abort takes no node",
    ),
    "abort with an entry": (
        operation(operation="Abort", shard="orders", entry=ENTRY),
        "Abort takes no entry; only AcceptLoss does",
    ),
    "drain without node": (
        operation(operation="Drain"),
        "Drain needs node: the node that shall give up its replicas",
    ),
    "drain of a shard": (
        operation(operation="Drain", node="n-1", shard="orders"),
        "Drain takes no shard, since it is about all shards of a node",
    ),
    "a loss of what": (
        operation(operation="AcceptLoss", shard="orders"),
        "AcceptLoss needs entry: the entry that may be lost, which status.waitingFor",
    ),
    "a loss of half an entry": (
        operation(operation="AcceptLoss", shard="orders", entry={"epoch": 3}),
        "spec.entry.offset: Required value",
    ),
    "a loss of no entry": (
        operation(operation="AcceptLoss", shard="orders", entry={"epoch": 0, "offset": -1}),
        "should be greater than or equal to",
    ),
    "no shard's name": (
        operation(operation="Abort", shard="Orders.eu"),
        "shard is the name of a Shard",
    ),
    "no node's name": (
        operation(operation="Drain", node="10.0.0.1:7400"),
        "node is the name of a node's pod",
    ),
    "an unknown field": (
        operation(operation="Drain", node="n-1", force=True),
        'unknown field "spec.force"',
    ),
}


@pytest.mark.parametrize("manifest", LEGAL.values(), ids=LEGAL)
def test_legal(api: ApiServer, manifest: dict[str, Any]):
    assert refusal(api, manifest, "default") == ""


@pytest.mark.parametrize(("manifest", "told"), ILLEGAL.values(), ids=ILLEGAL)
def test_illegal(api: ApiServer, manifest: dict[str, Any], told: str):
    assert told in refusal(api, manifest, "default")


@pytest.mark.parametrize("change", [{"node": "n-2"}, {"operation": "Drain"}, {"newNode": "n-2"}])
def test_the_spec_never_changes(api: ApiServer, namespace: str, change: dict[str, str]):
    api.apply(operation(operation="Promote", shard="orders", node="n-1"), "-n", namespace)
    patch = json.dumps({"spec": change})
    with pytest.raises(Refused, match="cannot be changed; delete it and make another one"):
        api.kubectl("patch", "shdop", "now", "-n", namespace, "--type=merge", "-p", patch)


def test_labels_may_change(api: ApiServer, namespace: str):
    api.apply(operation(operation="Abort", shard="orders"), "-n", namespace)
    api.kubectl("label", "shdop", "now", "ticket=17", "-n", namespace)


def test_status_and_columns(api: ApiServer, namespace: str):
    api.apply(operation(operation="Promote", shard="orders", node="n-1"), "-n", namespace)
    status = {
        "phase": "Failed",
        "message": "n-1 is not a member",
        "observedGeneration": 1,
        "startedAt": "2026-11-16T12:00:00Z",
        "completedAt": "2026-11-16T12:00:01Z",
    }
    patch = json.dumps({"status": status})
    arguments = ("-n", namespace, "--subresource=status", "--type=merge", "-p", patch)
    api.kubectl("patch", "shdop", "now", *arguments)
    assert api.get("shdop", "now", "-n", namespace)["status"] == status
    head, row = api.kubectl("get", "shdop", "-n", namespace).splitlines()
    assert head.split() == ["NAME", "OPERATION", "SHARD", "PHASE", "MESSAGE", "AGE"]
    assert row.startswith("now    Promote     orders   Failed   n-1 is not a member")


def test_explain(api: ApiServer):
    text = " ".join(api.kubectl("explain", "shardoperation.spec").split())
    assert "enum: Promote, Swap, Abort, Drain" in text
    assert "<no description>" not in text
