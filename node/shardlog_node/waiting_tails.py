"""Tails of one shard that wait, by the offset they wait for and by when they have waited enough.

A commit touches those that it answers, a tick those that it ends, however many others there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar

STALE_MIN = 64
"""So many that wait no more stay in the heap, or as many as wait."""


class Waiter(Protocol):
    """`start`: the offset it waits for.  `ends_ms`: never before that of one that came earlier."""

    start: int
    ends_ms: int


W = TypeVar("W", bound=Waiter)


class WaitingTails(Generic[W]):
    def __init__(self) -> None:
        self._alive: dict[int, W] = {}  # by number, in the order in which they came
        self._by_offset: list[tuple[int, int]] = []
        self._by_time: deque[int] = deque()
        self._number = 0

    def __len__(self) -> int:
        return len(self._alive)

    def __iter__(self) -> Iterator[W]:
        return iter(self._alive.values())

    def add(self, waiter: W) -> None:
        self._number += 1
        self._alive[self._number] = waiter
        heappush(self._by_offset, (waiter.start, self._number))
        self._by_time.append(self._number)
        if len(self._by_offset) > 2 * len(self._alive) + STALE_MIN:
            self._by_offset = [(each.start, number) for number, each in self._alive.items()]
            heapify(self._by_offset)
            self._by_time = deque(self._alive)

    def below(self, offset: int) -> list[W]:
        """Take out those that wait for an offset below this one."""
        found: list[W] = []
        while self._by_offset and self._by_offset[0][0] < offset:
            waiter = self._alive.pop(heappop(self._by_offset)[1], None)
            if waiter is not None:
                found.append(waiter)
        return found

    def ended(self, now_ms: int) -> list[W]:
        """Take out those that have waited long enough."""
        found: list[W] = []
        while self._by_time:
            waiter = self._alive.get(self._by_time[0])
            if waiter is not None:
                if waiter.ends_ms > now_ms:
                    break
                found.append(waiter)
                del self._alive[self._by_time[0]]
            self._by_time.popleft()
        return found
