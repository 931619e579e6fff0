"""`down`: everything that runs is stopped, by the supervisor if there is one, else from here."""

from __future__ import annotations

import shutil

from shardlog.local.failures import NoCluster, UnusableDirectory
from shardlog.local.layout import SUPERVISOR, Layout
from shardlog.local.pid_file import PidFile
from shardlog.local.stopping import close_all, stop_in_order, stop_processes
from shardlog.local.supervisor import STOP_GRACE_MS

SUPERVISOR_GRACE_MS = 3 * STOP_GRACE_MS


def require_cluster(layout: Layout) -> None:
    """It need not be readable: one that is damaged can be stopped and deleted too."""
    if not layout.cluster_file.exists():
        raise NoCluster(str(layout.directory))


def is_running(layout: Layout) -> bool:
    """Whether anybody is, with or without a supervisor."""
    return any(PidFile(path).is_held() for path in layout.run.glob("*.pid"))


def stop_all(layout: Layout, grace_ms: int) -> list[str]:
    """Whoever has a pid file; returns who had to be killed."""
    supervisor = _running(layout, [SUPERVISOR])
    killed = stop_processes(supervisor, SUPERVISOR_GRACE_MS)
    close_all(supervisor)
    rest = _running(layout, [path.stem for path in sorted(layout.run.glob("*.pid"))])
    killed += stop_in_order(rest, grace_ms)
    close_all(rest)
    return killed


def _running(layout: Layout, names: list[str]) -> dict[str, int]:
    """pidfds of those that run."""
    found = {name: PidFile(layout.pid_file(name)).open_process() for name in names}
    return {name: process for name, process in found.items() if process is not None}


def delete(layout: Layout) -> None:
    """Everything that a cluster made, and nothing else that may be in the directory."""
    for path in layout.everything():
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as failure:
            raise UnusableDirectory(str(path), failure.strerror or str(failure)) from failure
    if not any(layout.directory.iterdir()):
        layout.directory.rmdir()
