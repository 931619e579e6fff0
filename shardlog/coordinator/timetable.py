"""When each of many shards needs its next tick: one timer of the event loop for all of them.

A thousand sleeping tasks would cost a thousand times more than what they are waiting for.  Those
who want to be called earlier than they said before say so; whoever is called too early, because it
has since found more time, says when again.

What is not urgent is called in company, at round times: calls to the same node then travel
together.  Many that are due at once are called in several turns, so that answers are not kept
waiting meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush

ROUND_S = 0.1
TURN_MAX = 100
LAG_FADES = 0.1
"""A lag is noticed at once, and forgotten over some ten turns."""

Call = Callable[[], None]


class Timetable:
    """Belongs to the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._heap: list[tuple[float, int, Call]] = []
        # When each is to be called; what is in the heap for another time is void.
        self._at: dict[Call, float] = {}
        self._pushed = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        # By how much calls come too late: the process has more to do than it can.
        self.lag_s = 0.0

    def call_after(self, call: Call, wait_s: float) -> None:
        """Unless it is to be called earlier anyway."""
        at = self._loop.time() + wait_s
        if wait_s > ROUND_S:
            at = (at // ROUND_S + 1) * ROUND_S
        known = self._at.get(call)
        if known is not None and known <= at:
            return
        self._at[call] = at
        self._pushed += 1
        heappush(self._heap, (at, self._pushed, call))
        self._wind()

    def forget(self, call: Call) -> None:
        self._at.pop(call, None)

    def stop(self) -> None:
        self._at.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wind(self) -> None:
        """Set the timer to the first; one that is set later is set anew."""
        first = self._heap[0][0]
        if self._timer is not None:
            if self._timer_at <= first:
                return
            self._timer.cancel()
        self._timer_at = first
        self._timer = self._loop.call_at(first, self._turn)

    def _turn(self) -> None:
        self._timer = None
        now = self._loop.time()
        late_s = now - self._timer_at
        self.lag_s += (late_s - self.lag_s) * (1.0 if late_s > self.lag_s else LAG_FADES)
        left = TURN_MAX
        try:
            while self._heap and left and self._heap[0][0] <= now:
                at, _, call = heappop(self._heap)
                if self._at.get(call) == at:
                    del self._at[call]
                    left -= 1
                    call()
        finally:
            if self._heap:
                self._wind()
