"""A ShardOperation `away` of the Shard `orders`: asked for, and waited for."""

from __future__ import annotations

from typing import Any

from kube_operator.installation import Installation, operation_body
from shardlog_operator.spec import ENDED

FOUR = "node-0 node-1 node-2 node-3"


async def ask_for_swap(it: Installation) -> None:
    """Of a follower, for the node that has no replica yet."""
    status = await it.ready()
    members = {each["node"]: each["role"] for each in status["ensemble"]}
    old = next(node for node, role in sorted(members.items()) if role == "Follower")
    new = next(node for node in FOUR.split() if node not in members)
    body = operation_body("away", "Swap", shard="orders", oldNode=old, newNode=new)
    await it.api.create("shardoperations", body)


def status(it: Installation) -> Any:
    return it.api.get("shardoperations", "away").get("status") or {}


async def until_done(it: Installation) -> None:
    found = await it.api.until(lambda: status(it).get("phase") in ENDED and status(it))
    assert found["phase"] == "Succeeded", found
