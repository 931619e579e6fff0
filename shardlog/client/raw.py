"""Entries as they stand in the log, control entries included, for those who keep copies of it.

Every entry is verified, and that it continues the one before.  From the leader, one that is not as
it should be is asked for again, and repaired.  Of one node's own copy it is told: whoever asks for
that wants to know.  While one answer is used the next is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from typing import NamedTuple

from shardlog.client import background
from shardlog.client.directory import Directory
from shardlog.client.exchange import Exchange
from shardlog.client.failures import (
    CorruptLog,
    DeadlineExceeded,
    InvalidArgument,
    NoLeader,
    OffsetTrimmed,
    Repairing,
    Unavailable,
)
from shardlog.client.limits import ClientLimits
from shardlog.client.link import Channel
from shardlog.client.links import Links
from shardlog.client.lookup import Lookup
from shardlog.client.patience import Deadline
from shardlog.client.portion import Portion
from shardlog.client.reading import VERIFIED_READS_MAX
from shardlog.client.route import Route
from shardlog.client.verification import Continuity, Mismatch
from shardlog.protocol.entry import Header
from shardlog.protocol.header_bytes import ENTRY_HEADER_BYTES
from shardlog.transport.frames import FIXED, Frame, FrameType, encode_read

_RESULT = FIXED[FrameType.READ_RESULT]


class RawEntry(NamedTuple):
    """A verified entry; `raw` is its header and its body as they stand."""

    header: Header
    raw: memoryview

    @property
    def body(self) -> memoryview:
        return self.raw[ENTRY_HEADER_BYTES:]


class NodeRoute(Route):
    """The way to one node, whether it leads or not."""

    def __init__(
        self, shard: str, directory: Directory, links: Links, limits: ClientLimits, node: str
    ) -> None:
        super().__init__(shard, directory, links, limits)
        self._node = node

    async def _next_address(self) -> str:
        placement = await self._asked()
        address = placement.addresses.get(self._node)
        if address is None:
            known = ", ".join(sorted(placement.addresses)) or "none"
            raise InvalidArgument(f"there is no node {self._node!r} of {self.shard!r}: {known}")
        return address

    async def reconsider(self, channel: Channel) -> bool:
        """There is nobody else to ask."""
        return self._channel is not channel or not channel.usable

    async def hindered(self, channel: Channel, failure: Unavailable) -> None:
        """What is damaged stays so."""
        if isinstance(failure, Repairing):
            reason = f"{self._node}'s own copy of it is damaged"
            raise CorruptLog(self.shard, failure.offset, reason) from failure

    def _note_absent(self, address: str) -> None:
        raise NoLeader(f"{self._node} holds no replica of {self.shard!r}")


class RawReader:
    """Reads from the leader, or a node's own copy."""

    def __init__(self, exchange: Exchange, deadline_ms: int, *, own: bool) -> None:
        self.shard = exchange.route.shard
        self._exchange = exchange
        self._limits = exchange.limits
        self._lookup = Lookup(exchange)
        self._deadline_ms = deadline_ms
        self._own = own
        self._portion = Portion(exchange.limits)

    async def end(self) -> int:
        """Where what is committed ends: by a quorum's word, or as far as the node knows."""
        if not self._own:
            return await self._lookup.end(self._deadline())
        frame = await self._read(1 << 62)
        commit: int = _RESULT.unpack_from(frame.payload)[1]
        return commit

    async def first(self) -> int:
        """The first offset that is kept there."""
        if not self._own:
            return (await self._lookup.locate(0, self._deadline())).first
        try:
            await self._read(0)
        except OffsetTrimmed as trimmed:
            return trimmed.first
        return 0

    async def entry_at(self, offset: int) -> RawEntry:
        """The one that holds this offset."""
        async for entries in self.entries(offset, offset + 1):
            return entries[0]
        raise CorruptLog(self.shard, offset, "nothing is there")

    async def entries(
        self, start: int, end: int, parent: int | None = None
    ) -> AsyncGenerator[list[RawEntry], None]:
        """From the entry that holds `start` to the one that holds the last before `end`.

        `parent` is the checksum of the entry before, if that is known: then one begins at `start`.
        """
        at = Continuity(start, parent)
        asked = background.start(self._read(at.next)) if start < end else None
        deadline = self._deadline()
        try:
            while asked is not None:
                found = await self._taken(at, await background.result_of(asked))
                asked = background.start(self._read(at.next)) if at.next < end else None
                if found:
                    deadline = self._deadline()
                    yield [entry for entry in found if entry.header.base < end]
                elif deadline.passed:
                    what = f"reading {self.shard!r} to {end}"
                    raise DeadlineExceeded(what, deadline.ms)
        finally:
            if asked is not None:
                asked.cancel()
                await asyncio.gather(asked, return_exceptions=True)

    async def _taken(self, at: Continuity, frame: Frame) -> list[RawEntry]:
        try:
            return _take(at, frame)
        except Mismatch as mismatch:
            if self._own:
                raise CorruptLog(self.shard, mismatch.offset, str(mismatch)) from mismatch
            return await self._verified(at, mismatch)

    async def _verified(self, at: Continuity, mismatch: Mismatch) -> list[RawEntry]:
        backoff = self._exchange.backoff()
        for _ in range(VERIFIED_READS_MAX):
            try:
                return _take(at, await self._lookup.verified(at.next, self._deadline()))
            except Mismatch as again:
                mismatch = again
            await asyncio.sleep(backoff.next_ms() / 1000)
        raise CorruptLog(self.shard, mismatch.offset, str(mismatch)) from mismatch

    async def _read(self, start: int) -> Frame:
        limits = self._limits
        request = partial(
            encode_read,
            start=start,
            entries_max=limits.read_entries_max,
            bytes_max=self._portion.bytes,
            tail=not self._own,
            own=self._own,
        )
        what = f"reading {self.shard!r} at {start}"
        begun = self._now()
        frame = await self._exchange.ask(what, request, self._deadline(), limits.tail_wait_ms)
        self._portion.answered(1000 * (self._now() - begun), len(frame.payload))
        return frame

    def _deadline(self) -> Deadline:
        return Deadline(self._deadline_ms, self._now)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _take(at: Continuity, frame: Frame) -> list[RawEntry]:
    _, _, count, _ = _RESULT.unpack_from(frame.payload)
    raw = frame.payload[_RESULT.size :]
    found = []
    position = 0
    for header, body in at.take_all(raw, count):
        length = ENTRY_HEADER_BYTES + len(body)
        found.append(RawEntry(header, raw[position : position + length]))
        position += length
    return found
