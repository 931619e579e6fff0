"""Benchmarks make the directory that they are given, or say in one line why they cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, *arguments),
        cwd=BENCH,
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )


def test_a_directory_is_made(tmp_path: Path):
    wanted = tmp_path / "not" / "there"
    done = ran("-c", f"from place import place; print(place({str(wanted)!r}))")
    assert done.stdout.strip() == str(wanted)
    assert wanted.is_dir()


@pytest.mark.parametrize(
    "command",
    [
        ("catchup.py",),
        ("limit.py",),
        ("node.py",),
        ("operator_scale.py",),
        ("public.py",),
        ("snapshot.py", "--directory"),
        ("storage.py",),
        ("storage_layout.py", "--directory"),
        ("storage_sync.py",),
    ],
    ids=lambda command: command[0],
)
def test_a_place_that_cannot_be_made_is_one_line(command: tuple[str, ...], tmp_path: Path):
    file = tmp_path / "file"
    file.touch()
    done = ran(*command, str(file / "below"))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(f"{file / 'below'}: Not a directory")
    assert "Traceback" not in done.stderr
