"""Appending under a session that outlives its process.

A session and the number of a request name a batch for good: whoever sends the same batch again
under the same name, another process or two at once, appends it once.  So work that can be done
again from its beginning, in the same order, needs no other memory than its session's name and how
far it got, and both stand in the log.  A session that was evicted ends it: nothing goes on under
another.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from shardlog.client.batching import Request, Told, futures_of
from shardlog.client.delivery import Delivery
from shardlog.client.exchange import Exchange
from shardlog.client.failures import ClientFailure, Closed, OffsetForgotten
from shardlog.client.limits import REQUESTS_MAX
from shardlog.client.unseen import silence


class NumberedProducer:
    """Appends bodies, the first of them as the request after `last`."""

    def __init__(self, exchange: Exchange, session: int, last: int, deadline_ms: int) -> None:
        self.session = session
        self.last = last
        """The last request that was put."""
        self._deadline_s = deadline_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._delivery = Delivery(
            exchange, REQUESTS_MAX, deadline_ms, self._settled, (session, last)
        )
        self._unsettled = 0
        self._failure: ClientFailure | None = None
        self._change: asyncio.Future[None] | None = None
        self._closed = False

    async def append(self, body: bytes, count: int) -> asyncio.Future[int]:
        """When there is room; the future has the offset, or `OffsetForgotten`."""
        while self._unsettled >= REQUESTS_MAX and self._failure is None:
            await self._changed()
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise Closed("the producer is closed")
        told: asyncio.Future[int] = self._loop.create_future()
        everyone: list[Told] = [told]
        self._unsettled += 1
        self.last += 1
        expires_at = self._loop.time() + self._deadline_s
        self._delivery.put(Request(body, count, expires_at, everyone))
        return told

    async def flush(self) -> None:
        """Until all are appended; raises the first failure, after which nothing else is."""
        while self._unsettled and self._failure is None:
            await self._changed()
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        self._closed = True
        await self._delivery.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if value is None:
                await self.flush()
        finally:
            await self.close()

    async def _changed(self) -> None:
        if self._change is None or self._change.done():
            self._change = self._loop.create_future()
        await asyncio.shield(self._change)

    def _settled(self, request: Request, failure: ClientFailure | None) -> None:
        self._unsettled -= 1
        silence(futures_of(request.told))
        if failure is not None and not isinstance(failure, OffsetForgotten):
            self._failure = self._failure or failure
        if self._change is not None and not self._change.done():
            self._change.set_result(None)
