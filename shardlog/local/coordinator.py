"""The coordinator of a cluster on one machine, as a process.

It remembers nothing that matters: shards and wanted numbers stand in the metadata store, addresses
in the cluster's file.  So it may be killed at any moment, and the next one goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time

import uvloop
from aiohttp import web

from shardlog.coordinator.calls import NodeControl
from shardlog.coordinator.host import CoordinatorHost
from shardlog.local.administration import Administration
from shardlog.local.api import application
from shardlog.local.cluster_file import HOST, load, port_of
from shardlog.local.failures import LocalFailure
from shardlog.local.journal import Journal
from shardlog.local.layout import COORDINATOR, Layout
from shardlog.local.nodes import Nodes
from shardlog.local.supervisor import log_line
from shardlog.local.wanted import WantedReplicas
from shardlog.metadata.failures import MetadataFailure
from shardlog.metadata.sqlite import SqliteStore
from shardlog.process.http_port import runner_of
from shardlog.transport.cluster_key import BadClusterKey, ClusterKey
from shardlog.transport.control import ControlClient, ControlLimits

STOP_GRACE_MS = 1000
UNUSABLE = 2


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


async def coordinate(layout: Layout, port: int | None) -> None:
    """Until a signal ends it; at `port`, or where the cluster's file says."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    cluster, nodes = load(layout), Nodes(layout)
    key = ClusterKey.read(str(layout.cluster_key))
    store = await SqliteStore.open(layout.metadata)
    client = ControlClient(ControlLimits(), None, key)
    control = NodeControl(
        client,
        nodes.control_address,
        nodes.data_address,
        lambda node, _: log_line(f"{node} refuses this coordinator's key"),
    )
    host = CoordinatorHost(COORDINATOR, store, control, now_ms)
    wanted = WantedReplicas(store)
    administration = Administration(
        host,
        control,
        wanted,
        nodes=lambda: list(nodes.places),
        alive=lambda: [node for node in nodes.places if node in nodes.alive],
    )
    runner = runner_of(application(administration, nodes, log_line))
    await runner.setup()
    try:
        async with asyncio.TaskGroup() as group:
            parts = (host, wanted, nodes, administration, Journal(host.shards, log_line))
            tasks = [group.create_task(each.run()) for each in parts]
            await host.begun.wait()
            await wanted.begun.wait()
            port = port or port_of(cluster.coordinator)
            await web.TCPSite(runner, HOST, port, shutdown_timeout=STOP_GRACE_MS / 1000).start()
            log_line(f"directory and commands at http://{HOST}:{port}")
            await stop.wait()
            for task in tasks:
                task.cancel()
    finally:
        await runner.cleanup()
        await client.close()
        await store.close()
    log_line("stopped")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m shardlog.local.coordinator")
    parser.add_argument("--dir", required=True)
    parser.add_argument("--port", type=int, help="another one, for a second coordinator")
    arguments = parser.parse_args()
    try:
        uvloop.run(coordinate(Layout.of(arguments.dir), arguments.port))
    except* (LocalFailure, MetadataFailure, BadClusterKey, OSError) as failures:
        for failure in failures.exceptions:
            log_line(f"cannot go on: {failure}")
        sys.exit(UNUSABLE)


if __name__ == "__main__":
    main()
