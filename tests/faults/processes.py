"""Programs that are killed, paused and started again, each with one log for all its lives."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil

from faults.nursery import Nursery
from shardlog.local.programs import Program

READABLE_MS = 60_000
FREEZE_LOOK_MS = 1
STOPPED = "TtZX"


class Process:
    """One program, which nobody starts again but `start`."""

    def __init__(self, program: Program, log: Path) -> None:
        self.program = program
        self.name = program.name
        self.log = log
        self.nursery: Nursery | None = None
        self.starts = 0
        self.kills = 0
        self.paused = False
        self.pid = 0
        self._pidfd = -1

    def with_settings(self, settings: Mapping[str, str]) -> None:
        """Environment for the next start."""
        environment = {**self.program.environment, **settings}
        self.program = replace(self.program, environment=environment)

    def become(self, *command: str) -> None:
        """Another program from now on, in the same environment."""
        self.program = replace(self.program, command=command)
        self.nursery = None

    def within(self, *command: str) -> None:
        """Start it by another command from now on, which runs what follows."""
        self.program = replace(self.program, command=(*command, *self.program.command))
        self.nursery = None

    @property
    def running(self) -> bool:
        return self._pidfd >= 0 and not _has_ended(self._pidfd, 0)

    @property
    def rss_bytes(self) -> int:
        return int(psutil.Process(self.pid).memory_info().rss)

    @property
    def open_files(self) -> int:
        return int(psutil.Process(self.pid).num_fds())

    def start(self) -> None:
        assert not self.running, f"{self.name} is running"
        self._forget()
        self.pid = self._begun()
        self._pidfd = os.pidfd_open(self.pid)
        self.starts += 1
        self.paused = False

    def _begun(self) -> int:
        program = self.program
        if self.nursery is not None:
            return self.nursery.start(program.command, program.environment, self.log)
        with self.log.open("ab") as log:
            child = subprocess.Popen(
                program.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=program.environment,
                start_new_session=True,
            )
        self._child = child
        return child.pid

    def kill(self) -> None:
        """As `kill -9`, and wait until it is gone."""
        if self._pidfd < 0:
            return
        if self.running:
            self._signal(signal.SIGKILL)
            assert _has_ended(self._pidfd, READABLE_MS), f"{self.name} cannot be killed"
            self.kills += 1
        self._forget()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self.paused = True

    def freeze(self) -> None:
        """Paused, and no thread of it is on its way any more."""
        self.pause()
        deadline = time.monotonic() + READABLE_MS / 1000
        while not all(state in STOPPED for state in self._states()):
            assert time.monotonic() < deadline, f"{self.name} does not stand still"
            time.sleep(FREEZE_LOOK_MS / 1000)

    def _states(self) -> list[str]:
        """Of its threads; one that has just ended has none."""
        found = []
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                found.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
        return found

    def resume(self) -> None:
        if self.paused and self.running:
            self._signal(signal.SIGCONT)
        self.paused = False

    def _signal(self, number: signal.Signals) -> None:
        signal.pidfd_send_signal(self._pidfd, number)

    def _forget(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        if self.nursery is None and self.starts:
            self._child.wait()


def _has_ended(pidfd: int, timeout_ms: int) -> bool:
    return bool(select.select([pidfd], [], [], timeout_ms / 1000)[0])
