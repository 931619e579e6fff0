"""Committed entries as a stream of bytes, for a `Fetch` that comes over the control plane.

The bytes are those of the segments, read in a thread, one piece at a time: however slowly they are
taken, a stream keeps one piece in memory, and there are only so many streams.  Whoever takes them
verifies the entries; only what is committed and durable here is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from shardlog.protocol.history import History, epoch_at
from shardlog.protocol.messages import Envelope, Fetch
from shardlog.storage.failures import StorageFailure
from shardlog.transport.failures import Rejected, Unavailable
from shardlog_node.host import HostedReplica, NodeHost

PIECE_BYTES_MAX = 1 << 20
STREAMS_MAX = 4


class Snapshots:
    """Of the replicas of one node."""

    def __init__(self, host: NodeHost) -> None:
        self._host = host
        self.streams = 0

    async def fetch(self, envelope: Envelope) -> AsyncIterator[bytes]:
        """From the entry that holds `start` to `end`, which is where an entry ends."""
        asked = envelope.message
        assert isinstance(asked, Fetch)
        hosted = self._found(envelope, asked)
        if self.streams >= STREAMS_MAX:
            raise Unavailable(f"{self.streams} snapshots are being read")
        self.streams += 1
        try:
            at = asked.start
            while at < asked.end:
                if self._host.replicas.get(envelope.shard) is not hosted:
                    raise Unavailable(f"the replica of {envelope.shard} has stopped")
                piece, at = await self._piece(hosted, at, asked.end)
                yield piece
        finally:
            self.streams -= 1

    def _found(self, envelope: Envelope, asked: Fetch) -> HostedReplica:
        hosted = self._host.replicas.get(envelope.shard)
        if hosted is None or envelope.dst_incarnation not in (0, hosted.replica.incarnation):
            raise Rejected(f"no such replica of {envelope.shard} here")
        replica = hosted.replica
        if not replica.log.first <= asked.start <= asked.end:
            raise Rejected(f"[{asked.start}, {asked.end}) of a log from {replica.log.first} on")
        if asked.end > min(replica.commit, replica.durable_end):
            raise Unavailable(f"not committed and durable here up to {asked.end}")
        if not _same(asked.history, replica.history, asked.start, asked.end):
            raise Rejected(f"another history than asked for in [{asked.start}, {asked.end})")
        return hosted

    async def _piece(self, hosted: HostedReplica, at: int, end: int) -> tuple[bytes, int]:
        """Whole entries, at least one, and where they end."""
        try:
            raw = hosted.store.raw(at, end, PIECE_BYTES_MAX)
            if raw is None:
                raise Unavailable(f"the entry at offset {at} cannot be read, or goes beyond {end}")
            return await asyncio.to_thread(hosted.store.read_raw, raw, once=True), raw.end
        except StorageFailure as failure:
            raise Unavailable(str(failure)) from failure


def _same(asked: History, ours: History, start: int, end: int) -> bool:
    """Whether both have the same epochs in `[start, end)`; nothing asked is everything."""
    inside = {span.first for span in (*asked, *ours) if start < span.first < end}
    places = {start, *inside} if start < end else set()
    return not asked or all(epoch_at(asked, at) == epoch_at(ours, at) for at in places)
