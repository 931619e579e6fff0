"""What the commands of `kubectl shardlog` have in common: arguments, completion, and waiting."""

from __future__ import annotations

import time
from typing import Any

import rich_click as click
from click.shell_completion import CompletionItem

from shardlog.cli.failures import ClusterRefused, ClusterUnavailable
from shardlog.cli.kubectl_call import NODES, SHARDS, Kubectl, kubectl_of, named

Json = Any
LOOK_S = 0.5


def complete_shard(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return completed(ctx, incomplete, SHARDS)


def complete_node(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return completed(ctx, incomplete, "pods", "-l", NODES)


def completed(ctx: click.Context, incomplete: str, *what: str) -> list[CompletionItem]:
    """Names of objects, as `kubectl get` takes them."""
    found = named(kubectl_of(ctx), *what)
    return [CompletionItem(each) for each in found if each.startswith(incomplete)]


shard_argument = click.argument("shard", shell_complete=complete_shard)
output_option = click.option(
    "-o", "--output", type=click.Choice(("table", "json", "yaml")), default="table",
    show_default=True, help="For a person, or for a program.",
)  # fmt: skip
wait_option = click.option(
    "--wait/--no-wait", default=True, show_default=True, help="Wait until it is done."
)
timeout_option = click.option(
    "--timeout",
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="No longer than this.",
)


def seen_through(kubectl: Kubectl, kind: str, name: str, timeout_s: float) -> Json:
    """The object, once its phase is Succeeded; what is on the way is told on the error output."""
    deadline = time.monotonic() + timeout_s
    told = ""
    while True:
        found = kubectl.get(kind, name)
        status = found.get("status") or {}
        message = f"{status.get('phase', 'Pending')}: {status.get('message', 'nobody took it up')}"
        match status.get("phase"):
            case "Succeeded":
                return found
            case "Failed":
                raise ClusterRefused(f"{name}: {status.get('message', '')}", "Failed")
        if message != told:
            told = message
            click.echo(f"{name}: {message}", err=True)
        if time.monotonic() >= deadline:
            raise ClusterUnavailable(f"{name}: not within {timeout_s:g} s, now {message}")
        time.sleep(LOOK_S)
