"""Shards, operations and snapshots to try, and how to try them without making them."""

from __future__ import annotations

from typing import Any

from e2e.api_server import ApiServer
from e2e.kubernetes import Refused

API_VERSION = "shardlog.dev/v1alpha1"


def shard(name: str = "orders", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name}
    return {"apiVersion": API_VERSION, "kind": "Shard", "metadata": metadata, "spec": spec}


def operation(name: str = "now", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name}
    return {"apiVersion": API_VERSION, "kind": "ShardOperation", "metadata": metadata, "spec": spec}


def snapshot(name: str = "nightly", **spec: Any) -> dict[str, Any]:
    """To a bucket, unless the spec says otherwise."""
    told = {"shard": "orders", "destination": {"url": "s3://backups/logs"}} | spec
    metadata = {"name": name}
    return {"apiVersion": API_VERSION, "kind": "ShardSnapshot", "metadata": metadata, "spec": told}


def refusal(api: ApiServer, manifest: dict[str, Any], namespace: str) -> str:
    """Why the API server does not take it; empty if it would. Nothing is stored."""
    try:
        api.apply(manifest, "--dry-run=server", "-n", namespace)
    except Refused as refused:
        return str(refused)
    return ""
