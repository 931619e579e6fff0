"""`kubectl shardlog report`: everything that helps to find out what went on, in one archive.

Secrets are never asked for.  What cannot be had is written down in the archive itself: a report
from a cluster in trouble is worth more than none.
"""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import rich_click as click

from shardlog import __version__
from shardlog.cli.failures import BadUsage
from shardlog.cli.kubectl_call import OPERATIONS, SELECTOR, SHARDS, SNAPSHOTS, Kubectl

KINDS = (
    SHARDS, OPERATIONS, SNAPSHOTS, "jobs", "events", "pods", "services", "endpointslices",
    "statefulsets", "deployments", "poddisruptionbudgets", "persistentvolumeclaims",
)  # fmt: skip


def write_report(kubectl: Kubectl, path: Path, log_lines: int) -> list[str]:
    """What could not be had."""
    try:
        with tarfile.open(path, "x:gz") as archive:
            missing = _fill(archive, kubectl, log_lines)
    except OSError as failure:
        raise BadUsage(f"{path}: {failure.strerror}") from failure
    return missing


def _fill(archive: tarfile.TarFile, kubectl: Kubectl, log_lines: int) -> list[str]:
    missing: list[str] = []

    def add(name: str, *command: str) -> str:
        try:
            text = kubectl.run(*command)
        except click.ClickException as failure:
            missing.append(f"{name}: {failure.format_message()}")
            return ""
        _add(archive, name, text)
        return text

    add("version.json", "version", "-o", "json")
    for kind in KINDS:
        add(f"objects/{kind.partition('.')[0]}.json", "get", kind, "-o", "json")
    add("crds.json", "get", "crd", SHARDS, OPERATIONS, SNAPSHOTS, "-o", "json")
    for pod in _names(add("pods.txt", "get", "pods", "-l", SELECTOR, "-o", "name")):
        tail = f"--tail={log_lines}"
        add(f"logs/{pod}.log", "logs", pod, "--all-containers", "--timestamps", tail)
        add(f"logs/{pod}.previous.log", "logs", pod, "--previous", "--timestamps", tail)
    told = {"shardlog": __version__, "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    _add(archive, "report.json", json.dumps(told | {"missing": missing}, indent=2))
    return missing


def _names(listed: str) -> Iterator[str]:
    return (line.partition("/")[2] for line in listed.split())


def _add(archive: tarfile.TarFile, name: str, text: str) -> None:
    data = text.encode()
    entry = tarfile.TarInfo(f"shardlog-report/{name}")
    entry.size, entry.mtime = len(data), int(time.time())
    archive.addfile(entry, io.BytesIO(data))
