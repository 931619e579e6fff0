"""Commands of a shard, one at a time, each answered in time and then heard of.

The machine refuses a command as busy while it does another or writes a record of its own, so
whoever asks waits for its turn.  A command that was accepted stands in the metadata; the watch
tells of it a moment later, and whoever looks at the records next shall find what was done.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress

from shardlog.coordinator.host import CoordinatorHost
from shardlog.metadata.records import SHARDS, shard_key
from shardlog.protocol.coordination import BUSY, Accepted, Command, Rejected

COMMAND_TIMEOUT_MS = 10_000
HEARD_MS = 2
IN_DOUBT = Rejected(0, "no answer in time: it may be done, or not")


class Commander:
    """All commands of one process go this way."""

    def __init__(self, host: CoordinatorHost) -> None:
        self.host = host
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def is_busy(self, shard: str) -> bool:
        return shard in self._turns and self._turns[shard].locked()

    async def command(self, shard: str, command: Command) -> Accepted | Rejected:
        """`Unavailable` if the store does not answer when it is asked what stands now."""
        async with self._turns[shard]:
            answer = await self._obeyed(shard, command)
        if isinstance(answer, Accepted):
            await self.catch_up(shard)
        return answer

    async def _obeyed(self, shard: str, command: Command) -> Accepted | Rejected:
        """One that was refused as busy to the end is not done; one without an answer may be."""
        answer: Accepted | Rejected = IN_DOUBT
        with suppress(TimeoutError):
            async with asyncio.timeout(COMMAND_TIMEOUT_MS / 1000):
                while True:
                    answer = IN_DOUBT
                    answer = await self.host.command(shard, command)
                    if not isinstance(answer, Rejected) or answer.reason != BUSY:
                        break
                    await asyncio.sleep(HEARD_MS / 1000)
        return answer

    async def catch_up(self, shard: str) -> None:
        """Until the host knows of the shard what stands in the store now."""
        found = await self.host.store.get(shard_key(shard))
        await self._heard_of(found.version if found is not None else 0)

    async def catch_up_with_all(self) -> None:
        """Of every shard: what is gone may still be known, what is there is."""
        listing = await self.host.store.list(SHARDS)
        await self._heard_of(max((each.version for each in listing.records), default=0))

    async def _heard_of(self, version: int) -> None:
        while self.host.revision < version:
            await asyncio.sleep(HEARD_MS / 1000)
