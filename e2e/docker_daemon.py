"""The Docker daemon that kind talks to: the one that runs here, or one that is started for the run.

One of our own changes nothing outside of its directory, its bridge and its cgroup: it writes no
rules into the kernel's tables, and nodes of kind reach each other on the bridge.  Where this
machine lacks a capability, containers are started by `capped_runtime.py`.

Everything is taken away again when the context is left, and, what `kill -9` left behind, before
the next start.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e import capped_runtime, no_such_name
from e2e.machines import (
    hierarchies,
    kill,
    kill_all,
    make_cgroup,
    remove_cgroup,
    remove_directory,
    shims_of,
)
from e2e.network import require_free
from e2e.processes import CannotStart

DIRECTORY = Path("/var/lib/shardlog-kind")
SOCKET = DIRECTORY / "docker.sock"
PID = DIRECTORY / "docker.pid"
LOG = DIRECTORY / "dockerd.log"
NETWORK = "shardlog-kind"
"""Also the name of its bridge."""
ADDRESSES = "172.30.240.0/24"
NAME_SERVER = "172.30.240.254"
CGROUP = "/shardlog-kind"
MODULES = Path("/lib/modules")
"""Nodes of kind mount it, and Docker makes it where there is none."""
FREE_BYTES_MIN = 14 << 30
UP_TIMEOUT_S = 60.0
DOWN_TIMEOUT_S = 60.0
LOOK_S = 0.1
END_WITH_PARENT = ("setpriv", "--pdeathsig", "TERM")
_kept: list[subprocess.Popen[bytes]] = []
"""Held to the end of this run: one that is dropped while its process runs is a warning."""
PACKAGES = {
    "dockerd": "docker.io",
    "docker": "docker.io",
    "containerd": "containerd",
    "runc": "runc",
    "ip": "iproute2",
}


@dataclass(frozen=True, slots=True)
class Docker:
    """A daemon, by the environment in which `docker` and `kind` find it."""

    environment: Mapping[str, str]

    def run(self, *command: str | Path, stdin: str = "", timeout_s: float = 600.0) -> str:
        """What `docker` or `kind` prints; raises `CannotStart`."""
        try:
            done = subprocess.run(
                command,
                env={**os.environ, **self.environment},
                input=stdin,
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout_s,
            )
        except (FileNotFoundError, subprocess.TimeoutExpired) as failure:
            raise CannotStart(f"{command[0]}: {failure}") from failure
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["failed"]
            words = " ".join(str(each) for each in (Path(command[0]).name, *command[1:3]))
            errors = [line for line in lines if line.startswith("ERROR")]
            raise CannotStart(f"{words}: {(errors or lines)[-1]}")
        return done.stdout


@contextmanager
def docker(keep: bool) -> Iterator[Docker]:
    """Serves when entered; one that was started here is gone when left, unless it is kept."""
    if _answers(Docker({})):
        yield Docker({})
        return
    own = Docker({"DOCKER_HOST": f"unix://{SOCKET}", "KIND_EXPERIMENTAL_DOCKER_NETWORK": NETWORK})
    _require()
    with _alone():
        if keep and _answers(own):
            yield own
            return
        clean()
        started: list[subprocess.Popen[bytes]] = []
        try:
            DIRECTORY.mkdir(parents=True)
            make_cgroup(CGROUP)
            started.append(_start_daemon(keep))
            _await(own, started[0])
            started.append(_start_name_server(keep))
            yield own
        finally:
            if keep:
                _kept.extend(started)
            else:
                clean()
                for each in started:
                    each.wait()


def clean() -> None:
    """End the daemon of a run, with its containers, and remove all that it made."""
    if not DIRECTORY.exists():
        return
    daemon = _pid()
    if daemon:
        os.kill(daemon, signal.SIGTERM)
    kill_all(shims_of(DIRECTORY / "run" / "containerd" / "containerd.sock"), CGROUP)
    deadline = time.monotonic() + DOWN_TIMEOUT_S
    while daemon and _pid() == daemon:
        if time.monotonic() > deadline:
            kill(daemon)
        kill_all([], CGROUP)
        time.sleep(LOOK_S)
    remove_cgroup(CGROUP)
    remove_directory(DIRECTORY)
    subprocess.run(["ip", "link", "delete", NETWORK], capture_output=True, check=False)
    if MODULES.is_dir() and not any(MODULES.iterdir()):
        MODULES.rmdir()


def _start_daemon(keep: bool) -> subprocess.Popen[bytes]:
    configuration = DIRECTORY / "daemon.json"
    configuration.write_text(json.dumps(_configuration()))
    return _started(keep, "dockerd", f"--config-file={configuration}")


def _start_name_server(keep: bool) -> subprocess.Popen[bytes]:
    """Containers reach no other; one in the cgroup ends with them."""
    subprocess.run(["ip", "address", "add", f"{NAME_SERVER}/32", "dev", NETWORK], check=True)
    started = _started(keep, sys.executable, no_such_name.__file__, NAME_SERVER)
    below = f"{CGROUP}/names"
    make_cgroup(below)
    for top in hierarchies():
        (top / below.strip("/") / "cgroup.procs").write_text(str(started.pid))
    return started


def _started(keep: bool, *command: str) -> subprocess.Popen[bytes]:
    with LOG.open("ab") as output:
        return subprocess.Popen(
            [*([] if keep else END_WITH_PARENT), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _await(own: Docker, started: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + UP_TIMEOUT_S
    while not _answers(own):
        if started.poll() is not None or time.monotonic() > deadline:
            lines = LOG.read_text().strip().splitlines() or ["it said nothing"]
            raise CannotStart(f"dockerd: {lines[-1]}")
        time.sleep(LOOK_S)
    bridge = f"--opt=com.docker.network.bridge.name={NETWORK}"
    own.run("docker", "network", "create", bridge, f"--subnet={ADDRESSES}", NETWORK)


def _configuration() -> dict[str, object]:
    document: dict[str, object] = {
        "data-root": str(DIRECTORY / "docker"),
        "exec-root": str(DIRECTORY / "run"),
        "pidfile": str(PID),
        "hosts": [f"unix://{SOCKET}"],
        "bridge": "none",
        "dns": [NAME_SERVER],
        "iptables": False,
        "ip6tables": False,
        "ip-masq": False,
        "ip-forward": False,
        "cgroup-parent": CGROUP,
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
    }
    if capped_runtime.missing_capabilities():
        runtime = DIRECTORY / "runtime"
        script = Path(capped_runtime.__file__)
        runtime.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {script} "$@"\n')
        runtime.chmod(0o755)
        document |= {"runtimes": {"capped": {"path": str(runtime)}}, "default-runtime": "capped"}
    return document


def _require() -> None:
    if os.geteuid() != 0:
        raise CannotStart("no Docker daemon runs here, and to start one needs root")
    for program, package in PACKAGES.items():
        if shutil.which(program) is None:
            raise CannotStart(f"{program} is missing: apt-get install {package}")
    require_free(ADDRESSES, "nodes of kind", NETWORK)
    free = shutil.disk_usage(DIRECTORY.parent).free
    if free < FREE_BYTES_MIN:
        raise CannotStart(
            f"{DIRECTORY.parent}: {free >> 30} GiB free, {FREE_BYTES_MIN >> 30} needed: make room"
        )


def _answers(daemon: Docker) -> bool:
    try:
        daemon.run("docker", "version", "--format={{.Server.Version}}", timeout_s=30.0)
    except CannotStart:
        return False
    return True


def _pid() -> int | None:
    """Of our daemon, if it runs."""
    try:
        pid = int(PID.read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if f"--config-file={DIRECTORY / 'daemon.json'}".encode() in words else None


@contextmanager
def _alone() -> Iterator[None]:
    """The bridge and the cgroup are there once."""
    with Path("/run/shardlog-kind.lock").open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotStart("another run with kind is under way on this machine") from None
        yield
