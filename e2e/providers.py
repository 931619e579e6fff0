"""Where the cluster comes from that Shardlog is installed on.

| `E2E_KUBECONFIG` is set | that cluster; its machines are not touched |
| `PROVIDER=kind` | kind (`kind_cluster.py`), with the node image that `E2E_KIND_IMAGE` names |
| otherwise | three machines on this one, from source (`source_cluster.py`) |

A scenario sees only `Cluster`.  With `KEEP=1` a cluster stays when the run ends; the next run with
`KEEP=1` goes on with it, and one without takes it down and starts afresh.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from e2e.holding import Held
from e2e.kubernetes import Kubernetes, Refused
from e2e.processes import CannotStart

KUBECONFIG_VARIABLE = "E2E_KUBECONFIG"
PROVIDER_VARIABLE = "PROVIDER"
KEEP_VARIABLE = "KEEP"


class OutOfReach(Exception):  # noqa: N818 - named after what it is
    """This cluster's machines are not ours to break; the message says which way they are not."""


class Cluster(Protocol):
    """What a scenario may do; faults raise `OutOfReach` where the provider cannot."""

    @property
    def kubernetes(self) -> Kubernetes: ...
    def load(self, archives: Iterable[Path]) -> None: ...
    def logs(self) -> Iterable[Path]:
        """Files that the cluster's own processes write, as far as they are on this machine."""
        ...

    def tag(self, image: str, other: str) -> None: ...
    def kill_processes(self, machine: str, pod_uid: str) -> set[int]: ...
    def hold(self, pods: Mapping[str, str]) -> Held:
        """All processes of these pods; by UID, the machines that they are on."""
        ...

    def crash(self, machine: str) -> None: ...
    def start(self, machine: str) -> None: ...
    def restart_api_server(self) -> None: ...
    def shared_directory(self) -> Path:
        """On this machine, and under the same name on all machines of the cluster."""


@dataclass(frozen=True, slots=True)
class GivenCluster:
    """One that somebody else runs; images must be where it pulls them from."""

    kubernetes: Kubernetes

    def load(self, archives: Iterable[Path]) -> None:
        del archives

    def logs(self) -> Iterable[Path]:
        return ()

    def tag(self, image: str, other: str) -> None:
        raise OutOfReach(f"{other}: images of {KUBECONFIG_VARIABLE} come from its registry")

    def kill_processes(self, machine: str, pod_uid: str) -> set[int]:
        raise OutOfReach(f"{machine} belongs to {KUBECONFIG_VARIABLE}: no process there is killed")

    def hold(self, pods: Mapping[str, str]) -> Held:
        raise OutOfReach(f"processes on machines of {KUBECONFIG_VARIABLE} are not held")

    def crash(self, machine: str) -> None:
        raise OutOfReach(f"{machine} belongs to {KUBECONFIG_VARIABLE}: it is not crashed")

    def start(self, machine: str) -> None:
        raise OutOfReach(f"{machine} belongs to {KUBECONFIG_VARIABLE}")

    def restart_api_server(self) -> None:
        raise OutOfReach(f"the API server of {KUBECONFIG_VARIABLE} is not restarted")

    def shared_directory(self) -> Path:
        raise OutOfReach(f"machines of {KUBECONFIG_VARIABLE} share no directory with this one")


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Up when entered; raises `CannotBuild` and `CannotStart`."""
    given = os.environ.get(KUBECONFIG_VARIABLE)
    if given:
        yield _given(Path(given))
        return
    keep = os.environ.get(KEEP_VARIABLE, "0") not in ("", "0")
    match os.environ.get(PROVIDER_VARIABLE) or "source":
        case "kind":
            from e2e.kind_cluster import kind_cluster

            with kind_cluster(keep) as kind:
                yield kind
        case "source":
            from e2e.source_control import controlled

            with controlled(keep) as source:
                yield source
        case other:
            raise CannotStart(f"{PROVIDER_VARIABLE}={other}: neither source nor kind")


def _given(kubeconfig: Path) -> Cluster:
    if not kubeconfig.exists():
        raise CannotStart(f"{KUBECONFIG_VARIABLE}: no file {kubeconfig}")
    kubernetes = Kubernetes(kubeconfig)
    try:
        kubernetes.kubectl("version", "--request-timeout=20s")
    except Refused as refusal:
        last = str(refusal).splitlines()[-1:] or ["no answer"]
        raise CannotStart(f"{KUBECONFIG_VARIABLE}: {last[0]}") from refusal
    return GivenCluster(kubernetes)
