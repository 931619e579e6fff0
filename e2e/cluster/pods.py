"""Pods of our own beside a release, fit for a namespace that enforces PodSecurity `restricted`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardlog import __version__

Json = Any
MOUNT = "/snapshots"


def pod(
    namespace: str,
    name: str,
    claim: str,
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    port: int | None = None,
) -> Json:
    """With the node's image, and a claim at `MOUNT`; ready when it takes connections at `port`."""
    container = {
        "name": name,
        "image": f"shardlog-node:{__version__}",
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "env": [{"name": key, "value": value} for key, value in (environment or {}).items()],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": "claim", "mountPath": MOUNT},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
    if port is not None:
        container["readinessProbe"] = {"tcpSocket": {"port": port}, "periodSeconds": 1}
    spec = {
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "fsGroup": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "claim", "persistentVolumeClaim": {"claimName": claim}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    metadata = {"name": name, "namespace": namespace, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
