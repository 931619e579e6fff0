"""Machines by kind, whose machines are containers of Docker: those of `examples/kind.yaml`.

Docker is started where none runs (`docker_daemon.py`), and a node image is built where none is
named (`node_image.py`).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e import node_image
from e2e.binaries import binary, cache
from e2e.docker_daemon import Docker, docker
from e2e.kubernetes import Kubernetes, Refused
from e2e.processes import CannotStart

NAME = "shardlog-e2e"
MACHINES = Path(__file__).parent.parent / "examples" / "kind.yaml"
CONTROL_PLANE = f"{NAME}-control-plane"
IMAGE_VARIABLE = "E2E_KIND_IMAGE"
READY_TIMEOUT = "300s"
PIDS_OF_POD = """
pod='labels."io.kubernetes.pod.uid"=={uid},labels."io.cri-containerd.kind"==container'
for id in $(ctr -n k8s.io containers ls -q "$pod"); do
    ctr -n k8s.io tasks ps $id 2>/dev/null | awk 'NR > 1 {{print $1}}' || true
done
"""
ADDRESSES = {"podSubnet": "10.245.0.0/16", "serviceSubnet": "10.97.0.0/16"}
"""Others than those of the cluster from source, which may run beside this one."""
QUICKER = """\
kind: ClusterConfiguration
apiServer:
  extraArgs:
    default-not-ready-toleration-seconds: "30"
    default-unreachable-toleration-seconds: "30"
controllerManager:
  extraArgs:
    node-monitor-grace-period: 20s
"""
"""A machine that is lost is noticed within the patience of a scenario."""


@dataclass(frozen=True, slots=True)
class KindCluster:
    kubernetes: Kubernetes
    docker: Docker
    directory: Path

    def load(self, archives: Iterable[Path]) -> None:
        where = f"--nodes={','.join(self._workers())}"
        for archive in archives:
            _kind(self.docker, "load", "image-archive", str(archive), where)

    def logs(self) -> Iterable[Path]:
        exported = self.directory / "logs"
        shutil.rmtree(exported, ignore_errors=True)
        _kind(self.docker, "export", "logs", str(exported))
        return sorted(path for path in exported.rglob("*.log") if path.is_file())

    def tag(self, image: str, other: str) -> None:
        for machine in self._workers():
            self._in(machine, f"ctr -n k8s.io images tag --force {image} {other}")

    def kill_processes(self, machine: str, pod_uid: str) -> set[int]:
        pids = self._pids(machine, pod_uid)
        self._in(machine, f"kill -9 {' '.join(pids)}")
        return {int(pid) for pid in pids}

    def hold(self, pods: Mapping[str, str]) -> HeldContainers:
        pids: dict[str, list[str]] = {}
        for uid, machine in pods.items():
            pids.setdefault(machine, []).extend(self._pids(machine, uid))
        return HeldContainers(self, pids)

    def crash(self, machine: str) -> None:
        self.docker.run("docker", "kill", machine)

    def start(self, machine: str) -> None:
        self.docker.run("docker", "start", machine)

    def restart_api_server(self) -> None:
        """Its kubelet starts it again."""
        self._in(CONTROL_PLANE, "pkill -KILL -x kube-apiserver")

    def shared_directory(self) -> Path:
        """Every machine mounts it."""
        return self.directory / "shared"

    def _workers(self) -> Sequence[str]:
        nodes = _kind(self.docker, "get", "nodes").split()
        return sorted(name for name in nodes if name != CONTROL_PLANE)

    def _pids(self, machine: str, pod_uid: str) -> list[str]:
        return self._in(machine, PIDS_OF_POD.format(uid=pod_uid)).split()

    def _in(self, machine: str, script: str) -> str:
        return self.docker.run("docker", "exec", machine, "sh", "-ec", script)


@dataclass(frozen=True, slots=True)
class HeldContainers:
    """By machine: a step is one call into each, since the way there takes longer than a step."""

    cluster: KindCluster
    pids: Mapping[str, Sequence[str]]

    def __post_init__(self) -> None:
        self._each("kill -STOP {pids}")

    def step(self, for_s: float) -> None:
        self._each(f"kill -CONT {{pids}}; sleep {for_s}; kill -STOP {{pids}}")

    def let_go(self) -> None:
        self._each("kill -CONT {pids} || true")

    def kill(self) -> None:
        self._each("kill -KILL {pids} || true")

    def _each(self, script: str) -> None:
        for machine, pids in self.pids.items():
            self.cluster._in(machine, script.format(pids=" ".join(pids)))


@contextmanager
def kind_cluster(keep: bool) -> Iterator[KindCluster]:
    """Up and Ready when entered; raises `CannotBuild` and `CannotStart`."""
    directory = cache().parent / "kind"
    with docker(keep) as daemon:
        there = NAME in _kind(daemon, "get", "clusters", cluster=False).split()
        kubernetes = Kubernetes(directory / "kubeconfig")
        if not (keep and there):
            _delete(daemon, directory)
        try:
            if not (keep and there):
                image = os.environ.get(IMAGE_VARIABLE) or node_image.imported(daemon)
                _create(daemon, kubernetes.kubeconfig, image)
                _await_ready(kubernetes)
            yield KindCluster(kubernetes, daemon, directory)
        finally:
            if keep:
                variables = [*daemon.environment.items(), ("KUBECONFIG", kubernetes.kubeconfig)]
                said = " ".join(f"{name}={value}" for name, value in variables)
                print(f"\nkept: export {said}; the next run without KEEP ends it", file=sys.stderr)
            else:
                _delete(daemon, directory)


def _create(daemon: Docker, kubeconfig: Path, image: str) -> None:
    shared = kubeconfig.parent / "shared"
    shared.mkdir(parents=True)
    shared.chmod(0o777)
    configuration = kubeconfig.with_name("kind.yaml")
    configuration.write_text(yaml.safe_dump(_configuration(image, shared)))
    wanted = (f"--config={configuration}", f"--kubeconfig={kubeconfig}", f"--wait={READY_TIMEOUT}")
    _kind(daemon, "create", "cluster", *wanted)


def _await_ready(kubernetes: Kubernetes) -> None:
    """kind waits for the control plane alone."""
    try:
        kubernetes.kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=180s")
    except Refused as refusal:
        raise CannotStart(f"kind: {refusal}") from refusal


def _delete(daemon: Docker, directory: Path) -> None:
    _kind(daemon, "delete", "cluster")
    shutil.rmtree(directory, ignore_errors=True)


def _configuration(image: str, shared: Path) -> Any:
    """Machines as people are given them, with one directory in common."""
    document = yaml.safe_load(MACHINES.read_text())
    mounted = {"hostPath": str(shared), "containerPath": str(shared)}
    document["name"] = NAME
    document["networking"] = ADDRESSES
    document["kubeadmConfigPatches"] = [QUICKER]
    for number, node in enumerate(document["nodes"]):
        zone = {"topology.kubernetes.io/zone": f"zone-{number}"}
        node |= {"image": image, "extraMounts": [mounted], "labels": zone}
    return document


def _kind(daemon: Docker, *words: str, cluster: bool = True) -> str:
    """kind, of which people here may have their own."""
    program = shutil.which("kind") or binary("kind")
    named = (f"--name={NAME}",) if cluster else ()
    return daemon.run(program, *words, *named)
