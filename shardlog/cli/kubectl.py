"""`kubectl shardlog`: how shards on Kubernetes are, and what a person may ask of them.

It only ever writes ShardOperations and ShardSnapshots, and deletes those that drain a node or are
named: the operator does the rest, and whoever comes later can read in them what was asked for.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import rich_click as click

from shardlog import __version__
from shardlog.cli.confirming import confirm
from shardlog.cli.failures import BadUsage, ClusterRefused
from shardlog.cli.kubectl_arguments import (
    complete_node,
    complete_shard,
    output_option,
    seen_through,
    shard_argument,
    timeout_option,
    wait_option,
)
from shardlog.cli.kubectl_call import (
    API_VERSION,
    LOGGING,
    OPERATIONS,
    Kubectl,
    kubectl_of,
    kubectl_options,
)
from shardlog.cli.kubectl_snapshot import snapshot
from shardlog.cli.main import ShardlogGroup
from shardlog.cli.output import is_for_programs, print_value

Json = Any
ENTRY = re.compile(r"(\d+)[:,](\d+)")


class PluginGroup(ShardlogGroup):
    """Exit codes as those of `shardlog`; the commands are all here."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self.commands.get(cmd_name)


@click.group(cls=PluginGroup, name="kubectl shardlog")
@click.version_option(__version__, prog_name="kubectl-shardlog")
def main() -> None:
    """Shards on Kubernetes.

    Exit status: 0 ok, 2 usage, 3 crash, 8 no answer or not in time, 9 refused, 130 interrupted.
    """


# --- looking -------------------------------------------------------------------------------------


@main.command()
@click.argument("shard", required=False, shell_complete=complete_shard)
@output_option
@kubectl_options
@click.pass_context
def status(ctx: click.Context, shard: str | None, output: str) -> None:
    """Show nodes and shards. With SHARD: its members, history, change and conditions."""
    from shardlog.cli.kubectl_status import show_all, show_one

    if shard is None:
        show_all(kubectl_of(ctx), output)
    else:
        show_one(kubectl_of(ctx), shard, output)


@main.command()
@click.argument("shard", required=False, shell_complete=complete_shard)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is logged from now on.")
@click.option("--tail", default=200, show_default=True, metavar="LINES", help="Of each pod.")
@kubectl_options
@click.pass_context
def logs(ctx: click.Context, shard: str | None, follow: bool, tail: int) -> None:
    """Show logs of operators and nodes. With SHARD: only what is about it."""
    arguments = ["logs", "-l", LOGGING, "--all-containers", "--prefix", f"--tail={tail}",
                 "--max-log-requests=100"]  # fmt: skip
    if follow:
        arguments.append("--follow")
    words = re.compile(rf"(?<![\w.-]){re.escape(shard)}(?![\w-]|\.\w)") if shard else None
    for line in kubectl_of(ctx).lines(*arguments):
        if words is None or words.search(line):
            click.echo(line, nl=False)


@main.command()
@click.option("--file", "path", type=click.Path(path_type=Path), help="Where to; a new file.")
@click.option("--tail", default=5000, show_default=True, metavar="LINES", help="Of each log.")
@kubectl_options
@click.pass_context
def report(ctx: click.Context, path: Path | None, tail: int) -> None:
    """Gather objects, events and logs into one .tar.gz, for whoever shall help."""
    from shardlog.cli.kubectl_report import write_report

    path = path or Path(time.strftime("shardlog-report-%Y%m%d-%H%M%S.tar.gz"))
    missing = write_report(kubectl_of(ctx), path, tail)
    for each in missing:
        click.echo(f"not in it: {each}", err=True)
    click.echo(str(path))


# --- asking --------------------------------------------------------------------------------------


def _like(name: str) -> Json:
    """The same may be asked for again: the API server makes the name its own."""
    return {"generateName": f"{name}-"}


def _ask(
    kubectl: Kubectl, meta: Json, spec: Json, output: str, wait: bool, timeout_s: float
) -> None:
    """Make the operation, and see it through."""
    body = {
        "apiVersion": API_VERSION,
        "kind": "ShardOperation",
        "metadata": meta,
        "spec": {key: value for key, value in spec.items() if value is not None},
    }
    made = kubectl.create(body)
    if wait:
        made = seen_through(kubectl, OPERATIONS, made["metadata"]["name"], timeout_s)
    _show(made, output)


def _show(operation: Json, output: str) -> None:
    if is_for_programs(output):
        kept = {key: operation.get(key) for key in ("metadata", "spec", "status")}
        print_value(kept, output)
        return
    status = operation.get("status") or {}
    name = operation["metadata"]["name"]
    click.echo(f"{name}: {status.get('phase', 'Pending')}: {status.get('message', 'asked for')}")


@main.command()
@shard_argument
@click.argument("node", shell_complete=complete_node)
@output_option
@wait_option
@timeout_option
@kubectl_options
@click.pass_context
def promote(
    ctx: click.Context, shard: str, node: str, output: str, wait: bool, timeout: float
) -> None:
    """Let NODE, a member of SHARD that has caught up, lead it."""
    spec = {"operation": "Promote", "shard": shard, "node": node}
    _ask(kubectl_of(ctx), _like(f"promote-{shard}"), spec, output, wait, timeout)


@main.command()
@shard_argument
@click.argument("old", shell_complete=complete_node)
@click.argument("new", required=False, shell_complete=complete_node)
@output_option
@wait_option
@timeout_option
@kubectl_options
@click.pass_context
def swap(
    ctx: click.Context,
    shard: str,
    old: str,
    new: str | None,
    output: str,
    wait: bool,
    timeout: float,
) -> None:
    """Replace OLD, a member of SHARD, by NEW, or by a node that the operator chooses."""
    spec = {"operation": "Swap", "shard": shard, "oldNode": old, "newNode": new}
    _ask(kubectl_of(ctx), _like(f"swap-{shard}"), spec, output, wait, timeout)


@main.command()
@shard_argument
@output_option
@wait_option
@timeout_option
@kubectl_options
@click.pass_context
def abort(ctx: click.Context, shard: str, output: str, wait: bool, timeout: float) -> None:
    """Give up the change of SHARD that is under way, and the rest of a scaling."""
    spec = {"operation": "Abort", "shard": shard}
    _ask(kubectl_of(ctx), _like(f"abort-{shard}"), spec, output, wait, timeout)


@main.command()
@click.argument("node", shell_complete=complete_node)
@output_option
@wait_option
@timeout_option
@kubectl_options
@click.pass_context
def drain(ctx: click.Context, node: str, output: str, wait: bool, timeout: float) -> None:
    """Move everything away from NODE, and keep it empty until `undrain`."""
    kubectl = kubectl_of(ctx)
    found = _drains(kubectl, node)
    if not found:
        spec = {"operation": "Drain", "node": node}
        _ask(kubectl, {"name": f"drain-{node}"}, spec, output, wait, timeout)
    elif wait:
        _show(seen_through(kubectl, OPERATIONS, found[0], timeout), output)
    else:
        _show(kubectl.get(OPERATIONS, found[0]), output)


@main.command()
@click.argument("node", shell_complete=complete_node)
@kubectl_options
@click.pass_context
def undrain(ctx: click.Context, node: str) -> None:
    """Let NODE host replicas again."""
    kubectl = kubectl_of(ctx)
    found = _drains(kubectl, node)
    if not found:
        raise ClusterRefused(f"{node} is not drained", "NotDrained")
    for name in found:
        kubectl.run("delete", OPERATIONS, name)
        click.echo(f"{name}: deleted")


def _drains(kubectl: Kubectl, node: str) -> list[str]:
    specs = {each["metadata"]["name"]: each["spec"] for each in kubectl.items(OPERATIONS)}
    return [
        name
        for name, spec in specs.items()
        if spec["operation"] == "Drain" and spec.get("node") == node
    ]


@main.command("accept-loss")
@shard_argument
@click.argument("entry", metavar="EPOCH:OFFSET")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@wait_option
@timeout_option
@kubectl_options
@click.pass_context
def accept_loss(
    ctx: click.Context,
    shard: str,
    entry: str,
    yes: bool,
    output: str,
    wait: bool,
    timeout: float,
) -> None:
    """Let SHARD go on without an entry that no node holds any more, as its status names it.

    Records that were acknowledged may be in it, and after it: they are gone then.
    """
    found = ENTRY.fullmatch(entry.strip("()").replace(" ", ""))
    if found is None:
        raise BadUsage(f"{entry!r:.80} is no entry: EPOCH:OFFSET, as `status {shard}` names it")
    if not yes:
        confirm(f"Acknowledged records of {shard} may be lost for good. Go on?")
    named_entry = {"epoch": int(found[1]), "offset": int(found[2])}
    spec = {"operation": "AcceptLoss", "shard": shard, "entry": named_entry}
    _ask(kubectl_of(ctx), _like(f"accept-loss-{shard}"), spec, output, wait, timeout)


main.add_command(snapshot)


if __name__ == "__main__":
    main()
