"""When to look at what: names that are due, each worked on by one task at a time.

Whoever hears of something says `soon`; an earlier time wins over a later one, so any number of
reasons lead to one look.  What becomes due while it is worked on is looked at again afterwards.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable

Work = Callable[[str], Awaitable[float | None]]
"""Looks at a name; returns after how many seconds to look again, None for not by itself."""


class Schedule:
    """`run` is a task for as long as there is work to do."""

    def __init__(self, clock_s: Callable[[], float], workers: int) -> None:
        self._clock_s = clock_s
        self._room = asyncio.Semaphore(workers)
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._busy: set[str] = set()
        self._wake = asyncio.Event()
        self.done = 0

    def __len__(self) -> int:
        return len(self._due) + len(self._busy)

    def soon(self, name: str, after_s: float = 0.0) -> None:
        at_s = self._clock_s() + after_s
        if self._due.get(name, at_s + 1) <= at_s:
            return
        self._due[name] = at_s
        heapq.heappush(self._heap, (at_s, name))
        self._wake.set()

    async def run(self, work: Work) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await self._room.acquire()
                name = await self._next()
                self._busy.add(name)
                group.create_task(self._do(name, work))

    async def _do(self, name: str, work: Work) -> None:
        try:
            again_s = await work(name)
        finally:
            self._busy.discard(name)
            self._room.release()
        self.done += 1
        if again_s is not None:
            self.soon(name, again_s)
        if name in self._due:
            heapq.heappush(self._heap, (self._due[name], name))
            self._wake.set()

    async def _next(self) -> str:
        while True:
            self._wake.clear()
            left_s = None
            while self._heap:
                at_s, name = self._heap[0]
                left_s = at_s - self._clock_s()
                if self._due.get(name) != at_s or name in self._busy:
                    heapq.heappop(self._heap)  # moved; or pushed again when its work is done
                    left_s = None
                elif left_s <= 0:
                    heapq.heappop(self._heap)
                    del self._due[name]
                    return name
                else:
                    break
            try:
                async with asyncio.timeout(left_s):
                    await self._wake.wait()
            except TimeoutError:
                continue
