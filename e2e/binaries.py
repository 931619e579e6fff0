"""The programs of Kubernetes and those beside it, built from their Go modules at fixed versions.

Not every machine can pull an image or download a release, but where Go is, its modules are.  Each
directory of `go/` is a module of its own that names the programs (`tool`) and fixes the version of
everything they are made of (`go.sum`), so that a build is the same anywhere.  A program that was
built is kept below `~/.cache/shardlog/bin`, under its version, and found there in no time.

    python -m e2e.binaries              build everything
    python -m e2e.binaries etcd helm    build these, and print where they are
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).parent / "go"
GO_MINOR_MIN = 24
KUBERNETES = "v1.34.4"

STAMPS = {
    "kubernetes": {
        "k8s.io/component-base/version.gitVersion": KUBERNETES,
        "k8s.io/component-base/version.gitMajor": "1",
        "k8s.io/component-base/version.gitMinor": "34",
    },
    "helm": {
        "helm.sh/helm/v3/internal/version.version": "v3.19.5",
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": "1",
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": "34",
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor": "1",
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor": "34",
    },
}
"""A build from modules knows no versions: Kubernetes would be v0.0.0, and v1.20 for helm."""


class CannotBuild(Exception):  # noqa: N818 - named after what it is
    """A program cannot be had; the message is one line for a person."""


@dataclass(frozen=True, slots=True)
class Program:
    """One program: the module in `go/` that fixes it, its package there, and its version."""

    module: str
    package: str
    version: str


def _kubernetes(name: str) -> Program:
    return Program("kubernetes", f"k8s.io/kubernetes/cmd/{name}", KUBERNETES)


PROGRAMS = {
    "kube-apiserver": _kubernetes("kube-apiserver"),
    "kube-controller-manager": _kubernetes("kube-controller-manager"),
    "kube-scheduler": _kubernetes("kube-scheduler"),
    "kubectl": _kubernetes("kubectl"),
    "kubelet": _kubernetes("kubelet"),
    "kube-proxy": _kubernetes("kube-proxy"),
    "kubeadm": _kubernetes("kubeadm"),
    "etcd": Program("etcd", "go.etcd.io/etcd/server/v3", "v3.6.8"),
    "etcdctl": Program("etcd", "go.etcd.io/etcd/etcdctl/v3", "v3.6.8"),
    "etcdutl": Program("etcd", "go.etcd.io/etcd/etcdutl/v3", "v3.6.8"),
    "helm": Program("helm", "helm.sh/helm/v3/cmd/helm", "v3.19.5"),
    "coredns": Program("coredns", "shardlog.dev/e2e/coredns", "v1.14.1-2"),
    "nats-server": Program("nats", "github.com/nats-io/nats-server/v2", "v2.15.2"),
    "pause": Program("pause", "shardlog.dev/e2e/pause", "v1"),
    "actionlint": Program("actionlint", "github.com/rhysd/actionlint/cmd/actionlint", "v1.7.7"),
    "kind": Program("kind", "sigs.k8s.io/kind", "v0.30.0"),
    "local-path-provisioner": Program(
        "local-path-provisioner", "github.com/rancher/local-path-provisioner", "v0.0.30"
    ),
}


def binary(name: str) -> Path:
    """Where this program is, built now if it never was; raises `CannotBuild`."""
    program = PROGRAMS[name]
    place = cache() / f"{program.module}-{program.version}" / name
    if place.exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with _alone(place.with_suffix(".lock")):
        if not place.exists():
            _build(name, program, place)
    return place


def cache() -> Path:
    top = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(top) / "shardlog" / "bin"


def _build(name: str, program: Program, place: Path) -> None:
    """Beside its place first: a build that was broken off is not taken for a program."""
    _require_go(name)
    print(f"building {name} {program.version} (once)", file=sys.stderr, flush=True)
    unfinished = place.with_suffix(".new")
    stamps = STAMPS.get(program.module, {})
    link = ["-s", "-w", *(f"-X {variable}={value}" for variable, value in stamps.items())]
    flags = ["-trimpath", "-ldflags", " ".join(link)]
    done = subprocess.run(
        ["go", "build", *flags, "-o", unfinished, program.package],
        cwd=MODULES / program.module,
        env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = done.stdout.strip().splitlines()[-1:] or ["no output"]
        raise CannotBuild(f"{name}: go build failed: {last[0]}")
    unfinished.replace(place)


def _require_go(name: str) -> None:
    wanted = f"{name}: needs Go 1.{GO_MINOR_MIN} or newer to be built"
    if shutil.which("go") is None:
        raise CannotBuild(f"{wanted}: apt-get install golang")
    found = subprocess.run(
        ["go", "env", "GOVERSION"],
        env={**os.environ, "GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    minor = re.match(r"go1\.(\d+)", found)
    if minor is None or int(minor[1]) < GO_MINOR_MIN:
        raise CannotBuild(f"{wanted}, and `go` is {found or 'broken'}")


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One build of a program at a time, whoever asks for it."""
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def main(arguments: Sequence[str]) -> int:
    unknown = [name for name in arguments if name not in PROGRAMS]
    if unknown:
        print(f"binaries: {unknown[0]}: not one of {', '.join(PROGRAMS)}", file=sys.stderr)
        return 2
    try:
        for name in arguments or PROGRAMS:
            print(binary(name))
    except CannotBuild as failure:
        print(f"binaries: {failure}", file=sys.stderr)
        return 8
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
