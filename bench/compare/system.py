"""What all systems have in common: processes that serve, and a load program that knows them.

A system is a description; `running` starts it in an empty directory and gives a `Running`, whose
processes have ended, by their own ids, when the `with` does.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.page_cache import forget_pages

HOST = "127.0.0.1"
END_TIMEOUT_S = 10
LOAD_GRACE_S = 40
LOG_TAIL_BYTES = 400
SETTLE_S = 1.0
"""Under load, before a leader is killed."""


class Failed(Exception):  # noqa: N818 - named after what happened
    """A system did not start, or a pattern failed on it; the message is for a person."""


@dataclass(frozen=True, slots=True)
class Used:
    """By all processes of a system."""

    cpu_s: float
    resident_mib: float


@dataclass
class Running(ABC):
    """A system that serves.  `replicas` is how many processes it has."""

    directory: Path
    replicas: int
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    @abstractmethod
    def load(self) -> Sequence[str]:
        """The load program, up to the pattern."""

    @abstractmethod
    def kill_leader(self, log: str) -> None:
        """As by kill -9."""

    def create(self, log: str, shards: int = 1) -> None:
        self.ask("create", log=log, shards=shards, replicas=self.replicas, timeout_s=180)

    def ask(self, pattern: str, *, timeout_s: float | None = None, **given: Any) -> Any:
        """What the load program answers."""
        command = [*self.load, pattern, *arguments_of(given)]
        within_s = timeout_s or LOAD_GRACE_S + float(given.get("seconds", 0))
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=within_s,
                env=self.environment,
            )  # fmt: skip
        except subprocess.TimeoutExpired as failure:
            raise Failed(f"{pattern}: no answer after {within_s:.0f} s") from failure
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["failed without a word"]
            raise Failed(f"{pattern}: {last[0]}")
        return json.loads(done.stdout.splitlines()[-1])

    @property
    def environment(self) -> Mapping[str, str]:
        return os.environ

    def pause_s(self, log: str, within_s: float) -> float:
        """How long nothing is acknowledged when the leader is killed under load."""
        command = [*self.load, "pause", *arguments_of({"log": log, "seconds": within_s})]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=self.environment,
        )  # fmt: skip
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            if process.stdout.readline():
                time.sleep(SETTLE_S)
                self.kill_leader(log)
                process.stdin.write("killed\n")
                process.stdin.flush()
            answer, said = process.communicate(timeout=within_s + LOAD_GRACE_S)
        except subprocess.TimeoutExpired as failure:
            raise Failed(f"pause: no answer after {within_s:.0f} s") from failure
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
        if process.returncode:
            raise Failed(f"pause: {(said.strip().splitlines() or ['failed'])[-1]}")
        return float(json.loads(answer.splitlines()[-1])["pause_s"])

    @property
    def servers(self) -> list[psutil.Process]:
        return [psutil.Process(each.pid) for each in self.processes if each.poll() is None]

    def used(self) -> Used:
        cpu_s, resident = 0.0, 0
        for process in self.servers:
            try:
                times = process.cpu_times()
                cpu_s += times.user + times.system
                resident += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        return Used(cpu_s, resident / (1 << 20))

    def start(self, name: str, command: Sequence[str | Path]) -> subprocess.Popen[bytes]:
        with (self.directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(each) for each in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.directory,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def stop(self) -> None:
        """Killed: what they would still write is of no use to anybody."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
        for process in self.processes:
            process.wait(END_TIMEOUT_S)

    def until_listening(self, ports: Sequence[int], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        for port in ports:
            while not _listens(port):
                dead = [each for each in self.processes if each.poll() is not None]
                if dead or time.monotonic() > deadline:
                    what = "a process has ended" if dead else f"no port after {timeout_s:.0f} s"
                    raise Failed(f"does not start: {what}: {self._last_words()}")
                time.sleep(0.05)

    def _last_words(self) -> str:
        said = [
            path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
            for path in sorted(self.directory.glob("*.log"))
        ]
        lines = [text.splitlines()[-1] for text in said if text]
        return (lines or ["no output"])[0].replace(str(self.directory), "")

    def forget_pages(self) -> None:
        forget_pages(self.directory)


class System(ABC):
    """One row: a system with its settings."""

    name: str
    title: str
    syncs: bool
    """Whether a record is on disks before it is acknowledged."""
    settings: str
    """What was set, in words for the page."""
    has_shards = True
    speaks_frames = False
    """Whether the yardstick's load generator can append to it."""

    @property
    @abstractmethod
    def version(self) -> str: ...

    @abstractmethod
    def running(self, directory: Path, replicas: int) -> AbstractContextManager[Running]:
        """Raises `CannotBeHad` or `Failed`."""


def arguments_of(given: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
    for name, value in given.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is not False:
            words += [flag, str(value)]
    return words


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def stopped_at_the_end(running: Running) -> Iterator[Running]:
    try:
        yield running
    finally:
        running.stop()
