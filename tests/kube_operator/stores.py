"""Metadata stores that answer late, not at all, or just not the one who asked."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from shardlog.metadata.failures import Unavailable
from shardlog.metadata.records import decode_shard, shard_key
from shardlog.metadata.store import Listing, MetadataStore, News, Swapped, Versioned, Watch
from shardlog.protocol.shard import Shard


class Outage:
    """A store whose answers can be held back, as those of etcd without a quorum."""

    def __init__(self, inner: MetadataStore) -> None:
        self.inner = inner
        self.down = False

    def _require(self) -> None:
        if self.down:
            raise Unavailable("etcd", "no member answers")

    async def get(self, key: str) -> Versioned | None:
        self._require()
        return await self.inner.get(key)

    async def list(self, prefix: str) -> Listing:
        self._require()
        return await self.inner.list(prefix)

    async def compare_and_swap(self, key: str, version: int, value: bytes | None) -> Swapped:
        self._require()
        return await self.inner.compare_and_swap(key, version, value)

    def watch(self, prefix: str, from_revision: int) -> Watch:
        return self.inner.watch(prefix, from_revision)

    async def close(self) -> None:
        await self.inner.close()


def half_way(shard: Shard) -> str:
    """How far a change is, by the record."""
    if shard.joining:
        return "Joining with a replica" if shard.joining.incarnation else "Joining"
    return shard.phase.value.capitalize() if shard.phase else ""


class Breaking(Outage):
    """Whoever writes a record of a change that is so far never hears that it is written."""

    def __init__(self, inner: MetadataStore, so_far: str) -> None:
        super().__init__(inner)
        self.so_far = so_far
        self.written: Shard | None = None

    async def compare_and_swap(self, key: str, version: int, value: bytes | None) -> Swapped:
        swapped = await super().compare_and_swap(key, version, value)
        if swapped.done and value is not None and key == shard_key("orders"):
            record = decode_shard(key, value)
            if half_way(record) == self.so_far:
                self.written = record
                await asyncio.Event().wait()
        return swapped


class LateWatch:
    """Tells what it hears once `told` is set."""

    def __init__(self, inner: Watch, told: asyncio.Event) -> None:
        self.inner = inner
        self.told = told

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> News:
        news = await self.inner.__anext__()
        await self.told.wait()
        return news

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
        await self.inner.aclose()


class Late(Outage):
    """Its watches tell nothing while `told` is not set; `asked` counts who reads the records."""

    def __init__(self, inner: MetadataStore) -> None:
        super().__init__(inner)
        self.told = asyncio.Event()
        self.told.set()
        self.asked = 0

    async def get(self, key: str) -> Versioned | None:
        self.asked += key == shard_key("orders")
        return await super().get(key)

    async def list(self, prefix: str) -> Listing:
        self.asked += 1
        return await super().list(prefix)

    def watch(self, prefix: str, from_revision: int) -> Watch:
        return LateWatch(super().watch(prefix, from_revision), self.told)
