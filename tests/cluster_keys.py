"""A key for clusters of tests, and one that is not theirs."""

from __future__ import annotations

import base64
from pathlib import Path

from shardlog.transport.cluster_key import ClusterKey

SECRET = bytes(range(32))
KEY = ClusterKey(SECRET)
OTHER_KEY = ClusterKey(SECRET[::-1])


def key_file(directory: Path) -> str:
    """`KEY` as a file, for processes."""
    path = directory / "cluster.key"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        path.touch(0o600)
        path.write_bytes(base64.b64encode(SECRET) + b"\n")
    return str(path)
