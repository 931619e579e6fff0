"""The load: numbered records, as fast as they go or at a steady rate, through whatever happens.

It looks at the clock whenever records are acknowledged; the longest time between two looks is what
a caller would call an outage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shardlog.client import Client, ClientFailure, Producer, Range
from shardlog.demo.ledger import NUMBER_DIGITS, Ledger, value_of

RECORD_BYTES = 128
BLOCK_RECORDS = 1000
STEADY_BLOCK_RECORDS = 100
BUFFER_BYTES_MAX = 4 << 20
FILLER = (b" the quick brown fox jumps over the lazy dog" * 3)[: RECORD_BYTES - NUMBER_DIGITS]
assert len(value_of(0, FILLER)) == RECORD_BYTES

Clock = Callable[[], float]


class Pauses:
    """The longest time without an acknowledged record, since `restart`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock()
        self._longest_s = 0.0

    def restart(self) -> None:
        self._last = self._clock()
        self._longest_s = 0.0

    def acknowledged(self) -> None:
        now = self._clock()
        self._longest_s = max(self._longest_s, now - self._last)
        self._last = now

    @property
    def longest_s(self) -> float:
        """One that has not ended counts too."""
        return max(self._longest_s, self._clock() - self._last)

    @property
    def now_s(self) -> float:
        return self._clock() - self._last


class Load:
    """One producer.  `rate_per_s` may be changed at any time; None: as fast as it goes."""

    def __init__(self, client: Client, shard: str, deadline_ms: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.ledger = Ledger()
        self.pauses = Pauses(self._loop.time)
        self.rate_per_s: int | None = None
        self.failure: BaseException | None = None
        self._producer: Producer = client.producer(
            shard, buffer_bytes_max=BUFFER_BYTES_MAX, deadline_ms=deadline_ms
        )
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.pauses.restart()
        self._task = self._loop.create_task(self._run(), name="load")

    async def stop(self) -> None:
        """Until everything that was sent is acknowledged; raises if anything failed."""
        self._stopping = True
        if self._task is not None:
            await self._task
        await self._producer.flush()
        if self.failure is not None:
            raise self.failure

    def abandon(self) -> None:
        """Send no more; nothing, once it has stopped."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        due = self._loop.time()
        while not self._stopping and self.failure is None:
            try:
                await self._producer.until_room()
            except ClientFailure as failure:
                self.failure = failure
                return
            rate = self.rate_per_s
            self._send(BLOCK_RECORDS if rate is None else STEADY_BLOCK_RECORDS)
            now = self._loop.time()
            if rate is None:
                due = now
                await asyncio.sleep(0)
            else:
                due = max(due + STEADY_BLOCK_RECORDS / rate, now - 1)
                await asyncio.sleep(max(0, due - now))

    def _send(self, count: int) -> None:
        first = self.ledger.sent
        values = [value_of(number, FILLER) for number in range(first, first + count)]
        self.ledger.send(values)
        future = self._producer.send_many(values)
        future.add_done_callback(lambda found: self._settled(first, found))

    def _settled(self, first: int, future: asyncio.Future[list[Range]]) -> None:
        if future.cancelled():
            return
        failure = future.exception()
        if failure is not None:
            self.failure = self.failure or failure
            return
        self.ledger.acknowledge(first, future.result())
        self.pauses.acknowledged()
