"""`shardlog status`: how the cluster is, or how one shard is, in the words of its replicas."""

from __future__ import annotations

import rich_click as click

from shardlog.cli.cluster import Cluster, Json, cluster_options, complete_shard
from shardlog.cli.output import is_for_programs, output_option, print_table, print_value
from shardlog.cli.waiting import describe_change, describe_waiting

REPLICAS = "node role epoch> end> commit> lag> heard_ms>"


@click.command()
@click.argument("shard", required=False, shell_complete=complete_shard)
@output_option
@cluster_options
def status(shard: str | None, output: str, cluster: Cluster) -> None:
    """Show the cluster: its nodes and shards. With SHARD: epoch, history, cursors and lag.

    A replica's lag counts the records that it is behind its leader. With -o wide: entries that are
    damaged, what was repaired since its node started, and how far the scrubber is.
    """
    if shard is None:
        _overview(cluster, output)
        return
    found = cluster.get("shards", shard, "status")
    if is_for_programs(output):
        print_value(found, output)
    else:
        _show(found, output == "wide")


def _overview(cluster: Cluster, output: str) -> None:
    nodes, shards = cluster.get("nodes")["nodes"], cluster.get("shards")["shards"]
    if is_for_programs(output):
        print_value({"nodes": nodes, "shards": shards}, output)
        return
    leads = [each["leader"] for each in shards]
    hosts = [node for each in shards for node in each["ensemble"]]
    rows: list[tuple[object, ...]] = [
        (node["name"], node["alive"], hosts.count(node["name"]), leads.count(node["name"]))
        for node in nodes
    ]
    columns = "node alive replicas> leads>"
    if output == "wide":
        columns += " data control http"
        planes = [(node["data"], node["control"], node["http"]) for node in nodes]
        rows = [(*row, *more) for row, more in zip(rows, planes, strict=True)]
    print_table(columns, rows)
    click.echo()
    if not shards:
        click.echo("no shards: `shardlog shard create NAME` makes one")
        return
    print_table(
        "shard status leader epoch> replicas change",
        [
            (
                each["name"],
                "HALTED" if each["halted"] else each["status"],
                each["leader"],
                each["epoch"],
                each["ensemble"],
                each["halted"] or describe_waiting(each) or describe_change(each),
            )
            for each in shards
        ],
    )


def _show(found: Json, wide: bool) -> None:
    click.secho(found["name"], bold=True)
    for name, value in _facts(found):
        click.echo(f"  {name:10} {value}")
    click.echo()
    reports = {report["node"]: report for report in found["reports"]}
    nodes = list(dict.fromkeys([*found["ensemble"], *reports]))
    rows = [_row(node, reports.get(node), found) for node in nodes]
    columns = REPLICAS
    if wide:
        columns += " bad> repaired> scrubbed history"
        rows = [(*row, *_care(reports.get(node))) for row, node in zip(rows, nodes, strict=True)]
    print_table(columns, rows, indent="  ")
    transfers = _transfers(found)
    if transfers:
        click.echo("\n  transfers")
        print_table("node from at> of> percent> bytes> per_second>", transfers, indent="  ")
    cursors = _cursors(found)
    if cursors:
        click.echo(f"\n  cursors of {found['leader']}")
        print_table("node acked> behind> state", cursors, indent="  ")


def _facts(found: Json) -> list[tuple[str, object]]:
    quorum = found["quorum"]
    chosen = ", ".join(f"{kind} {quorum[kind] or 'majority'}" for kind in quorum)
    facts: list[tuple[str, object]] = [
        ("status", found["status"]),
        ("epoch", found["epoch"]),
        ("leader", found["leader"] or "none"),
        ("replicas", f"{len(found['ensemble'])} of {found['replicas']}"),
        ("quorum", chosen),
    ]
    leading = [each for each in found["reports"] if each["node"] == found["leader"]]
    if leading:
        facts.append(("history", _history(leading[0]["history"])))
    if found["reconfiguration"]:
        facts.append(("change", describe_change(found)))
    if found["halted"]:
        facts.append(("halted", found["halted"]))
    if found["waiting"]:
        facts.append(("waits", describe_waiting(found).removeprefix("waits: ")))
    full = [each["node"] for each in found["reports"] if each["full"]]
    if full:
        told = f"no space left on the volume of {', '.join(full)}: appends wait for room there"
        facts.append(("full", told))
    if found["losses"]:
        facts.append(("given up", ", ".join(_loss(lost) for lost in found["losses"])))
    damaged = [f"{each['bad']} on {each['node']}" for each in found["reports"] if each["bad"]]
    if damaged:
        facts.append(("damaged", ", ".join(damaged)))
    repaired = [f"{it['repaired']} on {it['node']}" for it in found["reports"] if it["repaired"]]
    if repaired:
        facts.append(("repaired", ", ".join(repaired)))
    return facts


def _loss(lost: Json) -> str:
    end = "the end" if lost["end"] is None else lost["end"]
    return f"{lost['epoch']}:{lost['first']} up to {end}"


def _row(node: str, report: Json, found: Json) -> tuple[object, ...]:
    if report is None:
        return node, "no answer", None, None, None, None, None
    standby = node not in found["ensemble"]
    role = f"{report['role']} (joining)" if standby else report["role"]
    heard_ms = None if node == report["leader"] else report["heard_ms_ago"]
    return (
        node, role, report["epoch"], report["end"], report["commit"], report["lag"], heard_ms
    )  # fmt: skip


def _care(report: Json) -> tuple[object, ...]:
    """What is damaged, what was repaired, how far the scrubber is, and the history."""
    if report is None:
        return None, None, None, None
    scrubbed = f"{report['scrub_rounds']} rounds, at {report['scrubbed']}"
    return report["bad"], report["repaired"], scrubbed, _history(report["history"])


def _history(history: Json) -> str:
    """Each epoch and where it begins."""
    shown = " ".join(f"{epoch}@{first}" for epoch, first in history[-8:])
    return f"… {shown}" if len(history) > 8 else shown


def _transfers(found: Json) -> list[tuple[object, ...]]:
    """Replicas that receive what they lacked when they were told of it."""
    told = [(each["node"], each["transfer"]) for each in found["reports"] if each["transfer"]]
    return [
        (
            node,
            it["source"],
            it["at"],
            it["end"],
            100 * (it["at"] - it["first"]) // max(it["end"] - it["first"], 1),
            it["done_bytes"],
            it["bytes_per_s"],
        )
        for node, it in told
    ]


def _cursors(found: Json) -> list[tuple[object, ...]]:
    return [
        (
            cursor["node"],
            cursor["acked"],
            max(0, report["end"] - cursor["acked"]),
            "lost" if cursor["lost"] else "standby" if cursor["standby"] else "follows",
        )
        for report in found["reports"]
        if report["node"] == found["leader"]
        for cursor in report["cursors"]
    ]
