"""How long to go on, and how long to wait in between: both end."""

from __future__ import annotations

from collections.abc import Callable


class Backoff:
    """Delays that double up to a bound, each between a half and the whole of its size.

    `draw` gives numbers in [0, 1): clients that lost the same leader do not come back in step.
    """

    __slots__ = ("_draw", "_first_ms", "_most_ms", "_next_ms")

    def __init__(self, first_ms: int, most_ms: int, draw: Callable[[], float]) -> None:
        self._first_ms = first_ms
        self._most_ms = most_ms
        self._draw = draw
        self._next_ms = first_ms

    def reset(self) -> None:
        """Something went well."""
        self._next_ms = self._first_ms

    def next_ms(self) -> float:
        size = self._next_ms
        self._next_ms = min(2 * size, self._most_ms)
        return size * (1 + self._draw()) / 2


class Deadline:
    """A moment by a clock that counts seconds."""

    __slots__ = ("_clock", "at", "ms")

    def __init__(self, ms: int, clock: Callable[[], float]) -> None:
        self.ms = ms
        self.at = clock() + ms / 1000
        self._clock = clock

    @property
    def left_s(self) -> float:
        return max(0.0, self.at - self._clock())

    @property
    def passed(self) -> bool:
        return self._clock() >= self.at
