"""The metadata store: one versioned record, compare-and-swap, and a watch.

It is linearizable: each request takes effect at one instant between its call and its answer.  It
is also slow, and its answers may overtake each other, come late or not at all, so a coordinator
meets stale records, lost races, news of its own writes before their answers, and writes that stand
though nobody said so.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from shardlog.protocol.coordination import CompareAndSwap, Loaded, Swapped
from shardlog.protocol.shard import Shard
from shardlog.sim.scheduler import Scheduler

Answer = Callable[[Loaded | Swapped], None]

LATE_US = (100_000, 5_000_000)


class Store:
    """Version 0 is "no record"; every successful write gets the next revision as its version."""

    __slots__ = (
        "answered_late",
        "conflicts",
        "late",
        "latency_us",
        "lost",
        "random",
        "record",
        "revision",
        "scheduler",
        "unanswered",
        "watchers",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        random: Random,
        latency_us: int,
        lost: float = 0.0,
        late: float = 0.0,
    ) -> None:
        self.scheduler = scheduler
        self.random = random
        self.latency_us = latency_us
        # How often an answer never comes, or comes when nobody waits for it any more.
        self.lost = lost
        self.late = late
        # Only rises, also when the record is removed and made again.
        self.revision = 0
        self.record: Shard | None = None
        self.conflicts = 0
        self.unanswered = 0
        self.answered_late = 0
        self.watchers: list[Callable[[int, Shard | None], None]] = []

    @property
    def version(self) -> int:
        return self.revision if self.record is not None else 0

    def _delay_us(self) -> int:
        return int(self.latency_us * (0.5 + self.random.random()))

    def load(self, answer: Answer) -> None:
        self.scheduler.after(self._delay_us(), self._load, answer)

    def _load(self, answer: Answer) -> None:
        self._answer(answer, Loaded(self.version, self.record))

    def _answer(self, answer: Answer, event: Loaded | Swapped) -> None:
        fate = self.random.random()
        if fate < self.lost:
            self.unanswered += 1
            return
        delay_us = self._delay_us()
        if fate > 1.0 - self.late:
            self.answered_late += 1
            delay_us += self.random.randint(*LATE_US)
        self.scheduler.after(delay_us, answer, event)

    def heal(self) -> None:
        """Every answer comes from now on."""
        self.lost = self.late = 0.0

    def compare_and_swap(self, wanted: CompareAndSwap, answer: Answer) -> None:
        self.scheduler.after(self._delay_us(), self._swap, (wanted, answer))

    def _swap(self, request: tuple[CompareAndSwap, Answer]) -> None:
        wanted, answer = request
        done = self.accepts(wanted)
        if done:
            self.revision += 1
            self.record = wanted.shard
        else:
            self.conflicts += 1
        self._answer(answer, Swapped(done, self.version, self.record))
        if done:
            for watch in self.watchers:
                watch(self.revision, wanted.shard)

    def accepts(self, wanted: CompareAndSwap) -> bool:
        """The compare of compare-and-swap."""
        return wanted.version == self.version

    def restore(self, shard: Shard) -> None:
        """What stood once stands again, under a new revision."""
        self.revision += 1
        self.record = shard

    def tell(self, answer: Answer) -> None:
        """News for a watcher, on its way."""
        self.scheduler.after(self._delay_us(), answer, Loaded(self.version, self.record))
