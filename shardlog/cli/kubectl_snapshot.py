"""`kubectl shardlog snapshot`: asks for snapshots of shards, and tells of those there are.

It only ever writes ShardSnapshots; the operator does the rest.  What is at a destination, whoever
put it there, is what `shardlog snapshot list` tells.
"""

from __future__ import annotations

import json
import re
from typing import Any

import rich_click as click
from click.shell_completion import CompletionItem

from shardlog.cli.confirming import confirm
from shardlog.cli.kubectl_arguments import (
    complete_node,
    complete_shard,
    completed,
    output_option,
    seen_through,
    shard_argument,
    wait_option,
)
from shardlog.cli.kubectl_call import API_VERSION, SNAPSHOTS, kubectl_of, kubectl_options
from shardlog.cli.output import is_for_programs, print_table, print_value

Json = Any
NAME_MAX = 52
RANDOM_CHARACTERS = 6
COLUMNS = "name shard phase start> end> records> bytes> written> completed message"
_DAYS = re.compile(r"(\d{1,4})d")

timeout_option = click.option(
    "--timeout", default=600.0, show_default=True, metavar="SECONDS", help="No longer than this."
)


def _complete_snapshot(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return completed(ctx, incomplete, SNAPSHOTS)


def _complete_claim(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return completed(ctx, incomplete, "persistentvolumeclaims")


def _complete_secret(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return completed(ctx, incomplete, "secrets")


@click.group()
def snapshot() -> None:
    """Keep copies of shards outside of the cluster."""


@snapshot.command()
@shard_argument
@click.argument("url", metavar="URL")
@click.option("--name", metavar="NAME", help="Of the ShardSnapshot.  [default: SHARD-RANDOM]")
@click.option("--secret", shell_complete=_complete_secret, metavar="NAME",
              help="A Secret whose keys become environment variables: credentials.")  # fmt: skip
@click.option("--claim", shell_complete=_complete_claim, metavar="NAME",
              help="A volume claim, for file:///snapshots.")  # fmt: skip
@click.option("--node", shell_complete=complete_node, metavar="NAME",
              help="What this node has, leader or not, every byte of it read.")  # fmt: skip
@click.option("--keep", type=click.IntRange(min=1), metavar="N",
              help="Then delete all older ones but the last N, this one included.")  # fmt: skip
@click.option("--older-than", metavar="TIME",
              help="Then delete those that are older: 7d, 1h30m; --keep N are kept.")  # fmt: skip
@click.option("--deletion-policy", type=click.Choice(("Retain", "Delete")), default="Retain",
              show_default=True, help="What becomes of it with the ShardSnapshot.")  # fmt: skip
@output_option
@wait_option
@timeout_option
@kubectl_options
@click.pass_context
def create(
    ctx: click.Context,
    shard: str,
    url: str,
    name: str | None,
    secret: str | None,
    claim: str | None,
    node: str | None,
    keep: int | None,
    older_than: str | None,
    deletion_policy: str,
    output: str,
    wait: bool,
    timeout: float,
) -> None:
    """Take a snapshot of SHARD at URL, while everybody goes on.

    URL is s3://BUCKET/PREFIX, gs://…, az://…, or file:///snapshots with --claim.
    """
    destination = {"url": url, "secretName": secret, "claimName": claim}
    retention = {"keep": keep, "time": _hours(older_than)}
    spec = {
        "shard": shard,
        "destination": _given(destination),
        "node": node,
        "retention": _given(retention) or None,
        "deletionPolicy": deletion_policy,
    }
    meta = {"name": name} if name else {"generateName": _like(shard)}
    kubectl = kubectl_of(ctx)
    made = kubectl.create(
        {
            "apiVersion": API_VERSION,
            "kind": "ShardSnapshot",
            "metadata": meta,
            "spec": _given(spec),
        }
    )
    if wait:
        made = seen_through(kubectl, SNAPSHOTS, made["metadata"]["name"], timeout)
    _show(made, output)


def _given(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def _hours(time: str | None) -> str | None:
    """Days are not known to the API."""
    days = _DAYS.fullmatch(time or "")
    return f"{int(days[1]) * 24}h" if days else time


def _like(shard: str) -> str:
    return f"{shard[: NAME_MAX - RANDOM_CHARACTERS]}-"


def _show(made: Json, output: str) -> None:
    if is_for_programs(output):
        print_value(_short(made), output)
        return
    status = made.get("status") or {}
    phase, message = status.get("phase", "Pending"), status.get("message", "asked for")
    click.echo(f"{made['metadata']['name']}: {phase}: {message}")
    if status.get("manifest"):
        click.echo(status["manifest"])


def _short(body: Json) -> Json:
    return {
        "name": body["metadata"]["name"],
        "spec": body["spec"],
        "status": body.get("status") or {},
    }


@snapshot.command(name="list")
@click.argument("shard", required=False, shell_complete=complete_shard)
@output_option
@kubectl_options
@click.pass_context
def list_snapshots(ctx: click.Context, shard: str | None, output: str) -> None:
    """List ShardSnapshots, of SHARD or of all, the oldest first."""
    found = [
        each
        for each in kubectl_of(ctx).items(SNAPSHOTS)
        if shard is None or each["spec"]["shard"] == shard
    ]
    found.sort(key=lambda each: each["metadata"].get("creationTimestamp", ""))
    if is_for_programs(output):
        print_value({"snapshots": [_short(each) for each in found]}, output)
    else:
        print_table(COLUMNS, [_row(each) for each in found])


def _row(body: Json) -> tuple[object, ...]:
    status = body.get("status") or {}
    spans = status.get("range") or {}
    is_done = status.get("phase") == "Succeeded"
    return (
        body["metadata"]["name"], body["spec"]["shard"], status.get("phase", "Pending"),
        spans.get("start"), spans.get("end"), status.get("records"), status.get("bytes"),
        (status.get("written") or {}).get("bytes"), status.get("completedAt"),
        None if is_done else status.get("message"),
    )  # fmt: skip


@snapshot.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME…",
                shell_complete=_complete_snapshot)  # fmt: skip
@click.option("--data", is_flag=True, help="Delete the snapshots at their destination too.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@wait_option
@timeout_option
@kubectl_options
@click.pass_context
def delete(
    ctx: click.Context, names: tuple[str, ...], data: bool, yes: bool, wait: bool, timeout: float
) -> None:
    """Delete ShardSnapshots; one that is at work is stopped.

    What is at the destination stays, unless --data is given or its deletionPolicy is Delete.
    """
    if data and not yes:
        confirm(f"Delete what {', '.join(names)} have taken, for good?")
    kubectl = kubectl_of(ctx)
    for name in names:
        if data:
            policy = json.dumps({"spec": {"deletionPolicy": "Delete"}})
            kubectl.run("patch", SNAPSHOTS, name, "--type=merge", "-p", policy)
        waiting = [f"--timeout={timeout:g}s"] if wait else ["--wait=false"]
        kubectl.run("delete", SNAPSHOTS, name, *waiting)
        click.echo(f"{name}: deleted")
