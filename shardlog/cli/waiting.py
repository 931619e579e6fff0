"""Waiting for a shard to become what was asked for, and showing how it goes.

On a terminal one line that moves; elsewhere a line for each change, on the error output.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import rich_click as click

from shardlog.cli.cluster import Cluster, Json
from shardlog.cli.failures import ClusterRefused, ClusterUnavailable

LOOK_MS = 100


def wait_until(
    cluster: Cluster, name: str, done: Callable[[Json], bool], timeout_s: float, what: str
) -> Json:
    """The shard as it is then; None if it is gone.  A coordinator that is away may come back."""
    deadline = time.monotonic() + timeout_s
    told = ""
    with showing(what) as show:
        while True:
            shard, text = _look(cluster, name)
            if text is None and done(shard):
                return shard
            text = text or describe(shard)
            if text != told:
                told = text
                show(text)
            if time.monotonic() >= deadline:
                raise ClusterUnavailable(f"{what}: not within {timeout_s:g} s, now {text}")
            time.sleep(LOOK_MS / 1000)


def _look(cluster: Cluster, name: str) -> tuple[Json, str | None]:
    try:
        return cluster.shard(name), None
    except ClusterUnavailable as failure:
        return None, failure.message
    except ClusterRefused as refusal:
        if refusal.kind != "NoSuchShard":
            raise
        return None, None


def describe(shard: Json) -> str:
    """Where a shard stands, in a few words."""
    if shard is None:
        return "gone"
    if shard["halted"]:
        return f"halted: {shard['halted']}"
    count, wanted = len(shard["ensemble"]), shard["replicas"]
    text = f"{shard['status']}, {count} replicas"
    if count != wanted:
        text += f" of {wanted} wanted" if count < wanted else f", {wanted} wanted"
    more = (describe_change(shard), describe_waiting(shard))
    return ", ".join([text, *(each for each in more if each)])


def describe_change(shard: Json) -> str:
    change = shard["reconfiguration"]
    if not change:
        return ""
    nodes = change["new"] or change["old"]
    if change["operation"] == "swap":
        nodes = f"{change['old']} for {change['new']}"
    return f"{change['operation']} {nodes}: {change['phase']}"


def describe_waiting(shard: Json) -> str:
    """Which entry, on which nodes, an election or a repair waits for."""
    waiting = shard["waiting"]
    if not waiting:
        return ""
    entry = waiting["entry"]
    text = f"waits: {waiting['reason']}"
    if entry:
        text += f": entry {entry['epoch']}:{entry['offset']}"
    return text + (f" on {', '.join(waiting['nodes'])}" if waiting["nodes"] else "")


@contextmanager
def showing(what: str) -> Iterator[Callable[[str], None]]:
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(what) as status:
            yield lambda text: status.update(f"{what}: {text}")
    else:
        yield lambda text: click.echo(f"{what}: {text}", err=True)
