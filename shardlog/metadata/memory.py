"""The metadata store in memory, for tests and the simulator.

`Memory` is the store; its handles are what processes would hold.  There is no clock, thread or
randomness in it, and no call gives up the event loop, so a deterministic loop runs it the same way
every time.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from shardlog.metadata.failures import Closed
from shardlog.metadata.store import (
    ABSENT,
    CHANGES_KEPT,
    Change,
    Listing,
    Relisted,
    Swapped,
    Versioned,
    Watch,
    require_key,
    require_prefix,
    require_revision,
    require_write,
)
from shardlog.metadata.watching import PAGE_CHANGES_MAX, Bell, Page, PagedWatch

WHERE = "memory"


class Memory:
    """What is stored.  It lives until nobody holds it, whatever happens to its handles."""

    __slots__ = ("_changes", "_handles", "_records", "revision")

    def __init__(self, changes_kept: int = CHANGES_KEPT) -> None:
        self.revision = 0
        self._records: dict[str, Versioned] = {}
        # Those with the latest revisions, without a gap, the last one being `revision`.
        self._changes: deque[Change] = deque(maxlen=changes_kept)
        self._handles: list[MemoryStore] = []

    def handle(self) -> MemoryStore:
        handle = MemoryStore(self)
        self._handles.append(handle)
        return handle

    def forget(self, handle: MemoryStore) -> None:
        self._handles.remove(handle)

    def get(self, key: str) -> Versioned | None:
        return self._records.get(key)

    def records(self, prefix: str) -> tuple[Versioned, ...]:
        found = (record for key, record in self._records.items() if key.startswith(prefix))
        return tuple(sorted(found, key=lambda record: record.key))

    def swap(self, key: str, version: int, value: bytes | None) -> Swapped:
        current = self._records.get(key)
        if version != (current.version if current else ABSENT):
            return Swapped(False, current)
        self.revision += 1
        if value is None:
            del self._records[key]
        else:
            self._records[key] = Versioned(key, self.revision, value)
        self._changes.append(Change(self.revision, key, value))
        for handle in self._handles:
            handle.bell.tell(self.revision)
        return Swapped(True, self._records.get(key))

    def page(self, prefix: str, from_revision: int) -> Page:
        end = self.revision + 1
        kept_from = end - len(self._changes)
        if not kept_from <= from_revision <= end:
            return Page((Relisted(self.revision, self.records(prefix)),), end)
        later = islice(self._changes, from_revision - kept_from, None)
        wanted = (change for change in later if change.key.startswith(prefix))
        changes = tuple(islice(wanted, PAGE_CHANGES_MAX))
        is_full = len(changes) == PAGE_CHANGES_MAX
        return Page(changes, changes[-1].revision + 1 if is_full else end)


class MemoryStore:
    """One handle on a `Memory`."""

    __slots__ = ("_closed", "_memory", "bell")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._closed = False
        self.bell = Bell()
        self.bell.tell(memory.revision)

    def _open(self) -> Memory:
        if self._closed:
            raise Closed(WHERE)
        return self._memory

    async def get(self, key: str) -> Versioned | None:
        require_key(key)
        return self._open().get(key)

    async def list(self, prefix: str) -> Listing:
        require_prefix(prefix)
        memory = self._open()
        return Listing(memory.revision, memory.records(prefix))

    async def compare_and_swap(self, key: str, version: int, value: bytes | None) -> Swapped:
        require_write(key, version, value)
        return self._open().swap(key, version, value)

    def watch(self, prefix: str, from_revision: int) -> Watch:
        require_prefix(prefix)
        require_revision(from_revision)
        return PagedWatch(self, prefix, from_revision)

    async def page(self, prefix: str, from_revision: int) -> Page:
        return self._open().page(prefix, from_revision)

    async def moved_on(self, seen: int) -> None:
        await self.bell.moved_on(seen)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._memory.forget(self)
            self.bell.wake()
