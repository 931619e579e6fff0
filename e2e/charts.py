"""The chart as helm renders it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from e2e.binaries import binary

CHART = Path(__file__).parent.parent / "charts" / "shardlog"
RELEASE = "shardlog"
NAMESPACE = "logs"

Manifest = dict[str, Any]


class BadValues(Exception):  # noqa: N818 - named after what it is
    """helm does not take these values; the message is what it wrote."""


def helm(*arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        [binary("helm"), *arguments], input=stdin, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise BadValues((done.stderr + done.stdout).strip())
    return done.stdout


def rendered(values: Mapping[str, Any] | None = None, namespace: str = NAMESPACE) -> list[Manifest]:
    """All objects of the chart with these values, hooks included; raises `BadValues`."""
    text = helm(
        "template", RELEASE, str(CHART), "-n", namespace, "-f", "-", stdin=yaml.safe_dump(values)
    )
    return [document for document in yaml.safe_load_all(text) if document]


def only(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    found = [each for each in manifests if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    assert len(found) == 1, f"{len(found)} of {kind} {name}"
    return found[0]


def pod_templates(manifests: list[Manifest]) -> Iterator[Manifest]:
    """A Pod for every workload, as its controller would make it."""
    for each in manifests:
        if each["kind"] in ("Deployment", "StatefulSet", "Job"):
            template = each["spec"]["template"]
            claims = each["spec"].get("volumeClaimTemplates", ())
            volumes = [
                {"name": claim["metadata"]["name"], "emptyDir": {}} for claim in claims
            ] + template["spec"].get("volumes", [])
            metadata = template["metadata"] | {"name": each["metadata"]["name"]}
            spec = template["spec"] | {"volumes": volumes}
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        elif each["kind"] == "Pod":
            yield each
        elif each["kind"] == "PodTemplate":
            metadata = each["template"]["metadata"] | {"name": each["metadata"]["name"]}
            yield {"apiVersion": "v1", "kind": "Pod", **each["template"], "metadata": metadata}


def environment(manifest: Manifest) -> dict[str, str]:
    """Of the only container: what is written there, not what Kubernetes fills in."""
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}
