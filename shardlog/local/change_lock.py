"""One `up` or `down` at a time for each cluster; the others wait for their turn."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from shardlog.local.failures import AnotherIsBusy, NoCluster, UnusableDirectory
from shardlog.local.layout import Layout

LOOK_MS = 50


@contextmanager
def changing(layout: Layout, timeout_ms: int, *, make: bool) -> Iterator[None]:
    """Holds the lock of the cluster's directory; `make`: makes the directory too."""
    deadline = time.monotonic() + timeout_ms / 1000
    while (lock := _locked(layout, make)) is None:
        if time.monotonic() >= deadline:
            raise AnotherIsBusy(
                f"{layout.directory}: another `shardlog local up` or `down` is at work"
            )
        time.sleep(LOOK_MS / 1000)
    try:
        yield
    finally:
        os.close(lock)


def _locked(layout: Layout, make: bool) -> int | None:
    """None if somebody else has it, or has just removed the file with the cluster."""
    try:
        if make:
            layout.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            layout.directory.chmod(0o700)  # one from before, or somebody's own
        elif not layout.cluster_file.exists():
            raise NoCluster(str(layout.directory))
        lock = os.open(layout.change_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as failure:
        raise UnusableDirectory(str(layout.directory), failure.strerror or "unusable") from failure
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), os.stat(layout.change_lock)):
            return lock
    except (BlockingIOError, FileNotFoundError):
        os.close(lock)
        return None
    os.close(lock)
    return None
