"""`shardlog demo` when it does not end well.  The README's test lets it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from local.commands import SHARDLOG

from shardlog.cli import exit_codes
from shardlog.cli.main import main
from shardlog.demo.story import SHARD

pytestmark = pytest.mark.xdist_group("local clusters")


@contextmanager
def demo(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """In this directory, and not yet over."""
    environment = {**os.environ, "TMPDIR": str(directory), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [SHARDLOG, "demo", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def read_to(process: subprocess.Popen[str], act: str) -> None:
    """Until this act is over."""
    assert process.stdout is not None
    assert process.stderr is not None
    assert any(act in line for line in process.stdout), process.stderr.read()


def test_an_interrupted_demo_leaves_nothing(tmp_path: Path):
    with demo(tmp_path, "--seconds", "60") as process:
        read_to(process, "create a shard")
        processes = of_cluster(tmp_path)
        assert len(processes) == 7
        process.send_signal(signal.SIGINT)
        rest, told = process.communicate(timeout=60)
    assert process.returncode == exit_codes.INTERRUPTED
    assert told == "interrupted\n"
    assert rest.startswith("x append at speed")
    assert list(tmp_path.iterdir()) == []
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert not alive


def test_a_demo_whose_cluster_loses_records_fails_loudly(tmp_path: Path):
    """Somebody trims its shard behind its back, as soon as nothing else changes there."""
    with demo(tmp_path, "--seconds", "0.3") as process:
        read_to(process, "kill -9")
        (directory,) = tmp_path.iterdir()
        trimming = ["ops", "trim", SHARD, "2000", "--yes"]
        while CliRunner().invoke(main, trimming, env={"SHARDLOG_DIR": str(directory)}).exit_code:
            assert process.poll() is None
        rest, told = process.communicate(timeout=120)
    assert process.returncode == exit_codes.SAFETY, told
    assert "NOT AS ACKNOWLEDGED" in rest
    assert "FAILED: the log is not what was acknowledged." in rest
    assert re.search(r"acknowledged and lost: 0 to \d+\n", rest)
    assert list(tmp_path.iterdir()) == []


def of_cluster(directory: Path) -> list[psutil.Process]:
    """Whose command or environment names a directory in this one."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.exe() and Path(process.exe()) == Path(sys.executable).resolve():
                says = " ".join(
                    [*process.cmdline(), process.environ().get("SHARDLOG_NODE_DIRECTORY", "")]
                )
                if f"{directory}/shardlog-demo-" in says:
                    found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found
