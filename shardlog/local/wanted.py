"""How many replicas each shard shall have: kept in the metadata store beside the shards' records.

A shard that nobody has scaled has no number of its own: it shall have what it has.  Because the
number is stored, a coordinator that is killed half way goes on when it is back.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

from shardlog.metadata.failures import Unavailable
from shardlog.metadata.store import ABSENT, Change, Listing, MetadataStore, Versioned

WANTED = "wanted/"
FORMAT = 1
REREAD_MS = 100


class WantedReplicas:
    """All numbers, as they were last heard of.  `run` is a task for as long as they are needed."""

    def __init__(self, store: MetadataStore) -> None:
        self.store = store
        self.numbers: dict[str, int] = {}
        self.begun = asyncio.Event()

    async def run(self) -> None:
        """Follow what other processes write."""
        listing = await self._listing()
        self._relist(listing.records)
        self.begun.set()
        async with self.store.watch(WANTED, listing.next_revision) as watch:
            async for news in watch:
                if isinstance(news, Change):
                    self._learn(news.key, news.value)
                else:
                    self._relist(news.records)

    async def _listing(self) -> Listing:
        while True:
            try:
                return await self.store.list(WANTED)
            except Unavailable:
                await asyncio.sleep(REREAD_MS / 1000)

    async def write(self, shard: str, replicas: int | None) -> None:
        """Whatever stands there now is replaced; None removes it.

        `Unavailable` if the store does not answer.
        """
        key = WANTED + shard
        value = None if replicas is None else _encoded(replicas)
        found = await self.store.get(key)
        while found is not None or value is not None:
            version = found.version if found else ABSENT
            swapped = await self.store.compare_and_swap(key, version, value)
            if swapped.done:
                break
            found = swapped.current
        self._learn(key, value)

    def _relist(self, records: Iterable[Versioned]) -> None:
        self.numbers.clear()
        for record in records:
            self._learn(record.key, record.value)

    def _learn(self, key: str, value: bytes | None) -> None:
        """What cannot be read is left alone, and its shard as it is."""
        number = _decoded(value) if value is not None else None
        if number is None:
            self.numbers.pop(key.removeprefix(WANTED), None)
        else:
            self.numbers[key.removeprefix(WANTED)] = number


def _encoded(replicas: int) -> bytes:
    return json.dumps({"format": FORMAT, "replicas": replicas}).encode()


def _decoded(value: bytes) -> int | None:
    try:
        found = json.loads(value)
        known = found["format"] == FORMAT and type(found["replicas"]) is int
    except (ValueError, KeyError, TypeError):
        return None
    return int(found["replicas"]) if known and found["replicas"] > 0 else None
