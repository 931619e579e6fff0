"""What becomes of the shards, one line each: the log of a coordinator, for people.

It looks at the records every now and then, and says what is different; what came and went between
two looks is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from shardlog.protocol.shard import Shard

LOOK_MS = 100


class Journal:
    """`shards` are the records as they stand.  `run` is a task for as long as it is kept."""

    def __init__(self, shards: Mapping[str, Shard], out: Callable[[str], None]) -> None:
        self.shards = shards
        self.out = out
        self._told: dict[str, str] = {}

    async def run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_MS / 1000)

    def look(self) -> None:
        for name in [name for name in self._told if name not in self.shards]:
            del self._told[name]
            self.out(f"{name}: gone")
        for name, shard in self.shards.items():
            text = described(shard)
            if self._told.get(name) != text:
                self._told[name] = text
                self.out(f"{name}: {text}")


def described(shard: Shard) -> str:
    leader = f", {shard.leader.node} leads" if shard.leader else ""
    members = " ".join(member.node for member in shard.ensemble)
    text = f"{shard.status.value}, epoch {shard.epoch}{leader}, on {members}"
    if shard.change and shard.phase:
        nodes = [each.node for each in (shard.change.old, shard.change.new) if each]
        text += f"; {shard.change.operation.value} {' '.join(nodes)}: {shard.phase.value}"
    elif shard.joining:
        cancelled = ", given up" if shard.joining.cancelled else ""
        text += f"; {shard.joining.node} joins{cancelled}"
    if shard.removed:
        text += f"; to destroy on {' '.join(member.node for member in shard.removed)}"
    if shard.accepting:
        text += f"; {shard.accepting} may be given up, if nobody has it"
    for lost in shard.losses:
        text += f"; given up: {lost.id} up to {lost.end if lost.count else 'the end'}"
    return f"{text}; HALTED: {shard.halted}" if shard.halted else text
