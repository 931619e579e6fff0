"""Appends whose clients are gone before they were answered.

A leader keeps them until they are committed, so they stay charged until then: who connects again
and again, or binds a channel again, may not have more under way than who stays.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardlog_node.clients import Budget

Ends = tuple[int, int]
"""Where the log of a shard ends, and what is committed of it."""


class AbandonedAppends:
    """`add` what was charged, and `look` now and then, which gives back what is settled.

    `ends_of` a shard is None where it is not led here, and so nothing of it waits.
    """

    def __init__(self, budget: Budget, ends_of: Callable[[str], Ends | None]) -> None:
        self._budget = budget
        self._ends_of = ends_of
        # What has come since the last look: it is in the log by the next one, if it ever will be.
        self._new: Counter[str] = Counter()
        # By shard: how far the log has to be committed, and what is given back then.
        self._waiting: dict[str, deque[tuple[int, int]]] = {}

    def add(self, shard: str, size: int) -> None:
        if size:
            self._new[shard] += size

    def look(self) -> None:
        for shard, waiting in list(self._waiting.items()):
            ends = self._ends_of(shard)
            while waiting and (ends is None or waiting[0][0] <= ends[1]):
                self._budget.give_back(waiting.popleft()[1])
            if not waiting:
                del self._waiting[shard]
        for shard, size in self._new.items():
            ends = self._ends_of(shard)
            if ends is None or ends[0] == ends[1]:
                self._budget.give_back(size)
            else:
                self._waiting.setdefault(shard, deque()).append((ends[0], size))
        self._new.clear()
