"""What the forge runs is valid."""

from __future__ import annotations

import subprocess

from e2e.binaries import binary
from e2e.images import ROOT


def test_workflows_are_valid():
    files = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
    command = [binary("actionlint"), *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert files
