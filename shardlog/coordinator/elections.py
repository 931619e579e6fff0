"""So many elections at once and no more: a node that led hundreds of shards may die.

Each of them gives up if it takes too long, and starts over; if all were begun together, each would
wait for all the others, and none might end.  A few at a time all end soon.  One that takes long
because it has to wait for a node keeps no other from beginning.  It has its turn from when it is to
be written: until the metadata has answered any number could begin.
"""

from __future__ import annotations

ELECTIONS_MAX = 16
TURN_MS = 1000
"""After so long an election no longer counts."""


class ElectionTurns:
    """Of all shards of a process."""

    def __init__(self) -> None:
        # When each began, the oldest first.
        self._begun: dict[str, int] = {}

    def begun(self, shard: str, now_ms: int) -> None:
        self._begun.pop(shard, None)
        self._begun[shard] = now_ms

    def ended(self, shard: str) -> None:
        self._begun.pop(shard, None)

    def has_room(self, now_ms: int) -> bool:
        """Whether another one may begin."""
        while self._begun:
            oldest = next(iter(self._begun))
            if now_ms - self._begun[oldest] < TURN_MS:
                break
            del self._begun[oldest]
        return len(self._begun) < ELECTIONS_MAX
