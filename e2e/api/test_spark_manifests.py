"""`spark-jobs/kubernetes` against a real API server: it is admitted, and allows not too much."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from e2e.api_server import ApiServer
from e2e.charts import pod_templates
from e2e.images import ROOT
from e2e.kubernetes import Refused

MANIFESTS = ROOT / "spark-jobs" / "kubernetes"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
TEMPLATES = ("driver.yaml", "executor.yaml")


@pytest.fixture
def restricted(api: ApiServer, namespace: str) -> str:
    """A namespace that admits only pods that need no privilege."""
    api.create_namespace(namespace, **RESTRICTED)
    return namespace


def loaded(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((MANIFESTS / name).read_text()))


def named(manifest: dict[str, Any]) -> dict[str, Any]:
    """A pod that is made from it needs metadata with a name, whatever the Job has."""
    metadata = {"name": "named", **manifest["metadata"]}
    spec = manifest.get("spec") and {**manifest["spec"]}
    if spec:
        spec["template"] = {"metadata": {}, **spec["template"]}
    return {**manifest, "metadata": metadata, "spec": spec}


def completed(name: str) -> dict[str, Any]:
    """A template with what Spark adds: a name and an image."""
    (pod,) = loaded(name)
    (container,) = pod["spec"]["containers"]
    container["image"] = "shardlog-spark"
    return pod | {"metadata": {"name": name.partition(".")[0]}}


@pytest.mark.parametrize("name", ["account.yaml", "export.yaml", "snapshot.yaml"])
def test_manifests_are_admitted(api: ApiServer, restricted: str, name: str):
    flags = ("--dry-run=server", "--validate=strict", "-n", restricted)
    told = api.kubectl("create", "-f", str(MANIFESTS / name), *flags)
    manifests = loaded(name)
    assert len(told.splitlines()) == len(manifests)
    assert "Warning" not in told
    for pod in pod_templates([named(each) for each in manifests]):
        api.apply(pod, "--dry-run=server", "-n", restricted)


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_make_pods_that_are_admitted(api: ApiServer, restricted: str, name: str):
    api.apply(completed(name), "--dry-run=server", "--validate=strict", "-n", restricted)


@pytest.mark.parametrize("name", TEMPLATES)
def test_without_what_they_say_they_would_not_be(api: ApiServer, restricted: str, name: str):
    pod = completed(name)
    del pod["spec"]["containers"][0]["securityContext"]
    with pytest.raises(Refused, match="violates PodSecurity"):
        api.apply(pod, "--dry-run=server", "-n", restricted)


def test_a_driver_may_do_what_it_must_and_no_more(api: ApiServer, namespace: str):
    api.apply(loaded("account.yaml"), "-n", namespace)
    who = f"--as=system:serviceaccount:{namespace}:shardlog-spark"

    def may(verb: str, *what: str, where: str = namespace) -> bool:
        try:
            return api.kubectl("auth", "can-i", verb, *what, "-n", where, who).strip() == "yes"
        except Refused:
            return False

    for verb in ("create", "get", "list", "watch", "delete", "deletecollection"):
        assert may(verb, "pods")
    for forbidden in (
        ("patch", "pods"),
        ("create", "pods", "--subresource=exec"),
        ("get", "secrets"),
        ("create", "configmaps"),
        ("delete", "services"),
        ("delete", "persistentvolumeclaims"),
        ("get", "shards.shardlog.dev"),
    ):
        assert not may(*forbidden), forbidden
    assert not may("list", "pods", where="default")
