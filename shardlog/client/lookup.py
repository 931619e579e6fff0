"""Small questions about a log: where it ends, and where a time is in it."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from shardlog.client.exchange import Exchange
from shardlog.client.patience import Deadline
from shardlog.transport.frames import FIXED, Frame, FrameType, encode_locate, encode_read

_RESULT = FIXED[FrameType.READ_RESULT]
_LOCATED = FIXED[FrameType.LOCATED]
_BEYOND = 1 << 62
"""An offset that no log reaches, and that is never trimmed."""


class Located(NamedTuple):
    """`offset` is the place; `first` and `commit` are where the log begins and ends there."""

    offset: int
    first: int
    commit: int


class Lookup:
    """Asks the leader of one shard."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._shard = exchange.route.shard

    async def end(self, deadline: Deadline) -> int:
        """The commit offset, once a quorum has shown that nobody else leads."""
        request = partial(encode_read, start=_BEYOND, entries_max=0)
        frame = await self._exchange.ask(f"finding the end of {self._shard!r}", request, deadline)
        commit: int = _RESULT.unpack_from(frame.payload)[1]
        return commit

    async def verified(self, offset: int, deadline: Deadline) -> Frame:
        """The entry there, once the leader has verified it, and repaired it if need be."""
        request = partial(encode_read, start=offset, entries_max=1, verified=True)
        what = f"verifying {self._shard!r} at {offset}"
        return await self._exchange.ask(what, request, deadline)

    async def locate(self, timestamp_ms: int, deadline: Deadline) -> Located:
        """The first committed entry that is not older, as far as the leader knows."""
        return await self._located(f"locating a time in {self._shard!r}", timestamp_ms, deadline)

    async def first(self, deadline: Deadline) -> int:
        """The first offset that is kept, which every answer about a time tells."""
        what = f"finding the beginning of {self._shard!r}"
        return (await self._located(what, 0, deadline)).first

    async def _located(self, what: str, timestamp_ms: int, deadline: Deadline) -> Located:
        request = partial(encode_locate, timestamp_ms=timestamp_ms)
        frame = await self._exchange.ask(what, request, deadline)
        return Located(*_LOCATED.unpack(frame.payload)[1:])
