"""A real etcd for tests: the one on PATH, else one built from its Go module, once.

`SHARDLOG_TEST_ETCD` names another one, to try the suite with an older or a newer version:

    SHARDLOG_TEST_ETCD=/opt/etcd-v3.5.21/etcd pytest tests/metadata
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from e2e.binaries import CannotBuild, binary

OLDEST = (3, 5)


@cache
def etcd() -> Path:
    """Raises `CannotBuild` if there is none, and none can be built."""
    return _chosen() or _on_path() or binary("etcd")


@cache
def etcdctl() -> Path:
    return binary("etcdctl")


@cache
def etcdutl() -> Path:
    return binary("etcdutl")


@cache
def is_at_hand() -> bool:
    try:
        for program in (etcd, etcdctl, etcdutl):
            program()
    except CannotBuild:
        return False
    return True


def _chosen() -> Path | None:
    chosen = os.environ.get("SHARDLOG_TEST_ETCD")
    return Path(chosen) if chosen else None


def _on_path() -> Path | None:
    """Debian had an older one for long."""
    found = shutil.which("etcd")
    return Path(found) if found and version(Path(found)) >= OLDEST else None


def version(etcd: Path) -> tuple[int, int]:
    told = subprocess.run([etcd, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"etcd Version: (\d+)\.(\d+)", told)
    return (int(found[1]), int(found[2])) if found else (0, 0)
