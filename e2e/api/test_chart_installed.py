"""The chart against a real API server: everything is admitted, and nobody may do too much.

Nothing runs here, since there are no machines: objects are stored, and looked at.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
import yaml

from e2e.api.manifests import shard
from e2e.api.test_chart_rendered import VALUES
from e2e.api_server import ApiServer
from e2e.charts import CHART, RELEASE, helm, pod_templates, rendered
from e2e.kubernetes import Refused, kubectl

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
FOREIGN = {
    "servicemonitors.monitoring.coreos.com": "ServiceMonitor",
    "prometheusrules.monitoring.coreos.com": "PrometheusRule",
    "certificates.cert-manager.io": "Certificate",
}


@pytest.fixture(scope="module")
def foreign_kinds(api: ApiServer) -> None:
    """Kinds that others bring; here they take anything."""
    for name, kind in FOREIGN.items():
        plural, _, group = name.partition(".")
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": anything},
        }
        names = {"kind": kind, "plural": plural}
        api.apply(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": name},
                "spec": {
                    "group": group,
                    "scope": "Namespaced",
                    "names": names,
                    "versions": [version],
                },
            }
        )
        api.kubectl("wait", "--for=condition=Established", f"crd/{name}", "--timeout=60s")


@pytest.fixture
def restricted(api: ApiServer, namespace: str) -> str:
    """A namespace that admits only pods that need no privilege."""
    api.create_namespace(namespace, **RESTRICTED)
    return namespace


def installed(api: ApiServer, namespace: str, command: str, values: dict[str, Any]) -> None:
    kubeconfig = f"--kubeconfig={api.kubeconfig}"
    flags = (kubeconfig, "-n", namespace, "-f", "-")
    helm(command, RELEASE, str(CHART), *flags, stdin=yaml.safe_dump(values))


@pytest.mark.usefixtures("foreign_kinds")
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_a_dry_run_of_the_whole_chart(api: ApiServer, restricted: str, values: dict[str, Any]):
    manifests = rendered(values, restricted)
    flags = ("--server-side", "--force-conflicts", "--dry-run=server", "-n", restricted)
    told = api.apply(manifests, *flags)
    assert len(told.splitlines()) == len(manifests)
    pods = list(pod_templates(manifests))
    api.apply(pods, "--dry-run=server", "-n", restricted)


def test_the_namespace_would_refuse_a_pod_with_privileges(api: ApiServer, restricted: str):
    (pod, *_) = pod_templates(rendered())
    del pod["spec"]["securityContext"]["seccompProfile"]
    with pytest.raises(Refused, match="violates PodSecurity"):
        api.apply(pod, "--dry-run=server", "-n", restricted)


def test_a_generated_certificate_outlives_upgrades(api: ApiServer, restricted: str):
    values = {"tls": {"mode": "generated"}, "rbac": {"readNodes": False}}
    values |= {"crds": {"install": False}}
    installed(api, restricted, "install", values)
    first = api.get("secret", "shardlog-tls", "-n", restricted)["data"]
    installed(api, restricted, "upgrade", values | {"commonLabels": {"new": "one"}})
    assert api.get("secret", "shardlog-tls", "-n", restricted)["data"] == first
    helm("uninstall", RELEASE, f"--kubeconfig={api.kubeconfig}", "-n", restricted)
    assert api.get("secret", "shardlog-tls", "-n", restricted)["data"] == first


def test_s03_the_key_of_a_cluster_outlives_upgrades(api: ApiServer, restricted: str):
    values = {"rbac": {"readNodes": False}, "crds": {"install": False}}
    installed(api, restricted, "install", values)
    first = api.get("secret", "shardlog-cluster-key", "-n", restricted)["data"]
    assert first["cluster.key"]
    installed(api, restricted, "upgrade", values | {"commonLabels": {"new": "one"}})
    assert api.get("secret", "shardlog-cluster-key", "-n", restricted)["data"] == first
    helm("uninstall", RELEASE, f"--kubeconfig={api.kubeconfig}", "-n", restricted)


CRDS = ("shards.shardlog.dev", "shardoperations.shardlog.dev", "shardsnapshots.shardlog.dev")

MAY = [
    ("list", "shards.shardlog.dev"),
    ("watch", "shards.shardlog.dev"),
    ("patch", "shards.shardlog.dev"),
    ("update", "shards.shardlog.dev/status"),
    ("update", "shardoperations.shardlog.dev/status"),
    ("patch", "shardsnapshots.shardlog.dev"),
    ("update", "shardsnapshots.shardlog.dev/status"),
    ("watch", "jobs.batch"),
    ("create", "jobs.batch"),
    ("delete", "jobs.batch"),
    ("get", "podtemplates/shardlog-snapshot"),
    ("watch", "pods"),
    ("patch", "pods/status"),
    ("create", "services"),
    ("patch", "endpointslices.discovery.k8s.io"),
    ("create", "events"),
    ("get", "nodes"),
]

MAY_NOT = [
    ("delete", "shards.shardlog.dev"),
    ("create", "shards.shardlog.dev"),
    ("create", "shardoperations.shardlog.dev"),
    ("create", "shardsnapshots.shardlog.dev"),
    ("delete", "shardsnapshots.shardlog.dev"),
    ("patch", "jobs.batch"),
    ("get", "podtemplates"),
    ("update", "podtemplates/shardlog-snapshot"),
    ("delete", "pods"),
    ("create", "pods"),
    ("create", "pods/exec"),
    ("get", "secrets"),
    ("get", "configmaps"),
    ("list", "nodes"),
    ("update", "nodes"),
    ("patch", "shardoperations.shardlog.dev"),
    ("patch", "statefulsets.apps"),
    ("delete", "persistentvolumeclaims"),
    ("create", "rolebindings.rbac.authorization.k8s.io"),
]


def test_what_the_operator_may_do(api: ApiServer, restricted: str):
    installed(api, restricted, "install", {"crds": {"install": False}})
    mine = api.kubeconfig_of(restricted, "shardlog-operator")

    def may(verb: str, kind: str, namespace: str) -> bool:
        resource, _, subresource = kind.partition("/")
        if resource == "podtemplates":  # it has no subresources: this is the name of one
            resource, subresource = kind, ""
        command = [kubectl(), f"--kubeconfig={mine}", "auth", "can-i", verb, resource]
        command += [f"--subresource={subresource}", "-n", namespace]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip() == "yes"

    assert [each for each in MAY if not may(*each, restricted)] == []
    assert [each for each in MAY_NOT if may(*each, restricted)] == []
    elsewhere = [each for each in MAY if may(*each, "default")]
    assert elsewhere == [("get", "nodes")]


def test_crds_are_taken_over_and_stay(api: ApiServer, restricted: str):
    """With them every Shard stays: a release that goes takes no records with it."""
    owned = {
        "metadata": {
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {
                "meta.helm.sh/release-name": RELEASE,
                "meta.helm.sh/release-namespace": restricted,
            },
        }
    }
    for crd in CRDS:
        api.kubectl("patch", "crd", crd, "--type=merge", "-p", json.dumps(owned))
    installed(api, restricted, "install", {"rbac": {"readNodes": False}})
    api.apply(shard(), "-n", restricted)
    helm("uninstall", RELEASE, f"--kubeconfig={api.kubeconfig}", "-n", restricted)
    assert api.get("shard", "orders", "-n", restricted)["spec"]["replicas"] == 3
