"""Shardlog, installed by helm from the chart and the images of this tree."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml

from e2e.binaries import PROGRAMS, binary
from e2e.charts import CHART
from e2e.images import archive_of, archive_of_program
from e2e.kubernetes import Refused
from e2e.providers import Cluster
from shardlog import __version__

Json = Any
T = TypeVar("T")
NAME = "shardlog"
NAMESPACE = "logs"
NODES = 5
COUNTS = {"node": NODES, "operator": 2, "etcd": 3}
GRACE_S = 20
"""A node that is lost for longer is replaced: more than a pod takes to be started again."""
PATIENCE_S = 240.0
LOOK_S = 0.25
HELM_TIMEOUT_S = 480
NEXT = f"{__version__}-next"
"""A second tag of the same images."""
ETCD_IMAGE = f"quay.io/coreos/etcd:{PROGRAMS['etcd'].version}"

VALUES = {
    "nodes": {
        "replicas": NODES,
        "storage": {"size": "1Gi"},
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}},
        "terminationGracePeriodSeconds": 30,
    },
    "operator": {
        "nodeGraceSeconds": GRACE_S,
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
    },
    "etcd": {
        "storage": {"size": "1Gi"},
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "512Mi"}},
    },
}


class HelmFailed(Exception):  # noqa: N818 - named after what it is
    """helm failed; the message is what it wrote."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as it was when it was looked at."""

    name: str
    uid: str
    machine: str
    is_ready: bool
    restarts: int
    image: str


@dataclass(frozen=True, slots=True)
class Release:
    cluster: Cluster
    namespace: str = NAMESPACE

    # --- helm ------------------------------------------------------------------------------------

    def load_images(self) -> None:
        archives = [_archive(kind) for kind in ("node", "operator")]
        self.cluster.load([*archives, archive_of_program("etcd", ETCD_IMAGE)])

    def load_spark_image(self) -> str:
        """Only for whoever needs it: it is larger than all others together."""
        self.cluster.load([_archive("spark")])
        return f"shardlog-spark:{__version__}"

    def install(self) -> None:
        """Or bring a kept one up to date: tags stay the same, so pods say what they are made of."""
        self.cluster.kubernetes.create_namespace(
            self.namespace, **{"pod-security.kubernetes.io/enforce": "restricted"}
        )
        flags = [
            f"--set={part}.podAnnotations.built={_archive(kind).stem}"
            for part, kind in (("nodes", "node"), ("operator", "operator"))
        ]
        self.helm(
            "upgrade", "--install", NAME, str(CHART), "-f", "-", "--wait", *flags, values=VALUES
        )

    def upgrade(self, *flags: str) -> None:
        """With the values it has, and what the flags say."""
        self.helm("upgrade", NAME, str(CHART), "--reuse-values", "--wait", *flags)

    def helm(self, *arguments: str, values: Json = None) -> str:
        """What helm prints; raises `HelmFailed`."""
        kubeconfig = str(self.cluster.kubernetes.kubeconfig)
        where = [f"--kubeconfig={kubeconfig}", f"--namespace={self.namespace}"]
        timeout = [] if arguments[0] == "history" else [f"--timeout={HELM_TIMEOUT_S}s"]
        done = subprocess.run(
            [binary("helm"), *arguments, *where, *timeout],
            input=yaml.safe_dump(values) if values else "",
            capture_output=True,
            text=True,
            check=False,
            timeout=HELM_TIMEOUT_S + 60,
        )
        if done.returncode != 0:
            raise HelmFailed((done.stderr + done.stdout).strip())
        return done.stdout

    # --- kubectl ---------------------------------------------------------------------------------

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubernetes.kubectl("-n", self.namespace, *arguments, stdin=stdin)

    def get(self, kind: str, name: str) -> Json | None:
        try:
            return self.cluster.kubernetes.get("-n", self.namespace, kind, name)
        except Refused as refusal:
            if "NotFound" in str(refusal):
                return None
            raise

    def listed(self, kind: str, selector: str = "") -> list[Json]:
        flags = [f"-l={selector}"] if selector else []
        found: list[Json] = self.cluster.kubernetes.get("-n", self.namespace, kind, *flags)["items"]
        return found

    def apply(self, manifest: Json) -> None:
        self.cluster.kubernetes.apply(manifest)

    def plugin(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`kubectl shardlog ...`, as a person runs it."""
        environment = {**os.environ, "KUBECONFIG": str(self.cluster.kubernetes.kubeconfig)}
        command = [sys.executable, "-m", "shardlog.cli.kubectl", *arguments, "-n", self.namespace]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=300
        )

    # --- pods ------------------------------------------------------------------------------------

    def pods(self, component: str) -> dict[str, Pod]:
        selector = f"app.kubernetes.io/instance={NAME},app.kubernetes.io/component={component}"
        return {pod.name: pod for pod in map(_pod, self.listed("pods", selector))}

    def pod(self, name: str) -> Pod | None:
        found = self.get("pod", name)
        return _pod(found) if found else None

    def whole(self) -> bool:
        """All pods of the release are there and Ready; one question, since this is asked often."""
        ready: dict[str, list[bool]] = {component: [] for component in COUNTS}
        for body in self.listed("pods", f"app.kubernetes.io/instance={NAME}"):
            component = body["metadata"]["labels"].get("app.kubernetes.io/component")
            ready.setdefault(component, []).append(_pod(body).is_ready)
        return all(ready[each] == [True] * count for each, count in COUNTS.items())

    def until_whole(self) -> None:
        self.until(self.whole, "not all pods of the release are Ready")

    # --- shards ----------------------------------------------------------------------------------

    def create_shard(self, name: str, **spec: object) -> None:
        self.apply(
            {
                "apiVersion": "shardlog.dev/v1alpha1",
                "kind": "Shard",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"replicas": 3, "deletionPolicy": "Delete", **spec},
            }
        )

    def status(self, shard: str) -> Json:
        return (self.get("shard", shard) or {}).get("status") or {}

    def steady(self, shard: str, replicas: int) -> Json | None:
        """Its status, if all replicas that are asked for are there and have caught up."""
        body = self.get("shard", shard) or {"metadata": {}}
        status = body.get("status") or {}
        conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
        current = status.get("observedGeneration") == body["metadata"].get("generation")
        good = conditions.get("Ready") == conditions.get("FullyReplicated") == "True"
        counted = status.get("replicas") == replicas and status.get("phase") == "Steady"
        return status if current and good and counted else None

    def members(self, shard: str) -> set[str]:
        told = self.status(shard).get("ensemble", [])
        return {each["node"] for each in told if each["role"] in ("Leader", "Follower")}

    def until(self, wanted: Callable[[], T], what: str, patience_s: float = PATIENCE_S) -> T:
        """A refusal on the way is no answer: the API server may be the one that is broken."""
        deadline = time.monotonic() + patience_s
        last = ""
        while True:
            try:
                found = wanted()
            except Refused as refusal:
                last = str(refusal)
            else:
                if found:
                    return found
            assert time.monotonic() < deadline, f"{what} {last}"
            time.sleep(LOOK_S)


@cache
def _archive(kind: str) -> Path:
    """Of the sources as they were when the run began."""
    return archive_of(kind, __version__)


def _pod(body: Json) -> Pod:
    status, spec = body["status"], body["spec"]
    conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
    leaving = "deletionTimestamp" in body["metadata"]
    return Pod(
        name=body["metadata"]["name"],
        uid=body["metadata"]["uid"],
        machine=spec.get("nodeName", ""),
        is_ready=conditions.get("Ready") == "True" and not leaving,
        restarts=sum(each["restartCount"] for each in status.get("containerStatuses", [])),
        image=spec["containers"][0]["image"],
    )
