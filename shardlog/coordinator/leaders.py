"""How many shards each node leads: by the records, and by elections that are about to end.

Without the latter, elections that run side by side would all choose the same node.
"""

from __future__ import annotations

from collections import Counter

from shardlog.protocol.coordination import LeadersCounted
from shardlog.protocol.shard import Shard


class LeaderCounts:
    """`counted` is another object each time that a number has changed."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        # Whom elections have chosen, by shard, until it stands in the record.
        self._chosen: dict[str, str] = {}
        self._counted: LeadersCounted | None = None

    @property
    def counted(self) -> LeadersCounted:
        if self._counted is None:
            counts = self._counts + Counter(self._chosen.values())
            self._counted = LeadersCounted(tuple(sorted(counts.items())))
        return self._counted

    def change(self, before: Shard | None, after: Shard | None) -> None:
        old = before.leader.node if before and before.leader else None
        new = after.leader.node if after and after.leader else None
        if new is not None and after is not None:
            self.choose(after.name, None)
        if old == new:
            return
        if old is not None:
            self._counts[old] -= 1
        if new is not None:
            self._counts[new] += 1
        self._counted = None

    def choose(self, shard: str, node: str | None) -> None:
        if self._chosen.get(shard) == node:
            return
        if node is None:
            del self._chosen[shard]
        else:
            self._chosen[shard] = node
        self._counted = None
