"""What a cluster of our own needs inside before anything can run in it: DNS and volumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from e2e.kubernetes import Kubernetes
from e2e.machines import DNS, VOLUMES, Machine

DNS_IMAGE = "registry.k8s.io/coredns/coredns:v1.14.1"
CLASS = "machine"
VOLUME_SIZE = "100Gi"

COREFILE = """\
.:53 {
    errors
    ready
    kubernetes cluster.local in-addr.arpa {
        pods insecure
    }
    cache 30
}
"""

Manifest = dict[str, Any]


def apply(api: Kubernetes, machines: Sequence[Machine]) -> None:
    objects = [*_dns(), _storage_class()]
    for machine in machines:
        objects += [_volume(machine, number) for number in range(VOLUMES)]
    api.apply(objects, "--server-side")


def await_ready(api: Kubernetes, machines: int, timeout_s: int) -> None:
    """Machines register themselves, so they are waited for by name."""
    for number in range(1, machines + 1):
        for condition in ("create", "condition=Ready"):
            api.kubectl(
                "wait", f"--for={condition}", f"node/machine-{number}", f"--timeout={timeout_s}s"
            )
    api.kubectl(
        "rollout", "status", "deployment/coredns", "-n", "kube-system", f"--timeout={timeout_s}s"
    )


def _storage_class() -> Manifest:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def _volume(machine: Machine, number: int) -> Manifest:
    """A directory of one machine; a claim that is bound to it holds its pod there."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [machine.name]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{machine.name}-{number}"},
        "spec": {
            "capacity": {"storage": VOLUME_SIZE},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": CLASS,
            "local": {"path": str(machine.root / "volumes" / str(number))},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


def _dns() -> list[Manifest]:
    name, namespace = "coredns", "kube-system"
    metadata = {"name": name, "namespace": namespace}
    labels = {"k8s-app": "kube-dns"}
    watched = {
        "": ["endpoints", "services", "pods", "namespaces"],
        "discovery.k8s.io": ["endpointslices"],
    }
    container = {
        "name": name,
        "image": DNS_IMAGE,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [{"name": "dns", "containerPort": 53, "protocol": "UDP"}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "volumeMounts": [{"name": "configuration", "mountPath": "/etc/coredns"}],
    }
    pod = {
        "metadata": {"labels": labels},
        "spec": {
            "serviceAccountName": name,
            "dnsPolicy": "Default",
            "containers": [container],
            "tolerations": [{"operator": "Exists"}],
            "volumes": [{"name": "configuration", "configMap": {"name": name}}],
        },
    }
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": [
                {"apiGroups": [group], "resources": kinds, "verbs": ["list", "watch"]}
                for group, kinds in watched.items()
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {"Corefile": COREFILE},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": pod},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": namespace},
            "spec": {
                "clusterIP": DNS,
                "selector": labels,
                "ports": [
                    {"name": "dns", "port": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
                ],
            },
        },
    ]
