"""Three machines by kind, whose machines are containers of docker."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from e2e.kubernetes import Kubernetes
from e2e.processes import CannotStart
from e2e.providers import OutOfReach

NAME = "shardlog-e2e"
START_TIMEOUT_S = 600.0
CONTAINERS_OF_POD = """
for id in $(crictl ps -q --label io.kubernetes.pod.uid={uid}); do
    crictl inspect -o go-template --template '{{{{.info.pid}}}} ' $id
done
"""


@dataclass(frozen=True, slots=True)
class KindCluster:
    kubernetes: Kubernetes

    def load(self, archives: Iterable[Path]) -> None:
        for archive in archives:
            _run("kind", "load", "image-archive", str(archive), "--name", NAME)

    def logs(self) -> Iterable[Path]:
        return ()

    def tag(self, image: str, other: str) -> None:
        for machine in _run("kind", "get", "nodes", "--name", NAME).split():
            _in(machine, f"ctr -n k8s.io images tag --force {image} {other}")

    def kill_processes(self, machine: str, pod_uid: str) -> set[int]:
        pids = _pids(machine, pod_uid)
        _in(machine, f"kill -9 {' '.join(pids)}")
        return {int(pid) for pid in pids}

    def hold(self, pods: Mapping[str, str]) -> HeldContainers:
        pids: dict[str, list[str]] = {}
        for uid, machine in pods.items():
            pids.setdefault(machine, []).extend(_pids(machine, uid))
        return HeldContainers(pids)

    def crash(self, machine: str) -> None:
        _run("docker", "kill", machine)

    def start(self, machine: str) -> None:
        _run("docker", "start", machine)

    def restart_api_server(self) -> None:
        raise OutOfReach("the API server of kind runs in a pod of its own and is not restarted")

    def shared_directory(self) -> Path:
        raise OutOfReach("machines of kind share no directory")


@dataclass(frozen=True, slots=True)
class HeldContainers:
    """By machine: a step is one call into each, since the way there takes longer than a step."""

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
            _in(machine, script.format(pids=" ".join(pids)))


@contextmanager
def kind_cluster(image: str, keep: bool) -> Iterator[KindCluster]:
    with tempfile.TemporaryDirectory(prefix="shardlog-kind-") as temporary:
        kubeconfig = Path(temporary) / "kubeconfig"
        if keep and NAME in _run("kind", "get", "clusters").split():
            _run("kind", "export", "kubeconfig", "--name", NAME, "--kubeconfig", str(kubeconfig))
        else:
            _run("kind", "delete", "cluster", "--name", NAME)
            configuration = Path(temporary) / "kind.yaml"
            configuration.write_text(yaml.safe_dump(_configuration(image)))
            _run(
                *("kind", "create", "cluster", "--name", NAME, "--config", str(configuration)),
                *("--kubeconfig", str(kubeconfig), "--wait", "180s"),
            )
        try:
            yield KindCluster(Kubernetes(kubeconfig))
        finally:
            if not keep:
                _run("kind", "delete", "cluster", "--name", NAME)


def _configuration(image: str) -> dict[str, object]:
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "nodes": [{"role": role, "image": image} for role in ("control-plane", *["worker"] * 3)],
    }


def _pids(machine: str, pod_uid: str) -> list[str]:
    return _in(machine, CONTAINERS_OF_POD.format(uid=pod_uid)).split()


def _in(machine: str, script: str) -> str:
    return _run("docker", "exec", machine, "sh", "-ec", script)


def _run(*command: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=START_TIMEOUT_S
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as failure:
        raise CannotStart(f"{command[0]}: {failure}") from failure
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["failed"]
        raise CannotStart(f"{' '.join(command[:3])}: {lines[-1]}")
    return done.stdout
