"""Processes that a cluster is made of: started, waited for, and never left behind.

Every process has a log file of its own, and one that ends before it serves is told with the last
line it wrote.  The kernel ends a process when whoever started it is gone, so that not even
`kill -9` of a test run leaves one behind; `setpriv` arranges that, since code of ours between fork
and exec would run with the locks of gRPC's threads.  A process is in a session of its own, so that
Ctrl-C reaches it only by way of `stop`, in order.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

END_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")
POLL_S = 0.05
STOP_TIMEOUT_S = 20.0


class CannotStart(Exception):  # noqa: N818 - named after what it is
    """Something does not come up; the message is one line for a person."""


@dataclass(slots=True)
class Process:
    """A process that was started here, how, and the file that it writes to."""

    name: str
    log: Path
    command: Sequence[str]
    environment: Mapping[str, str]
    running: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.running = subprocess.Popen(
                [*END_WITH_PARENT, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )

    def kill(self) -> None:
        self.running.kill()
        self.running.wait()

    def await_ready(self, is_ready: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Until it serves; raises `CannotStart` if it ends or takes too long."""
        deadline = time.monotonic() + timeout_s
        while not is_ready():
            if self.running.poll() is not None:
                status = self.running.returncode
                raise CannotStart(f"{self.name} ended ({status}): {self.last_line()}")
            if time.monotonic() > deadline:
                raise CannotStart(f"{self.name} is not ready: {self.last_line()}")
            time.sleep(POLL_S)

    def last_line(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:400] if lines else f"nothing in {self.log}"

    def stop(self, first: signal.Signals = signal.SIGTERM) -> None:
        """Ask, wait, then insist."""
        if self.running.poll() is None:
            self.running.send_signal(first)
            try:
                self.running.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.running.kill()
        self.running.wait()


def start(
    name: str,
    command: Sequence[str],
    logs: Path,
    environment: Mapping[str, str] | None = None,
) -> Process:
    logs.mkdir(parents=True, exist_ok=True)
    return Process(name, logs / f"{name}.log", command, environment or {})
