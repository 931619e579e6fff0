"""`shardlog shard`: create, list, get, scale and delete shards."""

from __future__ import annotations

from collections.abc import Callable

import rich_click as click
from click.core import ParameterSource

from shardlog.cli.cluster import Cluster, Json, cluster_options, complete_shard
from shardlog.cli.confirming import confirm
from shardlog.cli.failures import BadUsage, ClusterUnavailable
from shardlog.cli.output import is_for_programs, output_option, print_table, print_value
from shardlog.cli.waiting import describe_change, describe_waiting, wait_until
from shardlog.process.quantities import BadQuantity, bytes_of, duration_ms, duration_text

COLUMNS = "name status leader epoch> replicas>"
WIDE_COLUMNS = f"{COLUMNS} ensemble quorum kept change"

wait_option = click.option(
    "--wait/--no-wait", default=True, show_default=True, help="Until it is done."
)
timeout_option = click.option(
    "--timeout", type=click.FloatRange(min=0), default=60.0, show_default=True,
    metavar="SECONDS", help="How long to wait.",
)  # fmt: skip


Option = Callable[[Callable[..., None]], Callable[..., None]]


def _read_by(read: Callable[[str], int]) -> Callable[..., int | None]:
    def callback(
        context: click.Context, parameter: click.Parameter, text: str | None
    ) -> int | None:
        try:
            return None if text is None else read(text)
        except BadQuantity as failure:
            raise click.BadParameter(str(failure), context, parameter) from failure

    return callback


def bytes_option(name: str) -> Option:
    return click.option(
        name, callback=_read_by(bytes_of), metavar="BYTES",
        help="Drop the oldest records when the log is longer than this, as 10GiB.",
    )  # fmt: skip


def time_option(name: str) -> Option:
    return click.option(
        name, callback=_read_by(duration_ms), metavar="TIME",
        help="Drop records that are older than this, as 168h or 1h30m.",
    )  # fmt: skip


name_argument = click.argument("name", shell_complete=complete_shard)


@click.group()
def shard() -> None:
    """Create, look at, scale and delete shards."""


@shard.command()
@click.argument("name")
@click.option("--replicas", type=int, default=3, show_default=True, help="On how many nodes.")
@click.option("--node", "nodes", multiple=True, help="On this one; once for each replica. Default: "
              "those with the fewest replicas.")  # fmt: skip
@click.option("--quorum-replication", type=int, help="How many replicas hold a record before it is "
              "acknowledged. Default: a majority.")  # fmt: skip
@click.option("--quorum-fencing", type=int, help="How many replicas an election needs. Default: a "
              "majority.")  # fmt: skip
@bytes_option("--retention-bytes")
@time_option("--retention-time")
@click.option("--durability", type=click.Choice(["sync", "relaxed"], case_sensitive=False),
              default="sync", show_default=True, help="relaxed acknowledges a record once a quorum "
              "has it in memory, and syncs it a moment later.")  # fmt: skip
@wait_option
@timeout_option
@output_option
@cluster_options
@click.pass_context
def create(
    ctx: click.Context,
    name: str,
    replicas: int,
    nodes: tuple[str, ...],
    quorum_replication: int | None,
    quorum_fencing: int | None,
    retention_bytes: int | None,
    retention_time: int | None,
    durability: str,
    wait: bool,
    timeout: float,
    output: str,
    cluster: Cluster,
) -> None:
    """Create a shard."""
    given = ctx.get_parameter_source("replicas") is not ParameterSource.DEFAULT
    if nodes and given and len(nodes) != replicas:
        raise BadUsage(f"--replicas {replicas} contradicts --node, given {len(nodes)} times")
    if len(set(nodes)) < len(nodes):
        raise BadUsage("a node holds one replica of a shard, and one --node is given twice")
    body: dict[str, Json] = {"name": name, "replicas": len(nodes) or replicas}
    if nodes:
        body["nodes"] = list(nodes)
    if quorum_replication is not None or quorum_fencing is not None:
        body["quorum"] = {"replication": quorum_replication, "fencing": quorum_fencing}
    if retention_bytes or retention_time:
        body["retention"] = {"bytes": retention_bytes, "time_ms": retention_time}
    if durability != "sync":
        body["durability"] = durability.capitalize()
    made = cluster.post("shards", body=body)
    if wait:
        made = wait_until(cluster, name, _is_steady, timeout, f"create {name}")
        _require_there(made, name)
    _print([made], output, alone=True)


@shard.command(name="list")
@output_option
@cluster_options
def list_shards(output: str, cluster: Cluster) -> None:
    """List all shards."""
    _print(cluster.get("shards")["shards"], output)


@shard.command()
@name_argument
@output_option
@cluster_options
def get(name: str, output: str, cluster: Cluster) -> None:
    """Show one shard; `shardlog status NAME` asks its replicas too."""
    _print([cluster.shard(name)], output, alone=True)


@shard.command()
@name_argument
@click.option("--replicas", type=int, required=True, help="On how many nodes it shall be.")
@wait_option
@timeout_option
@output_option
@cluster_options
def scale(
    name: str, replicas: int, wait: bool, timeout: float, output: str, cluster: Cluster
) -> None:
    """Change the number of replicas, one at a time, while the shard serves."""
    scaled = cluster.put("shards", name, "replicas", body={"replicas": replicas})
    if wait:
        scaled = wait_until(
            cluster,
            name,
            lambda it: it is None or (_is_settled(it) and len(it["ensemble"]) == replicas),
            timeout,
            f"scale {name} to {replicas}",
        )
        _require_there(scaled, name)
    _print([scaled], output, alone=True)


@shard.command()
@name_argument
@bytes_option("--bytes")
@time_option("--time")
@output_option
@cluster_options
def retain(name: str, bytes: int | None, time: int | None, output: str, cluster: Cluster) -> None:
    """Change how much is kept, and for how long; without any option, everything for ever."""
    kept = cluster.put("shards", name, "retention", body={"bytes": bytes, "time_ms": time})
    _print([kept], output, alone=True)


@shard.command()
@name_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@wait_option
@timeout_option
@cluster_options
def delete(name: str, yes: bool, wait: bool, timeout: float, cluster: Cluster) -> None:
    """Delete a shard and all its records."""
    cluster.shard(name)
    if not yes:
        confirm(f"Delete {name} and all its records?")
    cluster.delete("shards", name)
    if wait:
        wait_until(cluster, name, lambda it: it is None, timeout, f"delete {name}")
    click.echo(f"{name} is deleted" if wait else f"{name} is being deleted")


def _is_steady(found: Json) -> bool:
    return found is None or (found["status"] == "STEADY" and bool(found["leader"]))


def _is_settled(found: Json) -> bool:
    return _is_steady(found) and not found["reconfiguration"]


def _require_there(found: Json, name: str) -> None:
    if found is None:
        raise ClusterUnavailable(f"{name} was deleted meanwhile")


def _print(shards: list[Json], output: str, alone: bool = False) -> None:
    if is_for_programs(output):
        print_value(shards[0] if alone else {"shards": shards}, output)
        return
    if output == "wide":
        print_table(WIDE_COLUMNS, [(*_row(each), *_more(each)) for each in shards])
    else:
        print_table(COLUMNS, [_row(each) for each in shards])
        if alone and shards[0]["waiting"]:
            click.echo(describe_waiting(shards[0]))


def _row(found: Json) -> tuple[object, ...]:
    status = "HALTED" if found["halted"] else found["status"]
    there, wanted = len(found["ensemble"]), found["replicas"]
    count = str(there) if there == wanted else f"{there}/{wanted}"
    return found["name"], status, found["leader"], found["epoch"], count


def _more(found: Json) -> tuple[object, ...]:
    chosen = [f"{kind} {count}" for kind, count in found["quorum"].items() if count]
    trouble = found["halted"] or describe_waiting(found)
    kept = _kept(found)
    return found["ensemble"], chosen or "majority", kept, trouble or describe_change(found)


def _kept(found: Json) -> str:
    """For how long, how much and how safely; of an older cluster nothing is told."""
    retention = found.get("retention") or {}
    time_ms = retention.get("time_ms")
    bounds = [
        f"{retention['bytes']} bytes" if retention.get("bytes") else "",
        duration_text(time_ms) if time_ms else "",
    ]
    told = ", ".join(bound for bound in bounds if bound) or "everything"
    return f"{told}, relaxed" if found.get("durability") == "Relaxed" else told
