"""`examples/` against a real API server: admitted as they are, pods in a restricted namespace."""

from __future__ import annotations

import yaml

from e2e.api_server import ApiServer
from e2e.charts import pod_templates
from e2e.images import ROOT

EXAMPLES = ROOT / "examples"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def test_examples_are_admitted(api: ApiServer, namespace: str):
    api.create_namespace(namespace, **RESTRICTED)
    flags = ("--dry-run=server", "--validate=strict", "-n", namespace)
    rendered = api.kubectl("kustomize", str(EXAMPLES / "order-service"))
    single = (EXAMPLES / name for name in ("shard.yaml", "snapshot.yaml", "spark-job.yaml"))
    for text in (rendered, *(path.read_text() for path in single)):
        manifests = list(yaml.safe_load_all(text))
        said = api.kubectl("create", "-f", "-", *flags, stdin=text)
        assert len(said.splitlines()) == len(manifests)
        assert "Warning" not in said
        for pod in pod_templates(manifests):
            api.apply(pod, "--dry-run=server", "-n", namespace)
