"""The supervisor: starts the processes of a cluster, and starts again what ends.

It may be killed itself at any moment.  The next one finds those who are still running by their pid
files, and watches them as if it had started them.  Two cannot run at once, because the supervisor
has a pid file of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from shardlog.local.atomic_file import write_atomically
from shardlog.local.cluster_file import load
from shardlog.local.failures import LocalFailure, NoCluster
from shardlog.local.layout import Layout
from shardlog.local.pid_file import PidFile, start
from shardlog.local.programs import Program, programs
from shardlog.local.stopping import stop_in_order

BACK_OFF_MIN_MS = 100
BACK_OFF_MAX_MS = 5000
LIVED_LONG_MS = 10_000
"""Who lived so long is started again at once, however often that was necessary before."""
LOOK_AGAIN_MS = 20
CLUSTER_FILE_MS = 250
STOP_GRACE_MS = 15_000
UNUSABLE = 2

Tell = Callable[[str], None]


class Supervised:
    """One program: started or adopted, watched, and started again when it ends."""

    def __init__(self, layout: Layout, program: Program, tell: Tell) -> None:
        self.program = program
        self.pid_file = PidFile(layout.pid_file(program.name))
        self.log = layout.log(program.name)
        self.tell = tell
        self.starts = 0
        self.ended = ""
        # A pidfd, while it runs.
        self.process: int | None = None
        self._child: subprocess.Popen[bytes] | None = None

    async def run(self) -> None:
        back_off_ms = BACK_OFF_MIN_MS
        while True:
            begun_ms = time.monotonic() * 1000
            self.process = await self._started()
            await _ended(self.process)
            os.close(self.process)
            self.process = None
            if time.monotonic() * 1000 - begun_ms >= LIVED_LONG_MS:
                back_off_ms = BACK_OFF_MIN_MS
            self.ended = self._ending()
            self.tell(f"{self.program.name} {self.ended}; again in {back_off_ms} ms")
            await asyncio.sleep(back_off_ms / 1000)
            back_off_ms = min(2 * back_off_ms, BACK_OFF_MAX_MS)

    async def _started(self) -> int:
        """A pidfd of the program, which may have been running all the time."""
        while True:
            try:
                self._start_if_absent()
            except OSError as failure:
                self.tell(f"{self.program.name} cannot be started: {failure}")
                await asyncio.sleep(BACK_OFF_MAX_MS / 1000)
                continue
            process = self.pid_file.open_process()
            if process is not None:
                if self._child is None:
                    self.tell(f"{self.program.name} is running, process {self.pid_file.pid()}")
                return process
            await asyncio.sleep(LOOK_AGAIN_MS / 1000)

    def _start_if_absent(self) -> None:
        held = self.pid_file.take()
        if held is not None:
            program = self.program
            self._child = start(held, program.command, program.environment, self.log)
            self.starts += 1
            self.tell(f"{program.name} started, process {self._child.pid}")

    def _ending(self) -> str:
        """How it ended, if it was a child of ours: nobody else is told."""
        child, self._child = self._child, None
        if child is None:
            return "ended"
        code = child.wait()
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"


async def _ended(process: int) -> None:
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    loop.add_reader(process, done.set)
    try:
        await done.wait()
    finally:
        loop.remove_reader(process)


class Supervisor:
    """All programs of one cluster."""

    def __init__(self, layout: Layout, out: Callable[[str], None]) -> None:
        self.layout = layout
        self.out = out
        self.supervised: dict[str, Supervised] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Until a signal, or until the cluster's file is gone; then everything is stopped."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        following = asyncio.create_task(self._follow_file(), name="cluster file")
        self._tasks.append(following)
        waiting = asyncio.create_task(stop.wait())
        try:
            while not waiting.done():
                await asyncio.wait([*self._tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
                for task in self._tasks:
                    if task.done():
                        task.result()
                        waiting.cancel()
                        return
        finally:
            for task in self._tasks:
                task.cancel()
            self._stop()

    async def _follow_file(self) -> None:
        """Nodes are added by writing them there."""
        seen: tuple[int, int] | None = None
        while (found := _identity(self.layout.cluster_file)) is not None:
            if found != seen:
                seen = found
                try:
                    cluster = load(self.layout)
                except NoCluster:
                    break
                for program in programs(self.layout, cluster):
                    if program.name not in self.supervised:
                        self._begin(program)
            await asyncio.sleep(CLUSTER_FILE_MS / 1000)
        self.out("the cluster's file is gone: stopping")

    def _begin(self, program: Program) -> None:
        supervised = Supervised(self.layout, program, self._tell)
        self.supervised[program.name] = supervised
        self._tasks.append(asyncio.create_task(supervised.run(), name=program.name))

    def _tell(self, what: str) -> None:
        self.out(what)
        tally = {
            name: {"starts": each.starts, "ended": each.ended}
            for name, each in self.supervised.items()
        }
        # Only for people, and the directory may be on its way out.
        with contextlib.suppress(OSError):
            write_atomically(self.layout.tally, json.dumps(tally), durable=False)

    def _stop(self) -> None:
        running: dict[str, int] = {}
        for name, each in self.supervised.items():
            process = each.process or each.pid_file.open_process()
            if process is not None:
                running[name] = process
        for name in stop_in_order(running, STOP_GRACE_MS):
            self.out(f"{name} had to be killed")
        self.out("stopped")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_mtime_ns


def log_line(what: str) -> None:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    print(f"{now} {what}", flush=True)


def main() -> None:
    """As a process of its own, whose starter has taken the pid file for it."""
    parser = argparse.ArgumentParser(prog="python -m shardlog.local.supervisor")
    parser.add_argument("--dir", required=True)
    layout = Layout.of(parser.parse_args().dir)
    try:
        asyncio.run(Supervisor(layout, log_line).run())
    except (LocalFailure, OSError) as failure:
        log_line(str(failure))
        sys.exit(UNUSABLE)


if __name__ == "__main__":
    main()
