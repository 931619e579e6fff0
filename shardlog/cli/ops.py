"""`shardlog ops`: operations on a shard that is running."""

from __future__ import annotations

import rich_click as click

from shardlog.cli.cluster import Cluster, Json, cluster_options, complete_node, complete_shard
from shardlog.cli.confirming import confirm
from shardlog.cli.failures import BadUsage, ClusterUnavailable
from shardlog.cli.shard import timeout_option, wait_option
from shardlog.cli.waiting import wait_until

shard_argument = click.argument("shard", shell_complete=complete_shard)


@click.group()
def ops() -> None:
    """Hand a shard over, move it, give a change up, drop old records, accept a loss."""


@ops.command()
@shard_argument
@click.argument("node", shell_complete=complete_node)
@wait_option
@timeout_option
@cluster_options
def promote(shard: str, node: str, wait: bool, timeout: float, cluster: Cluster) -> None:
    """Make NODE the leader of SHARD, once it has caught up."""
    _ask(cluster, shard, {"operation": "promote", "node": node})
    if wait:
        _wait(cluster, shard, lambda it: bool(it["leader"] == node), timeout, f"promote {node}")
    click.echo(f"{node} leads {shard}" if wait else f"{node} will lead {shard}")


@ops.command()
@shard_argument
@click.argument("old", shell_complete=complete_node)
@click.argument("new", shell_complete=complete_node)
@wait_option
@timeout_option
@cluster_options
def swap(shard: str, old: str, new: str, wait: bool, timeout: float, cluster: Cluster) -> None:
    """Replace the replica of SHARD on OLD by one on NEW."""
    _ask(cluster, shard, {"operation": "swap", "old": old, "new": new})
    what = f"swap {old} for {new}"
    if wait:
        found = _wait(cluster, shard, lambda it: not it["reconfiguration"], timeout, what)
        if new not in found["ensemble"] or old in found["ensemble"]:
            raise ClusterUnavailable(f"{what}: given up; {shard} is as it was before")
    click.echo(f"{what}: {'done' if wait else 'begun'}")


@ops.command()
@shard_argument
@cluster_options
def abort(shard: str, cluster: Cluster) -> None:
    """Give up a change of SHARD's replicas, if it is not too late for that."""
    _ask(cluster, shard, {"operation": "abort"})
    click.echo(f"the change of {shard} is given up")


@ops.command()
@shard_argument
@click.argument("first", type=click.IntRange(min=0))
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_options
def trim(shard: str, first: int, yes: bool, cluster: Cluster) -> None:
    """Ask the leader of SHARD to drop committed records below offset FIRST.

    It drops whole entries as soon as they are applied. Nobody keeps what was asked: if the leader
    stops before that, nothing is dropped, and you have to ask again. FIRST beyond the end of the
    log is refused.
    """
    cluster.shard(shard)
    begin, end = _extent(cluster, shard)
    most = max(0, min(first, end) - begin)
    if most and first <= end and not yes:  # beyond the end the cluster says no
        confirm(f"Drop up to {most} records of {shard}, offsets {begin} to {first - 1}?")
    _ask(cluster, shard, {"operation": "trim", "first": first})
    asked = f"the leader of {shard} is asked to drop records below offset {first}"
    click.echo(f"{asked}, {most} at most")


def _extent(cluster: Cluster, shard: str) -> tuple[int, int]:
    """The first offset that is kept, and that behind the last record."""
    from shardlog.cli.client import failures_as_exit_codes

    with failures_as_exit_codes():
        from shardlog.cli.tls import tls_of_environment
        from shardlog.client.blocking import Client

        with Client(cluster.url, tls=tls_of_environment()) as client:
            deadline_ms = int(cluster.timeout_s * 1000)
            begin = client.first(shard, deadline_ms=deadline_ms)
            return begin, client.end(shard, deadline_ms=deadline_ms)


@ops.command(name="accept-loss")
@shard_argument
@click.option("--entry", "named", required=True, metavar="EPOCH:OFFSET",
              help="The entry to give up, as `shardlog status SHARD` names it.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask.")
@wait_option
@timeout_option
@cluster_options
def accept_loss(
    shard: str, named: str, yes: bool, wait: bool, timeout: float, cluster: Cluster
) -> None:
    """Give up an entry of SHARD that is damaged on every node, so that the shard can go on.

    Only the entry that the shard waits for can be given up. A node that is down may still have it:
    bring it back first, if you can. What is lost stays visible in `shardlog status`.
    """
    entry = _entry(named)
    found = cluster.shard(shard)
    if not yes:
        confirm(f"{_at_stake(found, entry)} Give it up for good?")
    _ask(cluster, shard, {"operation": "accept-loss", "entry": entry})
    what = f"give up entry {entry['epoch']}:{entry['offset']} of {shard}"
    if wait:
        _wait(cluster, shard, lambda it: not _awaits(it, entry), timeout, what)
    click.echo(f"{what}: {'done' if wait else 'begun'}")


def _entry(text: str) -> dict[str, int]:
    epoch, _, offset = text.partition(":")
    if not (epoch.isdecimal() and offset.isdecimal()):
        raise BadUsage(f"{text!r:.80} is no entry: EPOCH:OFFSET is, 3:1042 say")
    return {"epoch": int(epoch), "offset": int(offset)}


def _awaits(found: Json, entry: dict[str, int]) -> bool:
    return bool(found["waiting"] and found["waiting"]["entry"] == entry)


def _at_stake(found: Json, entry: dict[str, int]) -> str:
    """What would be lost, and who might still have it."""
    name = f"Entry {entry['epoch']}:{entry['offset']} of {found['name']}"
    if not _awaits(found, entry):
        return f"{name} is not what the shard waits for."
    waiting = found["waiting"]
    stake = waiting["at_stake"]
    text = f"{name} has no valid copy that answers; {', '.join(waiting['nodes'])} may have held it."
    if stake is None:
        return text
    if stake["end"] is None:
        return f"{text} All records from offset {stake['first']} on would be lost."
    return f"{text} The records in [{stake['first']}, {stake['end']}) would be lost."


def _ask(cluster: Cluster, shard: str, body: Json) -> None:
    cluster.post("shards", shard, "operations", body=body)


def _wait(cluster: Cluster, shard: str, done: Json, timeout: float, what: str) -> Json:
    def is_done(found: Json) -> bool:
        return found is None or (found["status"] == "STEADY" and done(found))

    found = wait_until(cluster, shard, is_done, timeout, what)
    if found is None:
        raise ClusterUnavailable(f"{shard} was deleted meanwhile")
    return found
