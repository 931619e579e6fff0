"""Everything one would ask for after a failure, in one directory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from e2e.cluster.release import Release
from e2e.kubernetes import Refused

LOG_BYTES_MAX = 1 << 20
INSPECT = "for d in /var/lib/shardlog/volume/*/; do shardlog storage inspect $d 2>&1; done"


def collect(release: Release, shard: str) -> Path:
    """Events, objects, logs and what volumes hold; what cannot be had is said instead."""
    directory = Path(tempfile.mkdtemp(prefix=f"shardlog-e2e-{shard}-"))

    def keep(name: str, *arguments: str) -> None:
        (directory / name).write_text(_said(lambda: release.kubectl(*arguments)))

    keep("events.txt", "get", "events", "--sort-by=.lastTimestamp")
    keep("pods.txt", "get", "pods", "-o", "wide")
    keep("pods.yaml", "get", "pods", "-o", "yaml")
    keep("shards.yaml", "get", "shards,shardoperations,shardsnapshots,jobs", "-o", "yaml")
    keep("machines.yaml", "get", "nodes", "-o", "yaml")
    for name in _said(lambda: release.kubectl("get", "pods", "-o", "name")).split():
        if name.startswith("pod/"):
            file = name.removeprefix("pod/")
            keep(f"{file}.log", "logs", name, "--tail=2000")
            keep(f"{file}.previous.log", "logs", name, "--previous", "--tail=500")
            if "-node-" in name:
                keep(f"{file}.storage.txt", "exec", name, "--", "sh", "-c", INSPECT)
    for log in release.cluster.logs():
        end = log.read_bytes()[-LOG_BYTES_MAX:]
        (directory / f"{log.parent.name}-{log.name}").write_bytes(end)
    return directory


def _said(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except Refused as refusal:
        return f"{refusal}\n"
