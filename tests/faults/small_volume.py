"""A node's volume that can be filled up: a small tmpfs in a mount namespace of its own.

The namespace is held open by a process that does nothing, so the volume outlives the node.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from faults.processes import Process

PIECE = bytes(1 << 16)


class SmallVolume:
    """`path` is where it is seen from outside."""

    def __init__(self, holder: int, mounted: Path) -> None:
        self._holder = holder
        self.path = Path(f"/proc/{holder}/root") / mounted.relative_to("/")
        self._ballast = self.path / "ballast"

    def keep(self, node: Process) -> None:
        """The node sees it from its next start on."""
        space = ["nsenter", "--target", str(self._holder), "--mount"]
        if os.geteuid():
            space += ["--user", "--preserve-credentials"]
        node.within(*space, "--")

    def fill(self) -> None:
        """Whatever room there is."""
        with self._ballast.open("ab", buffering=0) as file:
            try:
                while file.write(PIECE):
                    pass
            except OSError as failure:
                if failure.errno != errno.ENOSPC:
                    raise

    def make_room(self) -> None:
        self._ballast.unlink()


@contextmanager
def small_volume(mounted: Path, size_mib: int) -> Iterator[SmallVolume]:
    mounted.mkdir(parents=True, exist_ok=True)
    root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    mount = f"mount -t tmpfs -o size={size_mib}m tmpfs {mounted} && echo mounted && exec cat"
    holder = subprocess.Popen(
        ["unshare", "--mount", *root, "sh", "-c", mount],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        if not holder.stdout.readline():
            pytest.skip("needs a mount namespace: run as root, or allow user namespaces")
        yield SmallVolume(holder.pid, mounted)
        holder.kill()
