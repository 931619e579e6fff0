"""Segments on their way: hashed and written while they are still gathered.

Every part that is full is handed on, to one thread that hashes and to others that write; the
reading goes on meanwhile, because neither needs the interpreter for long.  The name comes last,
since it is made of the digest.  Where a segment may be there already nothing is written before it
is known that it is not; nor where an object can only be put as a whole.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from shardlog.protocol.entry import Header
from shardlog.snapshots.archive import Archive, Piece, segment_name
from shardlog.snapshots.destination import Begun
from shardlog.snapshots.digest import Digesting
from shardlog.snapshots.gathering import Gathering
from shardlog.snapshots.manifest import SegmentInfo
from shardlog.snapshots.rooms import ROOM_BYTES, Rooms
from shardlog.snapshots.segment_bytes import Writer

PUTTING_MAX = 2
"""So many segments are on their way while one is gathered."""
PARTS_MAX = 6
"""So many parts are being hashed and written, or wait for it, while one is gathered."""
WRITING_THREADS = 2


class Put(NamedTuple):
    """A segment that is at the destination; `written` unless it was there before."""

    info: SegmentInfo
    sessions: tuple[Writer, ...]
    written: bool


class Works:
    """What all segments of a snapshot share."""

    def __init__(self) -> None:
        self.rooms = Rooms()
        self.hashing = ThreadPoolExecutor(1, "hashing")
        self.writing = ThreadPoolExecutor(WRITING_THREADS, "writing")
        self.parts: deque[asyncio.Future[Any]] = deque()
        """Those that are written while more is gathered, oldest first."""

    def close(self) -> None:
        self.hashing.shutdown()
        self.writing.shutdown()


class Passage:
    """One segment.  It is added to, then `put`; in any case `leave` comes last."""

    def __init__(self, works: Works, gathering: Gathering, file: Begun | None) -> None:
        self.gathering = gathering
        self._works = works
        self._file = file
        self._kept: list[memoryview] = []  # all parts, unless they are written at once
        self._size = 0  # of all parts
        self._digesting = Digesting()
        self._underway: list[asyncio.Future[Any]] = []
        self._in_thread = asyncio.get_running_loop().run_in_executor

    def add(self, header: Header, raw: memoryview) -> None:
        self.gathering.add(header, raw)
        self._hand_on()

    def _hand_on(self) -> None:
        for part in self.gathering.taken():
            hashed = self._in_thread(self._works.hashing, self._digesting.update, part)
            if self._file is None:
                self._kept.append(part)
                self._underway.append(hashed)
            else:
                write = self._file.write
                written = self._in_thread(self._works.writing, write, part, self._size)
                both = asyncio.gather(hashed, written)
                both.add_done_callback(partial(self._passed, part))
                self._underway.append(both)
                self._works.parts.append(both)
            self._size += len(part)

    def _passed(self, part: memoryview, done: asyncio.Future[Any]) -> None:
        if not done.cancelled() and done.exception() is None and len(part) == ROOM_BYTES:
            self._works.rooms.give_back(part)

    async def put(self, archive: Archive, pieces: dict[str, Piece]) -> Put:
        """`pieces` are there already."""
        index = self.gathering.made()
        self._hand_on()
        await asyncio.gather(*self._underway)
        digest = self._digesting.digest()
        name = segment_name(index.base, index.end, digest)
        there = pieces.get(name)
        missing = there is None or there.size != self._size
        if missing:
            await self._in_thread(self._works.writing, self._named, archive, name)
        info = SegmentInfo.of(name, self._size, digest, index)
        return Put(info, index.sessions, missing)

    def _named(self, archive: Archive, name: str) -> None:
        path = archive.segment_path(name)
        if self._file is None:
            self._file = archive.destination.begin(path)
            if self._file is None:
                archive.destination.put(path, b"".join(self._kept))
                return
            for number, part in enumerate(self._kept):
                self._file.write(part, number * ROOM_BYTES)
        self._file.finish(path)

    async def leave(self) -> None:
        """Nobody works on it any more.  What has not been put is gone."""
        await asyncio.gather(*self._underway, return_exceptions=True)
        if self._file is not None:
            await self._in_thread(self._works.writing, self._file.abandon)
        for part in self._kept:
            if len(part) == ROOM_BYTES:
                self._works.rooms.give_back(part)


class Putting:
    """The segments of one snapshot, a few at a time."""

    def __init__(self, archive: Archive, pieces: dict[str, Piece]) -> None:
        self._archive = archive
        self._pieces = pieces
        self._works = Works()
        self._underway: deque[asyncio.Task[Put]] = deque()

    @property
    def is_full(self) -> bool:
        return len(self._underway) >= PUTTING_MAX

    @property
    def is_idle(self) -> bool:
        return not self._underway

    async def until_room(self) -> None:
        """Not too many parts wait to be written."""
        parts = self._works.parts
        while len(parts) > PARTS_MAX:
            await asyncio.wait([parts.popleft()])

    async def begin(self, base: int, parent: int, *, maybe_there: bool) -> Passage:
        file = None
        if not maybe_there:
            beside = self._archive.segment_path(f"{base:020d}")
            file = await self._begun(beside)
        return Passage(self._works, Gathering(base, parent, self._works.rooms), file)

    async def _begun(self, path: str) -> Begun | None:
        """A file that is made for nobody, because he was cancelled meanwhile, is gone again."""
        making = asyncio.ensure_future(asyncio.to_thread(self._archive.destination.begin, path))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            file = await making
            if file is not None:
                await asyncio.to_thread(file.abandon)
            raise

    def finish(self, passage: Passage) -> None:
        """No more is added to it."""
        self._underway.append(asyncio.ensure_future(self._finished(passage)))

    async def _finished(self, passage: Passage) -> Put:
        try:
            return await passage.put(self._archive, self._pieces)
        finally:
            await passage.leave()

    async def until_put(self) -> Put:
        """The first of those on their way is there.  It goes its way, whoever waits for it."""
        first = self._underway[0]
        try:
            return await asyncio.shield(first)
        finally:
            if first.done():
                self._underway.popleft()

    async def close(self) -> None:
        """Nothing is on its way any more."""
        await asyncio.gather(*self._underway, return_exceptions=True)
        await asyncio.to_thread(self._works.close)
