"""`up`: can be repeated, after any death.

It writes down what there shall be, sees that a supervisor runs, and waits until everybody serves.
Whatever it finds running already stays as it is.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException

from shardlog.local.cluster_file import (
    WELL_KNOWN_PORT,
    Cluster,
    load,
    new_cluster,
    require_free,
    save,
    with_nodes,
)
from shardlog.local.failures import (
    CannotChange,
    NoCluster,
    NotReady,
    UnusableDirectory,
)
from shardlog.local.layout import COORDINATOR, SUPERVISOR, Layout
from shardlog.local.pid_file import PidFile, start_orphan
from shardlog.local.processes import read_tally
from shardlog.local.programs import require_installed, supervisor_command
from shardlog.transport.cluster_key import make_key_file

NODES_DEFAULT = 3
NODES_MAX = 64
DEATHS_MAX = 2
"""Who ends so often while it is waited for will not come up."""
LOOK_MS = 50
PROBE_TIMEOUT_MS = 1000

Tell = Callable[[str, bool], None]
"""Hears of each process by name, when it serves and when it no longer does."""


def prepare(layout: Layout, nodes: int | None, new_ports: bool = False) -> Cluster:
    """Write down what there shall be; with the change lock held."""
    require_installed()
    cluster = _wanted(layout, nodes, new_ports)
    try:
        for directory in (layout.nodes, layout.logs, layout.run):
            directory.mkdir(exist_ok=True)
        make_key_file(layout.cluster_key)
    except OSError as failure:
        raise UnusableDirectory(str(layout.directory), failure.strerror or "unusable") from failure
    save(layout, cluster)
    for name, addresses in cluster.addresses().items():
        if not PidFile(layout.pid_file(name)).is_held():
            require_free(name, addresses)
    return cluster


def _wanted(layout: Layout, nodes: int | None, new_ports: bool) -> Cluster:
    try:
        cluster = load(layout)
    except NoCluster:
        return new_cluster(nodes or NODES_DEFAULT, WELL_KNOWN_PORT if layout.is_in_home else None)
    if nodes is not None and nodes < len(cluster.nodes):
        raise CannotChange(f"there are {len(cluster.nodes)} nodes, and a cluster does not shrink")
    wanted = nodes or len(cluster.nodes)
    if new_ports:
        names = [*cluster.names, SUPERVISOR]
        if any(PidFile(layout.pid_file(name)).is_held() for name in names):
            raise CannotChange("ports cannot be changed while the cluster runs")
        return new_cluster(wanted)
    return with_nodes(cluster, wanted)


def start_supervisor(layout: Layout) -> bool:
    """Whether one had to be started."""
    held = PidFile(layout.pid_file(SUPERVISOR)).take()
    if held is None:
        return False
    layout.tally.unlink(missing_ok=True)
    start_orphan(held, supervisor_command(layout), os.environ, layout.log(SUPERVISOR))
    return True


def await_ready(layout: Layout, cluster: Cluster, timeout_ms: int, tell: Tell) -> None:
    """Until all nodes and the directory serve."""
    deadline = time.monotonic() + timeout_ms / 1000
    before = starts(layout)
    serving: set[str] = set()
    names = sorted(cluster.names, key=lambda name: name == COORDINATOR)
    while True:
        for name in names:
            serves = is_serving(cluster, name)
            if serves != (name in serving):
                serving ^= {name}
                tell(name, serves)
        absent = [name for name in names if name not in serving]
        if not absent:
            return
        if time.monotonic() >= deadline:
            raise NotReady(_why(layout, absent[0], f"does not serve after {timeout_ms // 1000} s"))
        now = starts(layout)
        for name in absent:
            if now.get(name, 0) - before.get(name, 0) > DEATHS_MAX:
                raise NotReady(_why(layout, name, "ends again and again"))
        time.sleep(LOOK_MS / 1000)


def is_serving(cluster: Cluster, name: str) -> bool:
    """The coordinator serves when it has heard from all nodes: shards can be put on them then."""
    for node in cluster.nodes:
        if node.name == name:
            return _asked(node.http, "/readyz") is not None
    answer = _asked(cluster.coordinator, "/v1/nodes")
    if answer is None:
        return False
    alive = {node["name"] for node in json.loads(answer)["nodes"] if node["alive"]}
    return alive >= {node.name for node in cluster.nodes}


def _asked(address: str, path: str) -> bytes | None:
    connection = HTTPConnection(address, timeout=PROBE_TIMEOUT_MS / 1000)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.read() if answer.status == 200 else None
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()


def starts(layout: Layout) -> dict[str, int]:
    """How often the supervisor has started what."""
    return {name: count for name, (count, _) in read_tally(layout).items()}


def _why(layout: Layout, name: str, what: str) -> str:
    """With the last thing that the process said, which tells more than we know."""
    try:
        lines = layout.log(name).read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    said = f": {lines[-1].strip()[:300]}" if lines else ""
    return f"{name} {what}{said} (shardlog local logs {name})"
