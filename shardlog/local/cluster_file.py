"""`cluster.json`: which nodes a cluster on one machine has, and where everybody listens.

Ports are chosen once, when a node is added, and kept, so that whoever has an address may keep it
over restarts.  They are taken from below the range that the system hands out to outgoing
connections: one of these could sit on a port while its owner restarts.
"""

from __future__ import annotations

import errno
import json
import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shardlog.local.atomic_file import write_atomically
from shardlog.local.failures import BadClusterFile, NoCluster, PortTaken, UnusableDirectory
from shardlog.local.layout import COORDINATOR, Layout

FORMAT = 1
HOST = "127.0.0.1"
PORTS = range(15_000, 32_000)
WELL_KNOWN_PORT = 7300
"""Of the coordinator that is found without being told where, if it is free: easy to remember."""


@dataclass(frozen=True, slots=True)
class NodePlace:
    """host:port of each plane."""

    name: str
    data: str
    control: str
    http: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """`coordinator` is host:port of the directory."""

    coordinator: str
    nodes: tuple[NodePlace, ...]

    @property
    def url(self) -> str:
        return f"http://{self.coordinator}"

    @property
    def names(self) -> list[str]:
        return [COORDINATOR, *(node.name for node in self.nodes)]

    def addresses(self) -> dict[str, list[str]]:
        """All that a process listens on, by its name."""
        nodes = {node.name: [node.data, node.control, node.http] for node in self.nodes}
        return {COORDINATOR: [self.coordinator], **nodes}


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


# --- making --------------------------------------------------------------------------------------


def new_cluster(nodes: int, coordinator_port: int | None = None) -> Cluster:
    """The coordinator gets another port if that one is taken."""
    ports = _free_ports(set())
    coordinator = f"{HOST}:{coordinator_port}"
    if coordinator_port is None or not is_free(coordinator):
        coordinator = f"{HOST}:{next(ports)}"
    return _extended(Cluster(coordinator, ()), nodes, ports)


def with_nodes(cluster: Cluster, nodes: int) -> Cluster:
    """The same cluster with more nodes."""
    taken = {port_of(each) for places in cluster.addresses().values() for each in places}
    return _extended(cluster, nodes, _free_ports(taken))


def _extended(cluster: Cluster, nodes: int, ports: Iterator[int]) -> Cluster:
    added = (
        NodePlace(f"node-{number}", *(f"{HOST}:{next(ports)}" for _ in range(3)))
        for number in range(len(cluster.nodes) + 1, nodes + 1)
    )
    return Cluster(cluster.coordinator, (*cluster.nodes, *added))


def _free_ports(taken: set[int]) -> Iterator[int]:
    while True:
        port = random.choice(PORTS)
        if port not in taken and is_free(f"{HOST}:{port}"):
            taken.add(port)
            yield port


def is_free(address: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port_of(address)))
        except OSError as failure:
            if failure.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
        return True


def require_free(name: str, addresses: list[str]) -> None:
    for address in addresses:
        if not is_free(address):
            raise PortTaken(name, address)


# --- reading and writing -------------------------------------------------------------------------


def save(layout: Layout, cluster: Cluster) -> None:
    nodes = [
        {"name": node.name, "data": node.data, "control": node.control, "http": node.http}
        for node in cluster.nodes
    ]
    text = json.dumps({"format": FORMAT, "coordinator": cluster.coordinator, "nodes": nodes})
    try:
        write_atomically(layout.cluster_file, text + "\n", durable=True)
    except OSError as failure:
        raise UnusableDirectory(str(layout.directory), failure.strerror or str(failure)) from None


def load(layout: Layout) -> Cluster:
    path = layout.cluster_file
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise NoCluster(str(layout.directory)) from None
    except (OSError, UnicodeDecodeError) as failure:
        raise BadClusterFile(str(path), f"cannot be read: {failure}") from failure
    try:
        return _understood(json.loads(text))
    except (ValueError, KeyError, TypeError) as failure:
        why = f"is no cluster file of format {FORMAT} ({failure!s:.80})"
        raise BadClusterFile(str(path), why) from failure


def _understood(found: Any) -> Cluster:
    if found["format"] != FORMAT:
        raise ValueError(f"format {found['format']}")
    nodes = tuple(
        NodePlace(*(_text(each[key]) for key in ("name", "data", "control", "http")))
        for each in found["nodes"]
    )
    cluster = Cluster(_text(found["coordinator"]), nodes)
    for addresses in cluster.addresses().values():
        for address in addresses:
            port_of(address)
    return cluster


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value
