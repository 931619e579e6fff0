"""The cluster from source as a test run sees it: a process of its own, and a socket to ask it by.

The process that runs the cluster (`python -m e2e.source_cluster`) cleans up when it is interrupted,
and it is told to when the run that started it is gone, however that ended.  With `KEEP=1` it is
nobody's child, and stays.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.holding import HeldProcesses
from e2e.kubernetes import Kubernetes
from e2e.machines import Machine, kill
from e2e.processes import CannotStart
from e2e.source_cluster import CONTROL, DIRECTORY, KUBECONFIG, MACHINES

UP_TIMEOUT_S = 1800.0
"""Also the builds of all programs, where nothing was built before."""
DOWN_TIMEOUT_S = 120.0
ANSWER_TIMEOUT_S = 120.0
LOOK_S = 0.1
END_WITH_PARENT = ("setpriv", "--pdeathsig", "TERM")
_kept: list[subprocess.Popen[bytes]] = []
"""Held to the end of this run: one that is dropped while its process runs is a warning."""


@dataclass(frozen=True, slots=True)
class SourceCluster:
    kubernetes: Kubernetes

    def load(self, archives: Iterable[Path]) -> None:
        """On all machines at once: most of it is waiting for the disk."""
        wanted = list(archives)

        def on(machine: Machine) -> None:
            for archive in wanted:
                machine.import_image(archive)

        with ThreadPoolExecutor(MACHINES) as threads:
            list(threads.map(on, self._machines()))

    def logs(self) -> Iterable[Path]:
        return (*DIRECTORY.glob("*.log"), *DIRECTORY.glob("machine-*/*.log"))

    def tag(self, image: str, other: str) -> None:
        for machine in self._machines():
            machine.tag_image(image, other)

    def kill_processes(self, machine: str, pod_uid: str) -> set[int]:
        (found,) = (each for each in self._machines() if each.name == machine)
        pids = found.pids_of_pod(pod_uid)
        for pid in pids:
            kill(pid)
        return pids

    def hold(self, pods: Mapping[str, str]) -> HeldProcesses:
        machines = {machine.name: machine for machine in self._machines()}
        found = (machines[name].pids_of_pod(uid) for uid, name in pods.items())
        return HeldProcesses(frozenset().union(*found))

    def crash(self, machine: str) -> None:
        _ask(f"crash {machine}")

    def start(self, machine: str) -> None:
        _ask(f"start {machine}")

    def restart_api_server(self) -> None:
        _ask("restart-api-server")

    def shared_directory(self) -> Path:
        """All machines are this one; pods have users of their own, who may write here."""
        directory = DIRECTORY / "shared"
        directory.mkdir(exist_ok=True)
        directory.chmod(0o777)
        return directory

    def _machines(self) -> Iterator[Machine]:
        for number in range(1, MACHINES + 1):
            root = DIRECTORY / f"machine-{number}"
            yield Machine(number, root, "", DIRECTORY, self.kubernetes.kubeconfig)


@contextmanager
def controlled(keep: bool) -> Iterator[SourceCluster]:
    """Up when entered; raises `CannotStart` with what the cluster's process said last."""
    running = _pid() if CONTROL.exists() else None
    if running and not keep:
        _stop(running)
        running = None
    started = None if running else _start(keep)
    try:
        yield SourceCluster(Kubernetes(KUBECONFIG))
    finally:
        if keep:
            _kept.extend([started] if started else [])
            print(f"\nkept: export KUBECONFIG={KUBECONFIG}; kill {_pid()} ends it", file=sys.stderr)
        elif started:
            started.send_signal(signal.SIGINT)
            started.wait(DOWN_TIMEOUT_S)


def _start(keep: bool) -> subprocess.Popen[bytes]:
    with tempfile.NamedTemporaryFile(prefix="shardlog-e2e-", suffix=".log") as said:
        process = subprocess.Popen(
            [*([] if keep else END_WITH_PARENT), sys.executable, "-m", "e2e.source_cluster"],
            cwd=Path(__file__).parent.parent,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _await_up(process, Path(said.name))
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.wait(DOWN_TIMEOUT_S)
            raise
    return process


def _await_up(process: subprocess.Popen[bytes], said: Path) -> None:
    deadline = time.monotonic() + UP_TIMEOUT_S
    while _pid() != process.pid:
        if process.poll() is not None or time.monotonic() > deadline:
            lines = said.read_text().strip().splitlines() or ["it said nothing"]
            raise CannotStart(lines[-1].removeprefix("e2e: "))
        time.sleep(LOOK_S)


def _stop(pid: int) -> None:
    os.kill(pid, signal.SIGINT)
    deadline = time.monotonic() + DOWN_TIMEOUT_S
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > deadline:
            raise CannotStart(f"the cluster of process {pid} does not end")
        time.sleep(LOOK_S)


def _pid() -> int | None:
    """Of the process that runs the cluster, if one answers."""
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(str(CONTROL))
        except OSError:
            return None
        credentials = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[:4], sys.byteorder)


def _ask(words: str) -> None:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(ANSWER_TIMEOUT_S)
        asking.connect(str(CONTROL))
        with asking.makefile("rw") as lines:
            lines.write(f"{words}\n")
            lines.flush()
            answer = lines.readline().strip()
    if answer != "done":
        raise CannotStart(f"{words}: {answer or 'no answer'}")
