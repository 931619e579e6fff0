"""Parts of the end-to-end harness that need no Kubernetes: real processes, and what is missing."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from e2e import images
from e2e.binaries import CannotBuild
from e2e.processes import CannotStart, start

ENDLESS = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)"]
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("here", flush=True)
time.sleep(600)
"""
PARENT = """
import sys
from pathlib import Path
from e2e.processes import start
process = start("child", [sys.executable, "-c", "import time; time.sleep(600)"], Path(sys.argv[1]))
print(process.running.pid, flush=True)
sys.stdin.read()
"""


def has_begun(log: Path) -> bool:
    return "here" in log.read_text()


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def test_a_process_is_waited_for_and_stopped(tmp_path: Path):
    process = start("endless", ENDLESS, tmp_path)
    process.await_ready(lambda: has_begun(process.log))
    process.stop()
    assert process.running.returncode == -15
    process.stop()


def test_one_that_will_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("e2e.processes.STOP_TIMEOUT_S", 0.2)
    process = start("stubborn", [sys.executable, "-c", STUBBORN], tmp_path)
    process.await_ready(lambda: has_begun(process.log))
    process.stop()
    assert process.running.returncode == -9


def test_one_that_ends_early_is_told_with_its_last_line(tmp_path: Path):
    script = "import sys; print('first'); sys.exit('port 80 is taken')"
    process = start("early", [sys.executable, "-c", script], tmp_path)
    with pytest.raises(CannotStart) as failure:
        process.await_ready(lambda: False)
    assert str(failure.value) == "early ended (1): port 80 is taken"


def test_one_that_never_serves_is_told(tmp_path: Path):
    process = start("endless", ENDLESS, tmp_path)
    with pytest.raises(CannotStart, match="endless is not ready: "):
        process.await_ready(lambda: False, timeout_s=0.2)
    process.stop()


def test_a_killed_run_leaves_no_process(tmp_path: Path):
    root = Path(__file__).parent.parent
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdin
    assert parent.stdout
    child = int(parent.stdout.readline())
    pidfd = os.pidfd_open(child)
    parent.kill()
    parent.wait()
    parent.stdin.close()
    parent.stdout.close()
    assert select.select([pidfd], [], [], 60.0)[0]
    os.close(pidfd)
    assert is_gone(child)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing on PATH but what is put into this directory."""
    directory = tmp_path / "programs"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    return directory


def provide(programs: Path, *names: str, script: str = "exit 0") -> None:
    for name in names:
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)


def test_no_builder(programs: Path):
    provide(programs, "docker", script="exit 1")
    with pytest.raises(CannotBuild, match="neither docker nor buildah works here: apt-get install"):
        images.builder()


def test_builders(programs: Path):
    provide(programs, "buildah")
    assert isinstance(images.builder(), images.Buildah)
    provide(programs, "docker")
    assert isinstance(images.builder(), images.Docker)


def test_a_step_that_fails_is_one_line(programs: Path, tmp_path: Path):
    provide(programs, "buildah", script="echo long story >&2; echo no space left >&2; exit 1")
    with pytest.raises(CannotBuild) as failure:
        images.Buildah().build(tmp_path, tmp_path / "Dockerfile", "image")
    assert str(failure.value) == "buildah build: no space left"
