"""The processes of a cluster by name: how each is, and signals to them."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from dataclasses import dataclass

from shardlog.local.cluster_file import load
from shardlog.local.failures import NoSuchProcess, NotRunning
from shardlog.local.layout import SUPERVISOR, Layout
from shardlog.local.pid_file import PidFile
from shardlog.local.stopping import KILL_TIMEOUT_MS, await_ends, send

PAUSED = ("T", "t")


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """`starts` counts those by the supervisor that runs now; `ended` is how it ended last."""

    name: str
    state: str
    pid: int | None
    resident_bytes: int | None
    starts: int
    ended: str
    addresses: tuple[str, ...]

    @property
    def is_running(self) -> bool:
        return self.state == "running"


def names(layout: Layout) -> list[str]:
    return [SUPERVISOR, *load(layout).names]


def statuses(layout: Layout) -> list[ProcessStatus]:
    addresses = load(layout).addresses()
    tally = read_tally(layout)
    found = []
    for name in names(layout):
        pid_file = PidFile(layout.pid_file(name))
        pid = pid_file.pid()
        state, resident = _looked_up(pid) if pid else ("down", None)
        if pid is None and pid_file.is_held():
            state = "starting"
        starts, ended = tally.get(name, (0, ""))
        where = tuple(addresses.get(name, ()))
        found.append(ProcessStatus(name, state, pid, resident, starts, ended, where))
    return found


def _looked_up(pid: int) -> tuple[str, int | None]:
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            fields = dict(line.split(":", 1) for line in file if ":" in line)
    except (FileNotFoundError, ProcessLookupError):
        return "down", None
    paused = fields["State"].strip().startswith(PAUSED)
    resident = fields.get("VmRSS", "").split()
    return "paused" if paused else "running", int(resident[0]) << 10 if resident else None


def read_tally(layout: Layout) -> dict[str, tuple[int, str]]:
    """How often the supervisor has started what, and how it ended last."""
    try:
        found = json.loads(layout.tally.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return {name: (each["starts"], each["ended"]) for name, each in found.items()}


def signal_process(layout: Layout, name: str, number: signal.Signals) -> None:
    """Whoever is told that a process is killed finds it gone; one that is paused stands still."""
    known = names(layout)
    if name not in known:
        raise NoSuchProcess(name, known)
    pid_file = PidFile(layout.pid_file(name))
    process = pid_file.open_process()
    if process is None:
        raise NotRunning(name)
    try:
        send(process, number)
        if number is signal.SIGKILL:
            await_ends({name: process}, KILL_TIMEOUT_MS)
        elif number is signal.SIGSTOP:
            _await_pause(pid_file)
    finally:
        os.close(process)


def _await_pause(pid_file: PidFile) -> None:
    """The kernel stops each thread when that thread runs next; nobody tells when all have."""
    deadline = time.monotonic() + KILL_TIMEOUT_MS / 1000
    while time.monotonic() < deadline:
        pid = pid_file.pid()
        if pid is None or _looked_up(pid)[0] == "paused":
            return
        time.sleep(0.005)


def await_supervisor_end(layout: Layout) -> None:
    process = PidFile(layout.pid_file(SUPERVISOR)).open_process()
    if process is not None:
        try:
            select.select([process], [], [])
        finally:
            os.close(process)
