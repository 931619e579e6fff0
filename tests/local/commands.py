"""A cluster of real processes in a directory of its own, driven by the `shardlog` command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from shardlog.cli.main import main
from shardlog.client.blocking import Client
from shardlog.local.cluster_file import load
from shardlog.local.layout import Layout
from shardlog.local.pid_file import PidFile
from shardlog.local.taking_down import stop_all

TIMEOUT_S = 60
SHARDLOG = str(Path(sys.executable).with_name("shardlog"))


class LocalCluster:
    """`shardlog` with this directory; what is not said otherwise must succeed."""

    def __init__(self, directory: Path) -> None:
        self.layout = Layout(directory)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SHARDLOG_DIR": str(self.layout.directory)}

    def run(self, line: str, code: int = 0) -> Result:
        result = CliRunner().invoke(
            main, line.split(), env={"SHARDLOG_DIR": str(self.layout.directory)}
        )
        assert result.exit_code == code, f"{line}: {result.exit_code}: {result.output}"
        assert "Traceback" not in result.output, result.output
        return result

    def answered(self, line: str, answer: str, code: int = 0) -> str:
        """A command at a terminal where somebody answers its question; what it printed."""
        status, told = answered([SHARDLOG, *line.split()], answer, self.environment)
        assert status == code, f"{line}: {status}: {told}"
        assert "Traceback" not in told, told
        return told

    def json(self, line: str) -> Any:
        return json.loads(self.run(f"{line} -o json").stdout)

    def refused(self, line: str, code: int) -> str:
        """The one line on the error output."""
        result = self.run(line, code)
        (told,) = result.stderr.splitlines()
        assert not result.stdout
        return told

    def pid(self, name: str) -> int | None:
        return PidFile(self.layout.pid_file(name)).pid()

    def pids(self) -> dict[str, int | None]:
        return {name: self.pid(name) for name in load(self.layout).names}

    def shard(self, name: str) -> Any:
        return self.json(f"shard get {name}")

    def until(self, name: str, wanted: Callable[[Any], bool]) -> Any:
        """The shard, once it is as wanted; a coordinator may be away meanwhile."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            result = CliRunner().invoke(
                main,
                ["shard", "get", name, "-o", "json"],
                env={"SHARDLOG_DIR": str(self.layout.directory)},
            )
            found = json.loads(result.stdout) if result.exit_code == 0 else None
            if found is not None and wanted(found):
                return found
            time.sleep(0.05)
        raise AssertionError(f"{name} is not as wanted: {result.output}")

    def append(self, shard: str, records: list[bytes]) -> None:
        with Client(load(self.layout).url) as client, client.producer(shard) as producer:
            producer.append_many(records)

    def read(self, shard: str) -> list[bytes]:
        with Client(load(self.layout).url) as client:
            return [record.value for record in client.read(shard)]


def answered(
    command: list[str], answer: str, environment: dict[str, str] | None = None
) -> tuple[int, str]:
    """The status of a command that asks at a terminal, and what it printed."""
    ours, theirs = os.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        done = subprocess.run(
            command,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            env=environment,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    return done.returncode, done.stdout


@contextmanager
def local_cluster(directory: Path) -> Iterator[LocalCluster]:
    """Whatever is running in it at the end is stopped."""
    cluster = LocalCluster(directory)
    try:
        yield cluster
    finally:
        stop_all(cluster.layout, 1000)
