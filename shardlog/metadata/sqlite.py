"""The metadata store in one SQLite file: the one-machine cluster's.

The standard library's sqlite3 in one worker thread, not aiosqlite: a compare-and-swap is several
statements, and here all of them run in one visit to the thread.  A task that is cancelled between
two awaits can therefore never leave a transaction open, and a write costs one hop, not six.

SQLite tells nobody about the commits of another process, so a handle polls the revision while,
and only while, some watch waits; one poller serves them all.  The handle's own writes are told at
once.  A process that is killed leaves nothing to clean up: SQLite drops what was not committed, and
with `synchronous = FULL` each commit is synced before it is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from os import PathLike, fspath
from typing import ParamSpec, TypeVar

from shardlog.metadata.failures import Closed, MetadataFailure, Unavailable
from shardlog.metadata.sqlite_file import SqliteFile
from shardlog.metadata.store import (
    CHANGES_KEPT,
    Listing,
    Swapped,
    Versioned,
    Watch,
    require_key,
    require_prefix,
    require_revision,
    require_write,
)
from shardlog.metadata.watching import Bell, Page, PagedWatch

POLL_MS = 50
BUSY_TIMEOUT_MS = 2000
THREAD_NAME = "shardlog-metadata"

P = ParamSpec("P")
T = TypeVar("T")


class SqliteStore:
    """One handle: a connection, its thread, and a poller while a watch waits."""

    __slots__ = ("_bell", "_closed", "_file", "_poll_ms", "_poller", "_thread", "path")

    def __init__(self, path: str, file: SqliteFile, thread: ThreadPoolExecutor, poll_ms: int):
        self.path = path
        self._file = file
        self._thread = thread
        self._poll_ms = poll_ms
        self._bell = Bell()
        # Runs while the bell is awaited.
        self._poller: asyncio.Task[None] | None = None
        self._closed = False

    @classmethod
    async def open(
        cls,
        path: str | PathLike[str],
        *,
        poll_ms: int = POLL_MS,
        busy_timeout_ms: int = BUSY_TIMEOUT_MS,
        changes_kept: int = CHANGES_KEPT,
    ) -> SqliteStore:
        """Open the file, or make it if it is absent or empty; its directory must be there.

        A write by another process is told by a watch after at most `poll_ms`; a write waits for
        other processes for at most `busy_timeout_ms`.
        """
        if min(poll_ms, busy_timeout_ms, changes_kept) < 1:
            raise ValueError("poll_ms, busy_timeout_ms and changes_kept must be positive")
        name = fspath(path)
        thread = ThreadPoolExecutor(1, THREAD_NAME)
        opening = thread.submit(SqliteFile, name, busy_timeout_ms, changes_kept)
        try:
            file = await asyncio.wrap_future(opening)
        except BaseException:
            opening.add_done_callback(_close_opened)
            thread.shutdown(wait=False)
            raise
        return cls(name, file, thread, poll_ms)

    async def get(self, key: str) -> Versioned | None:
        require_key(key)
        return await self._call(self._file.get, key)

    async def list(self, prefix: str) -> Listing:
        require_prefix(prefix)
        return await self._call(self._file.list, prefix)

    async def compare_and_swap(self, key: str, version: int, value: bytes | None) -> Swapped:
        require_write(key, version, value)
        swapped, revision = await self._call(self._file.compare_and_swap, key, version, value)
        self._bell.tell(revision)
        return swapped

    def watch(self, prefix: str, from_revision: int) -> Watch:
        require_prefix(prefix)
        require_revision(from_revision)
        return PagedWatch(self, prefix, from_revision)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._bell.wake()
        if self._poller:
            self._poller.cancel()
            self._poller = None
        # Behind all calls that are under way; from here on no new ones come.
        closing = self._thread.submit(self._file.close)
        self._thread.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(closing))
        # The thread has nothing left to do: this is to see it end, not to wait for work.
        self._thread.shutdown()

    async def _call(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._closed:
            raise Closed(self.path)
        return await asyncio.wrap_future(self._thread.submit(work, *args, **kwargs))

    # --- watches ---------------------------------------------------------------------------------

    async def page(self, prefix: str, from_revision: int) -> Page:
        while True:
            try:
                page = await self._call(self._file.page, prefix, from_revision)
            except Unavailable:
                await asyncio.sleep(self._poll_ms / 1000)
                continue
            if not page.news:
                self._bell.tell(page.next_revision - 1)
            return page

    async def moved_on(self, seen: int) -> None:
        if self._closed:
            return
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll(), name=f"{THREAD_NAME} poll")
        try:
            await self._bell.moved_on(seen)
        finally:
            if self._poller and not self._bell.is_awaited:
                self._poller.cancel()
                self._poller = None

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._poll_ms / 1000)
            try:
                self._bell.tell(await self._call(self._file.revision))
            except MetadataFailure:
                # Everybody asks for a page then, and gets the same failure or has it retried.
                self._bell.wake()


def _close_opened(opening: Future[SqliteFile]) -> None:
    """Whoever wanted the file was cancelled meanwhile."""
    if not opening.cancelled() and not opening.exception():
        opening.result().close()
