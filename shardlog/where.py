"""Where the cluster is when nobody says: `SHARDLOG_CLUSTER`, else the cluster on this machine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import urlsplit

CLUSTER_VARIABLE = "SHARDLOG_CLUSTER"
DIRECTORY_VARIABLE = "SHARDLOG_DIR"
CLUSTER_FILE = "cluster.json"


def home_directory() -> Path:
    """Where the cluster on this machine is, unless it is said to be elsewhere."""
    return Path.home() / ".shardlog" / "local"


def default_directory() -> Path:
    """`SHARDLOG_DIR`, else `home_directory`."""
    found = os.environ.get(DIRECTORY_VARIABLE)
    return Path(found) if found else home_directory()


def cluster_url() -> str:
    """The address of the cluster; `LookupError` says why there is none."""
    if url := os.environ.get(CLUSTER_VARIABLE):
        return url
    path = default_directory() / CLUSTER_FILE
    try:
        return f"http://{json.loads(path.read_text(encoding='utf-8'))['coordinator']}"
    except (OSError, ValueError, KeyError, TypeError) as failure:
        raise LookupError(
            f"no cluster is given, {CLUSTER_VARIABLE} is not set, and there is none in "
            f"{path.parent}: `shardlog local up` makes one"
        ) from failure


def hint(url: str) -> str:
    """What to look at when a cluster on this machine does not answer; nothing for another one."""
    is_here = urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
    return " (`shardlog local status` shows what runs here)" if is_here else ""
