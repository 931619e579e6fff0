"""Scripts in processes of their own: with small volumes, few descriptors, a sudden end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(TESTS)}


def run(script: str, *arguments: str) -> list[str]:
    return _lines([sys.executable, "-c", script, *arguments])


def run_mounted(script: str, base: Path, size: str = "1m") -> list[str]:
    """With a small tmpfs at `base`, in a mount namespace of its own: nobody else sees it."""
    root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    space = ["unshare", "--mount", *root]
    mount = f"mount -t tmpfs -o size={size} tmpfs {base}"
    if subprocess.run([*space, "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("needs a mount namespace: run as root, or allow user namespaces")
    inside = f'{mount} && exec "$@"'
    return _lines([*space, "sh", "-c", inside, "sh", sys.executable, "-c", script, str(base)])


def _lines(command: list[str]) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
