"""How many shards each node leads, by the records: counted as they change."""

from __future__ import annotations

from collections import Counter

from shardlog.protocol.coordination import LeadersCounted
from shardlog.protocol.shard import Shard


class LeaderCounts:
    """`counted` is another object each time that a number has changed."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._counted: LeadersCounted | None = None

    @property
    def counted(self) -> LeadersCounted:
        if self._counted is None:
            self._counted = LeadersCounted(tuple(sorted((+self._counts).items())))
        return self._counted

    def change(self, before: Shard | None, after: Shard | None) -> None:
        old = before.leader.node if before and before.leader else None
        new = after.leader.node if after and after.leader else None
        if old == new:
            return
        if old is not None:
            self._counts[old] -= 1
        if new is not None:
            self._counts[new] += 1
        self._counted = None
