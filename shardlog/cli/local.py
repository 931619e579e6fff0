"""`shardlog local`: a cluster on this machine.  The larger commands have modules of their own."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import rich_click as click

from shardlog.cli.local_cluster import (
    complete_process,
    directory_option,
    failures_as_exit_codes,
)
from shardlog.cli.local_logs import logs
from shardlog.cli.local_status import status
from shardlog.cli.local_up import down, up

if TYPE_CHECKING:
    from shardlog.local.layout import Layout

name_argument = click.argument("name", shell_complete=complete_process)


@click.group()
def local() -> None:
    """Run a cluster on this machine: nodes, a coordinator, and nothing else.

    Its processes are started again when they end, and everything in it survives kill -9: `shardlog
    local up` goes on where it was.
    """


@local.command()
@name_argument
@directory_option
def kill(name: str, layout: Layout) -> None:
    """Kill a process (-9), to see what happens: it is started again at once."""
    _signal(layout, name, signal.SIGKILL)
    click.echo(f"{name} is killed")


@local.command()
@name_argument
@directory_option
def pause(name: str, layout: Layout) -> None:
    """Stop a process where it is (SIGSTOP), as a machine does that hangs."""
    _signal(layout, name, signal.SIGSTOP)
    click.echo(f"{name} is paused: `shardlog local resume {name}` lets it go on")


@local.command()
@name_argument
@directory_option
def resume(name: str, layout: Layout) -> None:
    """Let a paused process go on."""
    _signal(layout, name, signal.SIGCONT)
    click.echo(f"{name} goes on")


def _signal(layout: Layout, name: str, number: signal.Signals) -> None:
    with failures_as_exit_codes():
        from shardlog.local.processes import signal_process

        signal_process(layout, name, number)


local.add_command(up)
local.add_command(down)
local.add_command(status)
local.add_command(logs)
