"""`kubectl shardlog status`: Shards as tables, from their own status."""

from __future__ import annotations

import time
from typing import Any

import rich_click as click

from shardlog.cli.kubectl_call import NODES, OPERATIONS, SHARDS, Kubectl
from shardlog.cli.output import is_for_programs, print_table, print_value

Json = Any
SINCE = "%Y-%m-%dT%H:%M:%SZ"
GATE = "shardlog.dev/replicated"


def show_all(kubectl: Kubectl, output: str) -> None:
    shards, pods = kubectl.items(SHARDS), kubectl.items("pods", "-l", NODES)
    drains = [each for each in kubectl.items(OPERATIONS) if each["spec"]["operation"] == "Drain"]
    operators = (kubectl.directory("v1/operators") or {}).get("operators")
    if is_for_programs(output):
        nodes = [_node(pod, shards, drains) for pod in pods]
        listed = [_shard(each) for each in shards]
        print_value({"operators": operators, "nodes": nodes, "shards": listed}, output)
        return
    _show_operators(operators)
    columns = "node pool ready replicated replicas> leads> drained machine"
    print_table(columns, [tuple(_node(pod, shards, drains).values()) for pod in pods])
    click.echo()
    if not shards:
        click.echo("no shards: `kubectl apply` one")
        return
    rows = []
    for each in shards:
        status = each.get("status") or {}
        whole = _condition(status, "FullyReplicated")
        count = f"{status.get('replicas', 0)}/{each['spec'].get('replicas', 3)}"
        rows.append(
            (
                each["metadata"]["name"],
                _condition(status, "Ready"),
                status.get("phase"),
                status.get("leader"),
                status.get("epoch"),
                count,
                whole,
                status.get("waitingFor"),
            )
        )
    print_table("shard ready phase leader epoch> replicas whole waits_for", rows)


def _show_operators(operators: list[Json] | None) -> None:
    """Those that etcd knows of; None where nobody could be asked."""
    if operators is None:
        click.echo("operators: not known here (`get` of services/proxy is needed to ask them)\n")
        return
    rows = [
        (each["name"], each["version"], time.strftime(SINCE, time.gmtime(each["since_ms"] / 1000)))
        for each in operators
    ]
    print_table("operator version running_since", rows)
    click.echo()


def show_one(kubectl: Kubectl, name: str, output: str) -> None:
    shard = kubectl.get(SHARDS, name)
    if is_for_programs(output):
        print_value(_shard(shard), output)
        return
    status = shard.get("status") or {}
    click.secho(name, bold=True)
    for fact, value in _facts(shard, status):
        click.echo(f"  {fact:12} {value}")
    click.echo()
    rows = [
        tuple(each.get(field) for field in ("node", "role", "state", "head", "commit", "lag"))
        for each in status.get("ensemble", [])
    ]
    print_table("node role state head> commit> lag>", rows, indent="  ")
    click.echo()
    conditions = [
        tuple(each.get(field) for field in ("type", "status", "reason", "message"))
        for each in status.get("conditions", [])
    ]
    print_table("condition status reason message", conditions, indent="  ")


def _facts(shard: Json, status: Json) -> list[tuple[str, object]]:
    spec = shard["spec"]
    facts: list[tuple[str, object]] = [
        ("phase", status.get("phase", "not seen by an operator yet")),
        ("leader", status.get("leader") or "none"),
        ("epoch", status.get("epoch", "-")),
        ("replicas", f"{status.get('replicas', 0)} of {spec.get('replicas', 3)}"),
        ("committed", status.get("commitOffset", "-")),
    ]
    if status.get("history"):
        spans = (f"{each['epoch']}@{each['first']}" for each in status["history"])
        facts.append(("history", " ".join(spans)))
    change = status.get("reconfiguration")
    if change:
        nodes = " for ".join(change[each] for each in ("newNode", "oldNode") if change.get(each))
        facts.append(("change", f"{change['operation']} {nodes}: {change['phase']}"))
    if status.get("waitingFor"):
        facts.append(("waits for", status["waitingFor"]))
    if status.get("observedGeneration") != shard["metadata"].get("generation"):
        facts.append(("spec", "changed since the operator last looked"))
    return facts


def _shard(shard: Json) -> Json:
    return {
        "name": shard["metadata"]["name"],
        "spec": shard["spec"],
        "status": shard.get("status") or {},
    }


def _node(pod: Json, shards: list[Json], drains: list[Json]) -> Json:
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    statuses = [each.get("status") or {} for each in shards]
    hosted = [
        member["node"] for each in statuses for member in each.get("ensemble", [])
        if member.get("role") != "Leaving"
    ]  # fmt: skip
    return {
        "name": name,
        "pool": (pod["metadata"].get("labels") or {}).get("shardlog.dev/pool"),
        "ready": _condition(status, "ContainersReady") == "True",
        "replicated": _condition(status, GATE) == "True",
        "replicas": hosted.count(name),
        "leads": [each.get("leader") for each in statuses].count(name),
        "drained": any(each["spec"].get("node") == name for each in drains),
        "machine": pod["spec"].get("nodeName"),
    }


def _condition(status: Json, kind: str) -> str | None:
    found = (each for each in status.get("conditions") or () if each["type"] == kind)
    return next((each["status"] for each in found), None)
