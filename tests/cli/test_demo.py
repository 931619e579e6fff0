"""`shardlog demo` as a person sees it who changes their mind.  The README's test lets it finish."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from local.commands import SHARDLOG

from shardlog.cli import exit_codes

pytestmark = pytest.mark.xdist_group("local clusters")


def test_an_interrupted_demo_leaves_nothing(tmp_path: Path):
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [SHARDLOG, "demo", "--seconds", "60"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "create a shard" in line:
                break
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
