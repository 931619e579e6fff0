"""Spark in the cluster, by the manifests that people are given (`spark-jobs/kubernetes`).

Where its executors were is seen while they run, for a driver takes their pods away; what each of
them did, and when, is in the log of events that Spark keeps.  Snapshots, what jobs write, and these
logs are in a directory that all machines share, which pods reach by a claim.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.release import LOOK_S, PATIENCE_S, Release
from e2e.images import ROOT
from e2e.processes import CannotStart
from shardlog_spark.pod import spark_home

Json = Any
MANIFESTS = ROOT / "spark-jobs" / "kubernetes"
CLAIM = "snapshots"
MOUNT = "/snapshots"
VOLUME_SIZE = "10Gi"
EXECUTORS = 2
FORBIDDEN = "forbidden"
SUCCEEDED = "Succeeded"
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that ends before compiling well would pay."""
SETTINGS = {
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.executor.extraJavaOptions": SHORT_LIVED,
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.executor.instances": str(EXECUTORS),
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.kubernetes.driver.request.cores": "100m",
    "spark.kubernetes.executor.request.cores": "100m",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{PATIENCE_S:.0f}s",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.dir": f"file://{MOUNT}/events",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": "false",
}
"""Small, since it stands beside a whole cluster on one machine, and with a log of what it did."""


@dataclass(frozen=True, slots=True)
class Task:
    executor: str
    begun_ms: int
    ended_ms: int


@dataclass(slots=True)
class Ran:
    """One job: what its driver said, and where each executor was, by its number."""

    said: str = ""
    took_s: float = 0.0
    machines: dict[str, str] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)

    def tasks_by_executor(self) -> dict[str, int]:
        return dict(sorted(Counter(task.executor for task in self.tasks).items()))

    def at_once(self) -> bool:
        """Whether two executors worked at the same time."""
        return any(
            one.executor != other.executor
            and one.begun_ms < other.ended_ms
            and other.begun_ms < one.ended_ms
            for one, other in itertools.combinations(self.tasks, 2)
        )


@dataclass(frozen=True, slots=True)
class Spark:
    release: Release
    image: str
    shared: Path

    # --- what a person does ----------------------------------------------------------------------

    def snapshot(
        self, shard: str, segment_bytes: int, url: str = f"file://{MOUNT}", secret: str = ""
    ) -> Json:
        """By `snapshot.yaml`; what the command tells of the snapshot."""
        job = _loaded("snapshot.yaml")
        name = f"snapshot-{shard}-{secret or CLAIM}"
        job["metadata"] = {"name": name}
        container = _container(job, self.image)
        given = {"orders": shard, f"file://{MOUNT}": url}
        assert given.keys() <= set(container["args"])
        words = [given.get(word, word) for word in container["args"]]
        container["args"] = [*words, f"--segment-bytes={segment_bytes}"]
        if secret:
            container["envFrom"] = [{"secretRef": {"name": secret}}]
        self.release.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(job))
        try:
            self.release.kubectl(
                "wait", "--for=condition=Complete", f"job/{name}", "--timeout=180s"
            )
            return json.loads(self.release.kubectl("logs", f"job/{name}"))
        finally:
            self._delete(f"job/{name}")

    def export(self, shard: str, out: str) -> Ran:
        """By `export.yaml`: the driver is the pod of a Job."""
        job = _loaded("export.yaml")
        name = job["metadata"]["name"]
        container = _container(job, self.image)
        given = {"--shard": shard, "--out": f"file://{MOUNT}/{out}"}
        conf = [f"--conf={name}={value}" for name, value in self._settings().items()]
        words = [
            f"{option}={given[option]}" if (option := word.partition("=")[0]) in given else word
            for word in container["args"]
        ]
        container["args"] = [*words[:1], *conf, *words[1:]]
        self.release.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(job))
        try:
            return self._followed(lambda: self._driver(f"job-name={name}"))
        finally:
            self._delete(f"job/{name}")

    def submit(
        self, script: str, *arguments: str, secret: str = "", keys: Iterable[str] = ()
    ) -> Ran:
        """By `spark-submit` on this machine, which makes the driver's pod.

        `keys` of a Secret are in the environment of the driver and its executors.
        """
        name = f"submitted-{script.partition('.')[0].replace('_', '-')}"
        kubeconfig = self.release.cluster.kubernetes.kubeconfig
        address = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        settings = (
            self._settings()
            | {
                "spark.kubernetes.namespace": self.release.namespace,
                "spark.kubernetes.driver.pod.name": name,
                "spark.kubernetes.driver.podTemplateFile": str(MANIFESTS / "driver.yaml"),
                "spark.kubernetes.executor.podTemplateFile": str(MANIFESTS / "executor.yaml"),
                "spark.kubernetes.submission.waitAppCompletion": "false",
            }
            | {
                f"spark.kubernetes.{role}.secretKeyRef.{key}": f"{secret}:{key}"
                for role in ("driver", "executor")
                for key in keys
            }
        )
        home = spark_home()
        command = [
            str(home / "bin" / "spark-submit"),
            f"--master=k8s://{address}",
            "--deploy-mode=cluster",
            f"--properties-file={MANIFESTS / 'spark.conf'}",
            *(f"--conf={key}={value}" for key, value in settings.items()),
            f"local:///opt/shardlog/jobs/{script}",
            *arguments,
        ]
        variables = {**os.environ, "KUBECONFIG": str(kubeconfig), "SPARK_HOME": str(home)}
        variables["PYSPARK_PYTHON"] = sys.executable
        try:
            with tempfile.TemporaryDirectory(prefix="shardlog-submit-") as directory:
                done = subprocess.run(
                    command,
                    env=variables,
                    cwd=directory,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=PATIENCE_S,
                )
            assert done.returncode == 0, done.stderr[-3000:]
            return self._followed(lambda: self.release.get("pod", name))
        finally:
            self._delete(f"pod/{name}")

    # --- what came of it -------------------------------------------------------------------------

    def _settings(self) -> dict[str, str]:
        return SETTINGS | {"spark.kubernetes.container.image": self.image}

    def _driver(self, selector: str) -> Json | None:
        found = self.release.listed("pods", selector)
        return found[0] if found else None

    def _followed(self, driver: Callable[[], Json | None]) -> Ran:
        """Until the driver's pod has ended; its executors are looked for all the while."""
        began_s = time.monotonic()
        ran = Ran()
        application, phase = "", ""
        while phase not in (SUCCEEDED, "Failed"):
            assert time.monotonic() < began_s + PATIENCE_S, f"the driver does not end: {ran}"
            time.sleep(LOOK_S)
            for pod in self.release.listed("pods", "spark-role=executor"):
                labels = pod["metadata"]["labels"]
                application = labels["spark-app-selector"]
                if machine := pod["spec"].get("nodeName"):
                    ran.machines[labels["spark-exec-id"]] = machine
            found = driver()
            phase = found["status"]["phase"] if found else ""
        assert found
        ran.took_s = time.monotonic() - began_s
        ran.said = self.release.kubectl("logs", found["metadata"]["name"])
        assert phase == SUCCEEDED, ran.said[-3000:]
        assert FORBIDDEN not in ran.said.lower(), ran.said
        self._until_no_executors()
        ran.tasks = list(_tasks(self.shared / "events" / application))
        return ran

    def _delete(self, name: str) -> None:
        self.release.kubectl("delete", name, "--ignore-not-found", "--wait=false")

    def _until_no_executors(self) -> None:
        """The driver took them away: its own pod, with which they would go too, is still there."""
        self.release.until(
            lambda: not self.release.listed("pods", "spark-role=executor"), "executors stay"
        )


@contextmanager
def spark_in(release: Release) -> Iterator[Spark]:
    """With the account of drivers and a claim; raises `OutOfReach` and `CannotStart`."""
    if shutil.which("java") is None:
        raise CannotStart("spark-submit needs Java: apt-get install openjdk-17-jre-headless")
    shared = release.cluster.shared_directory() / CLAIM
    volume = f"{release.namespace}-{CLAIM}"
    shutil.rmtree(shared, ignore_errors=True)
    for each in (shared, shared / "events"):
        each.mkdir()
        each.chmod(0o777)
    account = str(MANIFESTS / "account.yaml")
    try:
        release.apply(_claim(release.namespace, volume, shared))
        release.kubectl("apply", "-f", account)
        yield Spark(release, release.load_spark_image(), shared)
    finally:
        for deleted in (
            (f"pvc/{CLAIM}", "--wait=false"),
            (f"pv/{volume}", "--wait=false"),
            ("-f", account),
        ):
            release.kubectl("delete", *deleted, "--ignore-not-found")


def is_unused(release: Release) -> bool:
    """Nothing of Spark is there any more."""
    return not release.listed("pods,services,configmaps", "spark-app-selector")


def _claim(namespace: str, volume: str, directory: Path) -> list[Json]:
    size = {"storage": VOLUME_SIZE}
    shared = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {
                **shared,
                "capacity": size,
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": str(directory)},
                "claimRef": {"namespace": namespace, "name": CLAIM},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM, "namespace": namespace},
            "spec": {**shared, "resources": {"requests": size}, "volumeName": volume},
        },
    ]


def _loaded(file: str) -> Json:
    return yaml.safe_load((MANIFESTS / file).read_text())


def _container(job: Json, image: str) -> Json:
    """Its only one, with another image and less of a claim on a machine that is full."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container["image"] = image
    container["resources"]["requests"]["cpu"] = "100m"
    return container


def _tasks(log: Path) -> Iterator[Task]:
    """Those that succeeded."""
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerTaskEnd":
            told = event["Task Info"]
            assert not told["Failed"], told
            yield Task(told["Executor ID"], told["Launch Time"], told["Finish Time"])
