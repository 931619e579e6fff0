"""Each store as the conformance suite sees it: a place that handles are opened on."""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from etcd.cluster import EtcdCluster

from shardlog.metadata.etcd.store import EtcdStore
from shardlog.metadata.memory import Memory
from shardlog.metadata.sqlite import SqliteStore
from shardlog.metadata.store import MetadataStore, News, Swapped, Versioned, Watch

CHANGES_KEPT = 200
POLL_MS = 5


class Backend(ABC):
    is_pushing = False
    """Changes are under way to a watch as soon as they are written, whether or not it is read."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._open_handles = 0

    def at(self, revision: int) -> int:
        """The revision of the test's write number `revision`."""
        return revision

    @property
    def all_closed(self) -> bool:
        return self._open_handles == 0

    @asynccontextmanager
    async def handle(self) -> AsyncIterator[MetadataStore]:
        handle = await self._open()
        self._open_handles += 1
        try:
            yield handle
        finally:
            await handle.close()
            self._open_handles -= 1

    @abstractmethod
    async def _open(self) -> MetadataStore: ...

    async def forget_changes(self, store: MetadataStore) -> None:
        """Make the store forget all changes so far, as etcd does when it is compacted."""
        for number in range(CHANGES_KEPT + 1):
            await put(store, "elsewhere", b"%d" % number)


class MemoryBackend(Backend):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.memory = Memory(changes_kept=CHANGES_KEPT)

    async def _open(self) -> MetadataStore:
        return self.memory.handle()


class SqliteBackend(Backend):
    async def _open(self) -> MetadataStore:
        path = self.directory / "metadata.db"
        return await SqliteStore.open(path, poll_ms=POLL_MS, changes_kept=CHANGES_KEPT)


class EtcdBackend(Backend):
    """A prefix of its own in an etcd that others used before: its revisions go on."""

    is_pushing = True

    def __init__(self, directory: Path, cluster: EtcdCluster) -> None:
        super().__init__(directory)
        self._cluster = cluster
        self._settings = cluster.settings(f"/test/{secrets.token_hex(8)}/")
        self._before = cluster.revision

    def at(self, revision: int) -> int:
        return self._before + revision

    async def _open(self) -> MetadataStore:
        return await EtcdStore.open(self._settings)

    async def forget_changes(self, store: MetadataStore) -> None:
        await put(store, "elsewhere", b"")
        await asyncio.to_thread(self._cluster.compact)


async def put(store: MetadataStore, key: str, value: bytes) -> Versioned:
    """Write whatever stands there."""
    while True:
        current = await store.get(key)
        swapped = await store.compare_and_swap(key, current.version if current else 0, value)
        if swapped.done:
            return written(swapped)


async def delete(store: MetadataStore, key: str) -> None:
    current = await store.get(key)
    assert current
    assert await store.compare_and_swap(key, current.version, None) == Swapped(True, None)


def written(swapped: Swapped) -> Versioned:
    assert swapped.done
    assert swapped.current
    return swapped.current


async def take(watch: Watch, count: int) -> list[News]:
    return [await anext(watch) for _ in range(count)]


async def settle() -> None:
    """Let everybody who can go on do so, threads too."""
    for _ in range(20):
        await asyncio.sleep(0.001)
