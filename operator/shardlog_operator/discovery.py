"""A Service for every shard that leads to its leader: the name of a Shard is all a client needs.

The Service has no selector; its one EndpointSlice is ours and names the leader's pod, or nobody
while there is no leader.  Both belong to the Shard and go with it.  What stands there under the
same name and is not ours is left alone, and said so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardlog_operator.spec import API_VERSION, ShardSpec

Json = Any
DATA_PORT = 7400
PUBLIC_PORT = 7403
SHARD_LABEL = "shardlog.dev/shard"
COMPONENT = "shardlog-operator"


@dataclass(frozen=True, slots=True)
class LeaderPod:
    """Where the leader is; `machine` and `uid` as its pod tells them."""

    node: str
    ip: str
    data_port: int = DATA_PORT
    public_port: int | None = None
    machine: str | None = None
    uid: str = ""


def owned_by(spec: ShardSpec) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": "Shard",
        "name": spec.name,
        "uid": spec.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def is_ours(body: Mapping[str, Any], spec: ShardSpec) -> bool:
    """Made for this Shard, or for an earlier one of its name that kept its records."""
    meta = body["metadata"]
    owners = meta.get("ownerReferences") or ()
    if any(each.get("uid") == spec.uid for each in owners):
        return True
    return (meta.get("labels") or {}).get(SHARD_LABEL) == spec.name and all(
        each.get("kind") == "Shard" for each in owners
    )


def _metadata(spec: ShardSpec, namespace: str, labels: Json) -> Json:
    return {
        "name": spec.name,
        "namespace": namespace,
        "labels": {
            "app.kubernetes.io/name": "shardlog",
            "app.kubernetes.io/component": "shard",
            "app.kubernetes.io/managed-by": COMPONENT,
            SHARD_LABEL: spec.name,
        }
        | labels,
        "ownerReferences": [owned_by(spec)],
    }


def service(spec: ShardSpec, namespace: str) -> Json:
    ports = [
        {"name": "data", "port": DATA_PORT, "targetPort": DATA_PORT, "protocol": "TCP"},
        {"name": "public", "port": PUBLIC_PORT, "targetPort": PUBLIC_PORT, "protocol": "TCP"},
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(spec, namespace, {}),
        "spec": {"type": "ClusterIP", "ports": ports},
    }


def endpoint_slice(spec: ShardSpec, namespace: str, leader: LeaderPod | None) -> Json:
    labels = {
        "kubernetes.io/service-name": spec.name,
        "endpointslice.kubernetes.io/managed-by": COMPONENT,
    }
    ports: list[Json] = [
        {"name": "data", "port": leader.data_port if leader else DATA_PORT, "protocol": "TCP"}
    ]
    if leader and leader.public_port:
        ports.append({"name": "public", "port": leader.public_port, "protocol": "TCP"})
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": _metadata(spec, namespace, labels),
        "addressType": "IPv6" if leader and ":" in leader.ip else "IPv4",
        "endpoints": [_endpoint(leader, namespace)] if leader else [],
        "ports": ports,
    }


def _endpoint(leader: LeaderPod, namespace: str) -> Json:
    found: Json = {
        "addresses": [leader.ip],
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "targetRef": {
            "kind": "Pod",
            "name": leader.node,
            "namespace": namespace,
            "uid": leader.uid,
        },
    }
    if leader.machine:
        found["nodeName"] = leader.machine
    return found


def differs(found: Json, wanted: Json) -> bool:
    """Whether what we say about an object is not what stands there; what others add is theirs."""
    if isinstance(wanted, Mapping):
        return not isinstance(found, Mapping) or any(
            differs(found.get(name), value) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            not isinstance(found, list)
            or len(found) != len(wanted)
            or any(differs(one, other) for one, other in zip(found, wanted, strict=True))
        )
    return bool(found != wanted)
