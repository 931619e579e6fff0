"""The metadata store: one versioned record, compare-and-swap, and a watch.

It is linearizable: each request takes effect at one instant between its call and its answer.  It
is also slow, and its answers may overtake each other, so a coordinator meets stale records, lost
races and news of its own writes before their answers.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from shardlog.protocol.coordination import CompareAndSwap, Loaded, Swapped
from shardlog.protocol.shard import Shard
from shardlog.sim.scheduler import Scheduler

Answer = Callable[[Loaded | Swapped], None]


class Store:
    """Version 0 is "no record"; every successful write raises the version by one."""

    __slots__ = ("conflicts", "latency_us", "random", "record", "scheduler", "version", "watchers")

    def __init__(self, scheduler: Scheduler, random: Random, latency_us: int) -> None:
        self.scheduler = scheduler
        self.random = random
        self.latency_us = latency_us
        self.version = 0
        self.record: Shard | None = None
        self.conflicts = 0
        self.watchers: list[Callable[[int, Shard], None]] = []

    def _delay_us(self) -> int:
        return int(self.latency_us * (0.5 + self.random.random()))

    def load(self, answer: Answer) -> None:
        self.scheduler.after(self._delay_us(), self._load, answer)

    def _load(self, answer: Answer) -> None:
        loaded = Loaded(self.version, self.record)
        self.scheduler.after(self._delay_us(), answer, loaded)

    def compare_and_swap(self, wanted: CompareAndSwap, answer: Answer) -> None:
        self.scheduler.after(self._delay_us(), self._swap, (wanted, answer))

    def _swap(self, request: tuple[CompareAndSwap, Answer]) -> None:
        wanted, answer = request
        done = self.accepts(wanted)
        if done:
            self.version += 1
            self.record = wanted.shard
        else:
            self.conflicts += 1
        swapped = Swapped(done, self.version, self.record)
        self.scheduler.after(self._delay_us(), answer, swapped)
        if done:
            for watch in self.watchers:
                watch(self.version, wanted.shard)

    def accepts(self, wanted: CompareAndSwap) -> bool:
        """The compare of compare-and-swap."""
        return wanted.version == self.version

    def tell(self, answer: Answer) -> None:
        """News for a watcher, on its way."""
        self.scheduler.after(self._delay_us(), answer, Loaded(self.version, self.record))
