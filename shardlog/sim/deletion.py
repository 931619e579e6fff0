"""The third phase of some runs: the shard, at rest by now, is deleted.

Coordinators die between the steps, and so do nodes, but for no longer than it takes to be noticed:
the question is whether whoever comes next goes on, and whether in the end nothing is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardlog.protocol.coordination import DeleteShard
from shardlog.protocol.shard import Status

if TYPE_CHECKING:
    from shardlog.sim.node import Node
    from shardlog.sim.operators import Operator
    from shardlog.sim.world import World

DEATH = 0.2
RETURN = 0.5
DEATHS_US_MAX = 3_000_000


def press(world: World, since_us: int) -> None:
    """Ask for it as long as it does not stand in the record; kill and revive a little."""
    random = world.random
    processes: list[Operator | Node] = [*world.operators.values(), *world.nodes.values()]
    deadly = world.scheduler.now_us - since_us < DEATHS_US_MAX
    for process in processes:
        if not process.up and (not deadly or random.random() < RETURN):
            process.restart()
        elif process.up and deadly and random.random() < DEATH:
            process.doom = random.randint(0, 3)
        elif not deadly:
            process.doom = None
    record = world.store.record
    if record is not None and record.status is not Status.DELETING:
        up = [operator for operator in world.operators.values() if operator.up]
        if up:
            world.adversary.number += 1
            random.choice(up).command(world.adversary.number, DeleteShard())


def undeleted(world: World) -> str | None:
    """What is left of the shard; None if nothing is."""
    record = world.store.record
    if record is not None:
        return f"the status is {record.status}, to destroy: {record.removed}"
    for node in world.nodes.values():
        if not node.up:
            return f"{node.name} is down"
        if node.replica.log.end:
            return f"{node.name} still has a log"
    return None
