"""Carries out the upkeep of a node's shards.

A replica is told it with the question how it is; here it becomes work on files.  A leader that
has more than shall be kept, or older, drops whole segments, and its followers follow.  Where
entries count before they are synced, they are synced here, every `KEEP_MS`; and once more when the
node stops in good order, so that nothing is in doubt when its machine is started again.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from shardlog.protocol.effects import Outgrown
from shardlog.protocol.states import Role
from shardlog.protocol.upkeep import Upkeep
from shardlog.storage.failures import StorageFailure
from shardlog.storage.relaxing import Flush, Relax
from shardlog.storage.retention import trim_to

if TYPE_CHECKING:
    from shardlog.storage.store import Store
    from shardlog_node.host import HostedReplica, NodeHost

KEEP_MS = 1000
LAST_SYNC_MS = 5000
LOOK_MS = 10


class Keeper:
    """`run` is a task for as long as the node lives."""

    def __init__(self, host: NodeHost, keep_ms: int = KEEP_MS) -> None:
        self._host = host
        self._keep_ms = keep_ms

    async def run(self) -> None:
        try:
            with ThreadPoolExecutor(1, "keep") as thread:
                while True:
                    for shard, hosted in list(self._host.replicas.items()):
                        self._sync(hosted)
                        await self._drop(thread, shard, hosted)
                    await asyncio.sleep(self._keep_ms / 1000)
        finally:
            await self._settle()

    def _sync(self, hosted: HostedReplica) -> None:
        if hosted.stopped or hosted.replica.role is Role.NOT_MEMBER:
            return
        store, relaxed = hosted.store, hosted.replica.upkeep.relaxed
        if relaxed != store.relaxed:
            hosted.tend(Relax(relaxed))
        elif store.files.unsynced:
            hosted.tend(Flush())

    async def _drop(self, thread: ThreadPoolExecutor, shard: str, hosted: HostedReplica) -> None:
        replica = hosted.replica
        if replica.lead is None or not replica.upkeep.bounded:
            return
        loop = asyncio.get_running_loop()
        first = await loop.run_in_executor(
            thread, kept_from, hosted.store, replica.upkeep, self._host.clock_ms()
        )
        if first > replica.log.first and self._host.replicas.get(shard) is hosted:
            hosted.step(Outgrown(first))

    async def _settle(self) -> None:
        """Whoever cannot be synced now is in doubt only if the machine does not stay up either."""
        relaxed = [each for each in self._host.replicas.values() if each.store.relaxed]
        for hosted in relaxed:
            if not hosted.stopped:
                hosted.tend(Relax(False))
        for _ in range(LAST_SYNC_MS // LOOK_MS):
            if not any(each.store.files.relaxed and not each.stopped for each in relaxed):
                return
            await asyncio.sleep(LOOK_MS / 1000)


def kept_from(store: Store, upkeep: Upkeep, now_ms: int) -> int:
    """The first offset that has to be kept; in a thread."""
    oldest_ms = now_ms - upkeep.retention_ms if upkeep.retention_ms else None
    try:
        return trim_to(store.files.segments, upkeep.retention_bytes or None, oldest_ms)
    except StorageFailure:
        return 0  # it cannot be told now
