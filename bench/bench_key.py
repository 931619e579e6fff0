"""The key of clusters that are measured: known to everybody, and so no secret."""

from __future__ import annotations

import base64
from pathlib import Path

from shardlog.transport.cluster_key import ClusterKey

SECRET = bytes(32)
KEY = ClusterKey(SECRET)


def key_file(directory: Path | str) -> str:
    """`KEY` as a file in this directory, for processes."""
    path = Path(directory) / "cluster.key"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o600)
    path.write_bytes(base64.b64encode(SECRET))
    return str(path)
