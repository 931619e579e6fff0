"""Whether a disk answers sooner than a thread would.

To hand a small round to a thread and to hear of it costs more processor time than the round, and
more time than a fast disk takes to sync it: both threads ask for the interpreter around every call.
So small rounds are performed where they come up, on the loop, as long as most of them have been
short lately.  A disk that takes its time is left to threads, and one that stalls holds the loop up
twice at the most.

What is followed is the median, not the mean: on a busy machine a round may have to wait for a
processor, which says nothing of the disk.
"""

from __future__ import annotations

STEP = 1.1
STALL_US = 10_000
STALL_STEP = 4.0
RANGE = 8
"""How far the median may stray from the limit: so many times more, and so many times less."""


class Promptness:
    """About half of the small rounds took longer than `_median_us`, and half not so long.

    It goes a step up for each that did and a step down for each that did not.  A disk that nobody
    knows is not prompt.
    """

    __slots__ = ("_least_us", "_limit_us", "_median_us", "_most_us")

    def __init__(self, limit_us: int) -> None:
        self._limit_us = limit_us
        self._least_us, self._most_us = limit_us / RANGE, float(limit_us * RANGE)
        self._median_us = self._most_us

    @property
    def prompt(self) -> bool:
        return self._median_us < self._limit_us

    def took(self, us: float) -> None:
        if us < self._median_us:
            self._median_us = max(self._median_us / STEP, self._least_us)
        else:
            step = STALL_STEP if us >= STALL_US else STEP
            self._median_us = min(self._median_us * step, self._most_us)
