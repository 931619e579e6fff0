"""The cluster's time: the interval that a majority of the nodes' clocks agrees upon.

A node asks another what its wall clock shows.  The answer was read somewhere between the question
and the answer, so by our own monotonic clock the other's wall clock runs ahead by something between
two bounds.  A correct wall clock is off by at most a tolerance, which widens the bounds to both
sides; and while a sample ages, two quartz clocks drift apart, which widens them further.

Marzullo's algorithm: if at most f of n clocks are wrong, the true time is where at least n - f of
the intervals overlap.  We let f be any minority, so the interval reaches from the first point to
the last at which a majority overlaps.  Among those who overlap at an end of it is a correct clock,
since two majorities meet; so neither end is further from the true time than that clock's own
interval is wide: twice the tolerance, the round trip, and the drift.

All in nanoseconds.  An interval says by how much a wall clock is ahead of our monotonic clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from typing import NamedTuple

DRIFT_PPM = 200
"""Two clocks that count seconds are apart by at most so much after a million of them."""


class Interval(NamedTuple):
    """Both ends belong to it."""

    low: int
    high: int

    def widened(self, by: int) -> Interval:
        return Interval(self.low - by, self.high + by)

    def meets(self, other: Interval) -> bool:
        return self.low <= other.high and other.low <= self.high

    @property
    def width(self) -> int:
        return self.high - self.low


class Sample(NamedTuple):
    """What another clock was found to show, when `taken_ns` was the monotonic time."""

    found: Interval
    taken_ns: int

    def aged(self, now_ns: int) -> Interval:
        return self.found.widened((now_ns - self.taken_ns) * DRIFT_PPM // 1_000_000)


def sampled(sent_ns: int, received_ns: int, wall_ns: int) -> Sample:
    """The other's clock showed `wall_ns` at some time between the two of our monotonic clock."""
    return Sample(Interval(wall_ns - received_ns, wall_ns - sent_ns), received_ns)


def better(old: Sample | None, new: Sample) -> Sample:
    """The one that says more; if they contradict each other, the clock was set: the newer."""
    if old is None:
        return new
    aged = old.aged(new.taken_ns)
    return old if aged.width < new.found.width and aged.meets(new.found) else new


def agreed(clocks: Collection[Interval], tolerance_ns: int) -> Interval | None:
    """Where the true time is if a majority of `clocks` is right; None if no majority overlaps."""
    majority = len(clocks) // 2 + 1
    wide = [clock.widened(tolerance_ns) for clock in clocks]
    lows, highs = sorted(clock.low for clock in wide), sorted(clock.high for clock in wide)
    ends = [
        end
        for clock in wide
        for end in clock
        if bisect_right(lows, end) - bisect_left(highs, end) >= majority
    ]
    return Interval(min(ends), max(ends)) if ends else None
