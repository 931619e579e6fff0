"""Writers that count, and the proof that no increment was lost or doubled."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

from shardlog.metadata.failures import Unavailable
from shardlog.metadata.store import Change, MetadataStore, Versioned, Watch

COUNTER = "counter"


@dataclass
class Count:
    """`done` are the increments that were answered, by the revision they were answered with."""

    answered: dict[str, int] = field(default_factory=dict)
    uncertain: set[str] = field(default_factory=set)
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def write(self, store: MetadataStore, writer: int) -> None:
        """Increment until told to stop; an increment that may stand is never tried again."""
        number = 0
        while not self.stop.is_set():
            number += 1
            try:
                await self._increment(store, f"{writer}-{number}")
            except Unavailable:
                await asyncio.sleep(0.05)

    async def _increment(self, store: MetadataStore, tag: str) -> None:
        while True:
            found = await store.get(COUNTER)
            value = json.dumps({"count": count_of(found) + 1, "by": tag}).encode()
            version = found.version if found else 0
            try:
                swapped = await store.compare_and_swap(COUNTER, version, value)
            except Unavailable:
                self.uncertain.add(tag)
                raise
            if swapped.done and swapped.current:
                self.answered[tag] = swapped.current.version
                return

    async def reach(self, answers: int) -> None:
        while len(self.answered) < answers:
            await asyncio.sleep(0.01)

    async def check(self, store: MetadataStore, watch: Watch) -> int:
        """`watch` has told nothing yet; the final count."""
        final = await store.get(COUNTER)
        stood: dict[str, int] = {}
        while len(stood) < count_of(final):
            news = await anext(watch)
            assert isinstance(news, Change)
            assert news.value
            told = json.loads(news.value)
            assert told["count"] == len(stood) + 1
            assert told["by"] not in stood
            stood[told["by"]] = news.revision
        assert self.answered.items() <= stood.items()
        assert stood.keys() <= self.answered.keys() | self.uncertain
        return len(stood)


def count_of(found: Versioned | None) -> int:
    return int(json.loads(found.value)["count"]) if found else 0
