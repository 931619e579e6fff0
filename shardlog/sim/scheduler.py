"""Virtual time: one heap of calls, ordered by time and then by the order of asking.

Everything that happens in a simulated run is one call from this heap, so a run is a function of
its seed.  Calls are plain tuples and the loop does nothing but pop and call: it runs for each
message, and a message should cost what the machines cost.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Call = Callable[[Any], None]


class Scheduler:
    """Times are microseconds since the start of the run."""

    __slots__ = ("_asked", "_queue", "now_us", "stopped")

    def __init__(self) -> None:
        self.now_us = 0
        self.stopped = False
        self._queue: list[tuple[int, int, Call, Any]] = []
        self._asked = 0

    def at(self, time_us: int, call: Call, argument: Any) -> None:
        self._asked += 1
        heappush(self._queue, (time_us, self._asked, call, argument))

    def after(self, delay_us: int, call: Call, argument: Any) -> None:
        self._asked += 1
        heappush(self._queue, (self.now_us + delay_us, self._asked, call, argument))

    def run(self) -> None:
        """Until `stop` is called, or nothing is left to do."""
        self.stopped = False
        queue = self._queue
        while queue and not self.stopped:
            self.now_us, _, call, argument = heappop(queue)
            call(argument)

    def stop(self) -> None:
        self.stopped = True
