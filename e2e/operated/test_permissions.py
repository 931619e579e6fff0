"""The operator with the permissions that its document lists, and no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from e2e.operated.installation import Installation

DOCUMENT = Path(__file__).parents[2] / "docs" / "operator.md"
CLUSTER_WIDE = "(cluster-wide)"


def rules() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """For its namespace, and for the cluster, from the table of the document."""
    section = DOCUMENT.read_text().partition("## What it may do")[2].partition("\n## ")[0]
    own: list[dict[str, Any]] = []
    cluster: list[dict[str, Any]] = []
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        names = re.findall(r"`([a-z0-9./]+)`", cells[1]) if len(cells) > 3 else []
        for name in names:
            resource, _, rest = name.partition("/")
            plural, _, group = resource.partition(".")
            if plural in ("shards", "shardoperations", "shardsnapshots"):
                group = "shardlog.dev"
            found = f"{plural}/{rest}" if rest else plural
            rule = {"apiGroups": [group], "resources": [found], "verbs": cells[2].split(", ")}
            (cluster if CLUSTER_WIDE in cells[1] else own).append(rule)
    return own, cluster


def allowed(it: Installation) -> Path:
    own, cluster = rules()
    assert len(own) == 13
    assert len(cluster) == 1
    group, name = "rbac.authorization.k8s.io", f"operator-{it.namespace}"
    account = {"kind": "ServiceAccount", "name": "operator", "namespace": it.namespace}
    of_namespace = {"name": "operator", "namespace": it.namespace}
    documents: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": of_namespace},
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": of_namespace, "rules": own},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": of_namespace,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "operator"},
            "subjects": [account],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": cluster,
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [account],
        },
    ]
    it.api.apply(documents)
    return it.api.kubeconfig_of(it.namespace, "operator")


def test_what_is_documented_is_enough(it: Installation):
    it.start_nodes("node-0", "node-1", "node-2", "node-3")
    it.start_operator(kubeconfig=allowed(it))
    it.shard(replicas=3, deletionPolicy="Delete")
    leader = it.ready()["leader"]
    it.until(lambda: it.leader_address() == leader)
    it.snapshot("nightly")
    it.until(lambda: it.api.get("-n", it.namespace, "jobs")["items"])
    it.plugin("drain", leader)
    it.until(lambda: leader not in it.members())
    it.api.kubectl("cordon", f"{it.namespace}-{sorted(it.members())[0]}")
    it.until(lambda: "NodeDrained" in it.reasons())
    it.kubectl("delete", "shardsnapshot", "nightly", "--timeout=60s")
    it.until(lambda: not it.api.get("-n", it.namespace, "jobs")["items"])
    it.kubectl("delete", "shard", "orders", "--wait=false")
    it.until(lambda: it.get("shard", "orders") is None)
    said = it.operators["operator-0"].log.read_text()
    assert "forbidden" not in said.lower(), said[-2000:]
