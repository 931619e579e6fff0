"""The client within a command: where the cluster is, how long to wait, and how failures are told.

The client's own failures become one line and an exit code here, and nowhere else.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import rich_click as click
from click.exceptions import Exit

from shardlog.cli import exit_codes
from shardlog.cli.cluster import cluster_url, complete_shard
from shardlog.cli.failures import BadUsage, ClusterRefused, ClusterUnavailable, CommandFailed
from shardlog.where import CLUSTER_VARIABLE

F = TypeVar("F", bound=Callable[..., Any])


class BadInput(CommandFailed):
    """What was to be appended cannot be; what came before it is appended."""

    exit_code = exit_codes.INPUT


class DamagedLog(CommandFailed):
    """What nodes sent is not what was appended."""

    exit_code = exit_codes.DAMAGED


shard_argument = click.argument("shard", shell_complete=complete_shard)


def client_options(command: F) -> F:
    """Gives a command the arguments `url` and `timeout_ms`."""
    for option in reversed(
        (
            click.option(
                "--timeout",
                "timeout_ms",
                type=click.FloatRange(min=0, min_open=True),
                default=15.0,
                show_default=True,
                metavar="SECONDS",
                callback=_milliseconds,
                help="How long to wait for an answer of the cluster, failovers included.",
            ),
            click.option(
                "--cluster",
                "url",
                metavar="URL",
                envvar=CLUSTER_VARIABLE,
                callback=_located,
                help="http://HOST:PORT of the coordinator, or shardlog://HOST:PORT,… of nodes.  "
                f"[env: {CLUSTER_VARIABLE}; default: the cluster on this machine, see `shardlog "
                "local`]",
            ),
        )
    ):
        command = option(command)
    return command


def _milliseconds(ctx: click.Context, parameter: click.Parameter, seconds: float) -> int:
    return max(1, int(seconds * 1000))


def _located(ctx: click.Context, parameter: click.Parameter, url: str | None) -> str:
    """Runs also while a shell completes; nothing may fail then."""
    if ctx.resilient_parsing or url:
        return url or ""
    _require_running()
    return cluster_url(None)


def _require_running() -> None:
    """A cluster on this machine that is down needs not be waited for."""
    from shardlog.local.layout import SUPERVISOR, Layout
    from shardlog.local.pid_file import PidFile

    layout = Layout.of(None)
    names = [SUPERVISOR, *(path.stem for path in layout.run.glob("*.pid"))]
    held = any(PidFile(layout.pid_file(name)).is_held() for name in names)
    if layout.cluster_file.exists() and not held:
        raise ClusterUnavailable(
            f"the cluster in {layout.directory} is down: `shardlog local up` starts it"
        )


@contextmanager
def failures_as_exit_codes() -> Iterator[None]:
    from shardlog.client.failures import ClientFailure

    try:
        yield
    except ClientFailure as failure:
        raise command_failure(failure) from failure


def command_failure(failure: Exception, done: str = "") -> CommandFailed:
    """`done` is what has to be told beside it."""
    from shardlog.client import failures

    said = f"{failure}{done}".replace("\n", " ")
    if isinstance(failure, failures.InvalidRecord):
        return BadInput(said)
    if isinstance(failure, failures.InvalidArgument):
        return BadUsage(said)
    if isinstance(failure, failures.CorruptLog | failures.EntryLost | failures.UnreadableBatch):
        return DamagedLog(said)
    refusals = (failures.NoSuchShard, failures.OffsetTrimmed, failures.Refused)
    if isinstance(failure, refusals):
        return ClusterRefused(said, type(failure).__name__)
    return ClusterUnavailable(said)


@contextmanager
def until_pipe_closes() -> Iterator[None]:
    """Who reads our output and has enough, as `head` does, ends the command, and all is well."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _leave()


def leave_when_pipe_closes() -> None:
    """End the process when whoever reads our output has gone, though there is nothing to write."""
    try:
        output = sys.stdout.fileno()
    except OSError:  # no file at all
        return
    if stat.S_ISFIFO(os.fstat(output).st_mode):
        threading.Thread(target=_watch_pipe, args=(output,), daemon=True).start()


def _watch_pipe(output: int) -> None:
    watched = select.poll()
    watched.register(output, 0)  # only what is told in any case: that the other end is closed
    watched.poll()
    os._exit(exit_codes.OK)


def _leave() -> NoReturn:
    """What is still buffered must not meet the closed pipe again when the interpreter ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    raise Exit(exit_codes.OK)
