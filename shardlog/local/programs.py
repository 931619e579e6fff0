"""The programs of a cluster on one machine: how each is started."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec

from shardlog.local.cluster_file import HOST, Cluster, NodePlace, port_of
from shardlog.local.failures import NotInstalled
from shardlog.local.layout import COORDINATOR, Layout

NODE_PREFIX = "SHARDLOG_NODE_"
NEEDED = ("grpc", "grpc_health", "uvloop", "shardlog_node")


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    command: tuple[str, ...]
    environment: dict[str, str]


def require_installed() -> None:
    for module in NEEDED:
        if find_spec(module) is None:
            raise NotInstalled(module)


def programs(layout: Layout, cluster: Cluster) -> list[Program]:
    """In the order in which they are started: a coordinator without nodes only waits."""
    return [*(_node(layout, each) for each in cluster.nodes), _coordinator(layout)]


def supervisor_command(layout: Layout) -> tuple[str, ...]:
    return _python("shardlog.local.supervisor", layout)


def _coordinator(layout: Layout) -> Program:
    return Program(COORDINATOR, _python("shardlog.local.coordinator", layout), _inherited())


def _python(module: str, layout: Layout) -> tuple[str, ...]:
    return (sys.executable, "-m", module, "--dir", str(layout.directory))


def _node(layout: Layout, place: NodePlace) -> Program:
    settings = {
        "NAME": place.name,
        "DIRECTORY": str(layout.volume(place.name)),
        "PLAIN": "true",
        "CLUSTER_KEY_FILE": str(layout.cluster_key),
        "LOG_FORMAT": "json",
    }
    for plane in ("data", "control", "http"):
        settings[f"{plane.upper()}_HOST"] = HOST
        settings[f"{plane.upper()}_PORT"] = str(port_of(getattr(place, plane)))
    ours = {NODE_PREFIX + name: value for name, value in settings.items()}
    command = (sys.executable, "-m", "shardlog_node.main")
    return Program(place.name, command, {**_inherited(), **ours})


def _inherited() -> dict[str, str]:
    """Settings of a node that somebody has in the environment would be meant for all of them.

    Those that say who a node is and where are replaced; the others are taken over on purpose.
    """
    return {**os.environ, "PYTHONUNBUFFERED": "1"}
