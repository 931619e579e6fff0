"""A watch over a store that remembers its latest changes: memory and sqlite.

The watch has no queue that writers fill.  It is a position that pulls a page when its reader asks
for more, so a slow reader costs nothing, a cancelled read loses nothing, and there is nothing to
clean up.  Between pages it waits until the store has moved on from the revision that it has seen;
that is compared, not signalled, so news that arrive before the waiting begins are not missed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from shardlog.metadata.store import News

PAGE_CHANGES_MAX = 64


@dataclass(frozen=True, slots=True)
class Page:
    """Some news, and the first revision that they do not cover.

    Without news it covers all there is: the store stands at `next_revision - 1`.
    """

    news: tuple[News, ...]
    next_revision: int


class Source(Protocol):
    async def page(self, prefix: str, from_revision: int) -> Page: ...

    async def moved_on(self, seen: int) -> None:
        """Return when the store's revision may be another than `seen`."""
        ...


class PagedWatch:
    __slots__ = ("_closed", "_next", "_pending", "_prefix", "_reading", "_source")

    def __init__(self, source: Source, prefix: str, from_revision: int) -> None:
        self._source = source
        self._prefix = prefix
        # All news below are in `_pending` or were taken from it.
        self._next = max(1, from_revision)
        self._pending: deque[News] = deque()
        self._reading = False
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> News:
        if self._reading:
            raise RuntimeError("a watch has one reader")
        self._reading = True
        try:
            while not self._pending:
                if self._closed:
                    raise StopAsyncIteration
                await self._pull()
            return self._pending.popleft()
        finally:
            self._reading = False

    async def _pull(self) -> None:
        page = await self._source.page(self._prefix, self._next)
        self._pending.extend(page.news)
        self._next = page.next_revision
        if not page.news:
            await self._source.moved_on(page.next_revision - 1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self._closed = True
        self._pending.clear()


class Bell:
    """The latest revision that a handle knows of, and who waits for another one."""

    __slots__ = ("_waiting", "revision")

    def __init__(self) -> None:
        self.revision = 0
        # A dict, so that they wake up in the order in which they came.
        self._waiting: dict[asyncio.Future[None], None] = {}

    @property
    def is_awaited(self) -> bool:
        return bool(self._waiting)

    def tell(self, revision: int) -> None:
        if revision != self.revision:
            self.revision = revision
            self.wake()

    def wake(self) -> None:
        """Let everybody look again, news or not."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    async def moved_on(self, seen: int) -> None:
        if self.revision != seen:
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting[waiting] = None
        try:
            await waiting
        finally:
            del self._waiting[waiting]
