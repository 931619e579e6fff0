"""Whether a disk answers sooner than a thread would.

To hand a small round to a thread and to hear of it costs more processor time than the round, and
more time than a fast disk takes to sync it: both threads ask for the interpreter around every call.
So small rounds are performed where they come up, on the loop, as long as they have been short
lately.  A disk that takes its time is left to threads, and so is one that was slow just now: it
holds the loop up once, not twice.
"""

from __future__ import annotations

SAMPLE_MAX_US = 50_000
"""What a round counts for at the most, so that one stall is forgotten after some dozens."""
WEIGHT = 16
"""A round is one part in so many of the mean."""


class Promptness:
    """A moving mean of how long small rounds took.  A disk that nobody knows is not prompt."""

    __slots__ = ("_limit_us", "_mean_us")

    def __init__(self, limit_us: int) -> None:
        self._limit_us = limit_us
        self._mean_us = float(4 * limit_us)

    @property
    def prompt(self) -> bool:
        return self._mean_us < self._limit_us

    def took(self, us: float) -> None:
        self._mean_us += (min(us, SAMPLE_MAX_US) - self._mean_us) / WEIGHT
