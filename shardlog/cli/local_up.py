"""`shardlog local up` and `shardlog local down`."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import rich_click as click

from shardlog.cli.confirming import confirm
from shardlog.cli.local_cluster import directory_option, failures_as_exit_codes
from shardlog.cli.waiting import showing

if TYPE_CHECKING:
    from shardlog.local.cluster_file import Cluster
    from shardlog.local.layout import Layout

LOCK_TIMEOUT_MS = 120_000
GRACE_MS = 15_000


@click.command()
@click.option("--nodes", type=click.IntRange(1, 64), help="How many there shall be; more than "
              "there are adds some.  [default: 3, or as many as there are]")  # fmt: skip
@directory_option
@click.option("--foreground", is_flag=True, help="Stay, and stop everything at Ctrl-C.")
@click.option("--new-ports", is_flag=True, help="Choose other ports; only while nothing runs.")
@click.option("--timeout", type=click.FloatRange(min=0), default=60.0, show_default=True,
              metavar="SECONDS", help="How long to wait until all serve.")  # fmt: skip
def up(
    nodes: int | None, layout: Layout, foreground: bool, new_ports: bool, timeout: float
) -> None:
    """Start the cluster, or whatever of it is not running, and wait until all of it serves."""
    with failures_as_exit_codes():
        from shardlog.local.change_lock import changing
        from shardlog.local.starting import prepare, start_supervisor

        with changing(layout, LOCK_TIMEOUT_MS, make=True):
            cluster = prepare(layout, nodes, new_ports)
            start_supervisor(layout)
        _await(layout, cluster, timeout)
        count = len(cluster.nodes)
        click.echo(f"{count} node{'s' * (count != 1)} and the coordinator serve: {cluster.url}")
        if foreground:
            _stay(layout)


def _await(layout: Layout, cluster: Cluster, timeout: float) -> None:
    from shardlog.local.starting import await_ready

    names = cluster.names
    serving: set[str] = set()
    with showing("starting") as show:

        def tell(name: str, serves: bool) -> None:
            (serving.add if serves else serving.discard)(name)
            show(f"{len(serving)} of {len(names)} serve")

        await_ready(layout, cluster, int(timeout * 1000), tell)


def _stay(layout: Layout) -> None:
    """Until Ctrl-C, or until somebody else takes the cluster down."""
    from shardlog.local import taking_down
    from shardlog.local.change_lock import changing
    from shardlog.local.processes import await_supervisor_end
    from shardlog.local.starting import start_supervisor

    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        click.echo("Ctrl-C stops it")
        while taking_down.is_running(layout):
            await_supervisor_end(layout)
            if not layout.cluster_file.exists():
                break
            with changing(layout, LOCK_TIMEOUT_MS, make=False):
                if taking_down.is_running(layout):
                    start_supervisor(layout)
    except KeyboardInterrupt:
        with changing(layout, LOCK_TIMEOUT_MS, make=False):
            taking_down.stop_all(layout, GRACE_MS)
    click.echo("the cluster is down")


@click.command()
@directory_option
@click.option("--delete", is_flag=True, help="Delete it too: all shards and all records.")
@click.option("--yes", is_flag=True, help="Do not ask before deleting.")
@click.option("--grace", type=click.FloatRange(min=0), default=15.0, show_default=True,
              metavar="SECONDS", help="Who has not stopped by then is killed.")  # fmt: skip
def down(layout: Layout, delete: bool, yes: bool, grace: float) -> None:
    """Stop the cluster; `shardlog local up` goes on with it."""
    with failures_as_exit_codes():
        from shardlog.local import taking_down
        from shardlog.local.change_lock import changing

        taking_down.require_cluster(layout)
        if delete and not yes:
            confirm(f"Delete the cluster in {layout.directory} with all its records?")
        with changing(layout, LOCK_TIMEOUT_MS, make=False):
            for name in taking_down.stop_all(layout, int(grace * 1000)):
                click.echo(f"{name} did not stop, and was killed", err=True)
            if delete:
                taking_down.delete(layout)
    click.echo("the cluster is deleted" if delete else "the cluster is down")
