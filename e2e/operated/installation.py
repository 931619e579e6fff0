"""Nodes and operators as processes on this machine, with the objects that a kubelet would keep.

Everything is as on a cluster but for the pods: nobody runs them.  A node is a process on 127.0.0.1,
and its pod an object whose annotations say where it listens: the API server lets no EndpointSlice
name a loopback address.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from e2e.api_server import ApiServer
from e2e.kubernetes import Refused
from e2e.processes import Process, start
from shardlog.transport.cluster_key import make_key_file

Json = Any
T = TypeVar("T")
LOOK_S = 0.1
PATIENCE_S = 120.0
TEMPLATE = "snapshots"
LABELS = {
    "app.kubernetes.io/name": "shardlog",
    "app.kubernetes.io/component": "node",
    "shardlog.dev/pool": "default",
}


class Installation:
    def __init__(
        self, api: ApiServer, namespace: str, etcd: Sequence[str], directory: Path
    ) -> None:
        self.api = api
        self.namespace = namespace
        self.etcd = etcd
        self.directory = directory
        self.nodes: dict[str, Process] = {}
        self.operators: dict[str, Process] = {}

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.api.kubectl("-n", self.namespace, *arguments, stdin=stdin)

    def stop(self) -> None:
        for process in [*self.operators.values(), *self.nodes.values()]:
            process.running.kill()
            process.running.wait()

    # --- nodes -----------------------------------------------------------------------------------

    def start_nodes(self, *names: str) -> None:
        for name in names:
            self._start_node(name)
        for name in names:
            self._make_pod(name, self._ports(name))

    def _start_node(self, name: str) -> None:
        command = [
            sys.executable, "-m", "shardlog_node.main", "--name", name, "--plain",
            "--cluster-key-file", self._key_file(),
            "--directory", str(self.directory / name), "--data-port", "0", "--control-port", "0",
            "--http-port", "0",
        ]  # fmt: skip
        log = self.directory / f"{name}.log"
        log.unlink(missing_ok=True)
        self.nodes[name] = start(name, command, self.directory)

    def _ports(self, name: str) -> dict[str, str]:
        process = self.nodes[name]
        process.await_ready(lambda: '"event": "ready"' in process.log.read_text())
        lines = process.log.read_text().splitlines()
        ready = json.loads(next(line for line in lines if '"event": "ready"' in line))
        ports = {
            f"shardlog.dev/{plane}-port": ready[plane].rpartition(":")[2]
            for plane in ("data", "control", "http")
        }
        return ports | {"shardlog.dev/host": "127.0.0.1"}

    def _make_pod(self, name: str, ports: dict[str, str]) -> None:
        machine = f"{self.namespace}-{name}"
        labels = {"kubernetes.io/hostname": machine}
        self.api.apply(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": machine, "labels": labels}}
        )
        self.kubectl("delete", "pod", name, "--ignore-not-found", "--force", "--grace-period=0")
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name, "namespace": self.namespace, "labels": LABELS, "annotations": ports,
            },
            "spec": {
                "nodeName": machine,
                "containers": [{"name": "node", "image": "none"}],
                "readinessGates": [{"conditionType": "shardlog.dev/replicated"}],
            },
        }  # fmt: skip
        self.api.apply(pod)
        self.set_running(name, True)

    def set_running(self, name: str, running: bool) -> None:
        """What the kubelet would write."""
        truth = str(running)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        condition = {"type": "ContainersReady", "status": truth, "lastTransitionTime": now}
        status = {
            "phase": "Running",
            "podIP": f"10.244.0.{1 + int(name[-1])}",
            "conditions": [condition],
        }
        patch = json.dumps({"status": status})
        self.kubectl("patch", "pod", name, "--subresource=status", "--type=strategic", "-p", patch)

    def kill_node(self, name: str) -> None:
        process = self.nodes.pop(name)
        process.running.kill()
        process.running.wait()

    def _key_file(self) -> str:
        path = self.directory / "cluster.key"
        make_key_file(path)
        return str(path)

    # --- operators -------------------------------------------------------------------------------

    def start_operator(
        self, name: str = "operator-0", *flags: str, kubeconfig: Path | None = None
    ) -> None:
        command = [
            sys.executable, "-m", "shardlog_operator.main", "--namespace", self.namespace,
            "--name", name, "--plain",
            "--cluster-key-file", self._key_file(),
            "--etcd-endpoints", ",".join(self.etcd), "--http-port", "0",
            "--node-grace-s", "2", "--positions-s", "2", "--snapshot-template", TEMPLATE, *flags,
        ]  # fmt: skip
        environment = {"KUBECONFIG": str(kubeconfig or self.api.kubeconfig)}
        self.operators[name] = start(name, command, self.directory, environment)

    def kill_operator(self, name: str = "operator-0") -> None:
        process = self.operators.pop(name)
        process.running.kill()
        process.running.wait()

    # --- looking ---------------------------------------------------------------------------------

    def get(self, kind: str, name: str) -> Json | None:
        try:
            return self.api.get("-n", self.namespace, kind, name)
        except Refused as refusal:
            if "NotFound" in str(refusal):
                return None
            raise

    def status(self, name: str = "orders") -> Json:
        return (self.get("shard", name) or {}).get("status") or {}

    def condition(self, kind: str, name: str = "orders") -> Json:
        found = {each["type"]: each for each in self.status(name).get("conditions", [])}
        return found.get(kind, {})

    def reasons(self) -> set[str]:
        listed = self.api.get("-n", self.namespace, "events")
        return {each["reason"] for each in listed["items"]}

    def leader_address(self, name: str = "orders") -> str | None:
        slices = self.get("endpointslice", name)
        endpoints = (slices or {}).get("endpoints") or []
        return str(endpoints[0]["targetRef"]["name"]) if endpoints else None

    def until(self, wanted: Callable[[], T], what: str = "") -> T:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = wanted()
            if found:
                return found
            assert time.monotonic() < deadline, f"{what}: {self.status()}\n{self._said()}"
            time.sleep(LOOK_S)

    def _said(self) -> str:
        last = [process.log.read_text()[-3000:] for process in self.operators.values()]
        return "\n".join(last)

    def ready(self, replicas: int = 3, name: str = "orders") -> Json:
        """By the word of kubectl, and all replicas have caught up."""

        def whole() -> Json:
            body = self.get("shard", name) or {"metadata": {}}
            status = body.get("status") or {}
            conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
            current = status.get("observedGeneration") == body["metadata"].get("generation")
            good = conditions.get("Ready") == conditions.get("FullyReplicated") == "True"
            counted = status.get("replicas") == replicas and status.get("phase") == "Steady"
            return status if current and good and counted else None

        return self.until(whole, f"{name} with {replicas} replicas")

    def members(self, name: str = "orders") -> set[str]:
        told = self.status(name).get("ensemble", [])
        return {each["node"] for each in told if each["role"] in ("Leader", "Follower")}

    # --- asking ----------------------------------------------------------------------------------

    def shard(self, name: str = "orders", **spec: object) -> None:
        self.api.apply(
            {
                "apiVersion": "shardlog.dev/v1alpha1",
                "kind": "Shard",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": spec,
            }
        )

    def template(self) -> None:
        """Of pods that nobody starts."""
        container = {"name": "snapshot", "image": "none", "command": ["shardlog"]}
        self.api.apply(
            {
                "apiVersion": "v1",
                "kind": "PodTemplate",
                "metadata": {"name": TEMPLATE, "namespace": self.namespace},
                "template": {"spec": {"containers": [container], "restartPolicy": "Never"}},
            }
        )

    def snapshot(self, name: str, shard: str = "orders", **spec: object) -> None:
        self.template()
        told = {"shard": shard, "destination": {"url": "s3://backups/logs"}, **spec}
        self.api.apply(
            {
                "apiVersion": "shardlog.dev/v1alpha1",
                "kind": "ShardSnapshot",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": told,
            }
        )

    def operator_address(self, name: str = "operator-0") -> str:
        """Where it serves the directory, by its own word."""
        lines = self.operators[name].log.read_text().splitlines()
        return str(json.loads(next(line for line in lines if '"started"' in line))["http"])

    def completed(self, *words: str) -> list[str]:
        """What a shell offers behind `kubectl shardlog ...`; the last word is not finished."""
        *before, last = words
        module = "shardlog.cli.kubectl_complete"
        command = [sys.executable, "-m", module, before[0], "-n", self.namespace, *before[1:], last]
        done = self._run(command)
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.splitlines() if not line.startswith(":")]

    def plugin(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`kubectl shardlog ...`, as a person runs it."""
        command = [sys.executable, "-m", "shardlog.cli.kubectl", *arguments, "-n", self.namespace]
        return self._run(command)

    def _run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "KUBECONFIG": str(self.api.kubeconfig)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
