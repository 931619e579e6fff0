"""The nodes of the cluster as its coordinator knows them: where they are, and who is alive."""

from __future__ import annotations

import asyncio

import aiohttp

from shardlog.local.cluster_file import NodePlace, load
from shardlog.local.layout import Layout

PROBE_MS = 500
PROBE_ABSENT_MS = 100
PROBE_TIMEOUT_MS = 2000


class Nodes:
    """Reads the cluster's file again when it has changed: nodes may be added at any time."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.places: dict[str, NodePlace] = {}
        self.alive: frozenset[str] = frozenset()
        self._seen = (0, 0)
        self.read()

    def read(self) -> None:
        found = self.layout.cluster_file.stat()
        if (found.st_ino, found.st_mtime_ns) != self._seen:
            self._seen = (found.st_ino, found.st_mtime_ns)
            self.places = {place.name: place for place in load(self.layout).nodes}

    async def run(self) -> None:
        """Ask everybody every now and then."""
        timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_MS / 1000)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                self.read()
                places = list(self.places.values())
                answers = await asyncio.gather(*[_is_alive(session, each) for each in places])
                self.alive = frozenset(
                    place.name for place, alive in zip(places, answers, strict=True) if alive
                )
                whole = len(self.alive) == len(places)
                await asyncio.sleep((PROBE_MS if whole else PROBE_ABSENT_MS) / 1000)

    def data_address(self, node: str) -> str | None:
        place = self.places.get(node)
        return place.data if place else None

    def control_address(self, node: str) -> str | None:
        place = self.places.get(node)
        return place.control if place else None


async def _is_alive(session: aiohttp.ClientSession, place: NodePlace) -> bool:
    try:
        async with session.get(f"http://{place.http}/healthz") as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False
