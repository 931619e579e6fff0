"""Shards of a volume on the real disk, as their replicas would use them; and files to watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Lock, Thread, current_thread

from shardlog.protocol.effects import Format, Recovered, Sync, WriteEntries, WriteSuperblock
from shardlog.protocol.entry import GENESIS_CHECKSUM, Entry
from shardlog.protocol.history import Span
from shardlog.storage.failures import DiskFailed, DiskFull, StorageFailure
from shardlog.storage.files import Buffer
from shardlog.storage.plan import Plan
from shardlog.storage.real_files import RealFile, RealFiles
from shardlog.storage.store import Store
from shardlog.storage.volume import Volume, VolumeFiles, VolumeLimits
from storage.states import chain, superblock

NODE = "node-a"
PLAN = Plan(
    size_min=32 << 10, size_max=64 << 10, slots_min=64, slots_max=64, zeroed_bytes=4096
)  # fmt: skip
HANGS_S = 60
"""No test waits so long; one that hangs fails."""


IN_THREADS = VolumeLimits(on_loop_us_max=0)
"""No disk is prompt, so that the loop may be the one that lets a sync go on."""


def made(
    files: VolumeFiles, directory: object, limits: VolumeLimits = IN_THREADS, plan: Plan = PLAN
) -> Volume:
    return Volume(files, str(directory), NODE, plan, limits)


@asynccontextmanager
async def running(volume: Volume) -> AsyncIterator[Volume]:
    task = asyncio.create_task(volume.run())
    try:
        async with asyncio.timeout(HANGS_S):
            yield volume
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class Client:
    """One shard: what was appended, and what the volume told of it."""

    def __init__(
        self, volume: Volume, shard: str, tell: Callable[[int], None] | None = None
    ) -> None:
        self.shard = shard
        self.tell = tell
        self.entries: list[Entry] = []
        self.token = 0
        # The offset up to which the log is durable when a token is reported.
        self.end_of: dict[int, int] = {}
        self.reported: list[int] = []
        self.failures: list[StorageFailure] = []
        self.changed = asyncio.Event()
        self.base, self.parent = 0, GENESIS_CHECKSUM
        self.recovered: Recovered | None
        self.hosted, self.recovered = volume.open(shard, self._synced, self._failed)
        if self.recovered is not None and self.recovered.headers:
            last = self.recovered.headers[-1]
            self.base, self.parent = last.end, last.checksum

    @property
    def store(self) -> Store:
        return self.hosted.store

    def _synced(self, token: int) -> None:
        self.reported.append(token)
        self.changed.set()
        if self.tell is not None:
            self.tell(self.end_of[token])

    def _failed(self, failure: StorageFailure) -> None:
        self.failures.append(failure)
        self.changed.set()

    def sync(self) -> int:
        self.token += 1
        self.end_of[self.token] = self.base
        self.hosted.submit(Sync(self.token))
        return self.token

    async def durable(self, token: int | None = None) -> None:
        """Until a token, or else the last one, is reported."""
        while (token or self.token) not in self.reported:
            self.changed.clear()
            await self.changed.wait()

    async def failed(self) -> None:
        while not self.failures:
            self.changed.clear()
            await self.changed.wait()

    async def stalled(self) -> None:
        while self.store.stalled is None:
            await asyncio.sleep(0.005)

    async def format(self) -> None:
        self.hosted.submit(Format(superblock()))
        self.promise(1)
        await self.durable()

    def promise(self, epoch: int) -> int:
        self.hosted.submit(WriteSuperblock(superblock(epoch, history=(Span(1, 0),))))
        return self.sync()

    def append(self, count: int = 1, size: int = 100) -> int:
        """Some entries, each with a token of its own; the last token."""
        for entry in chain(count, self.base, self.parent, sizes=(size,)):
            self.entries.append(entry)
            self.base, self.parent = entry.header.end, entry.header.checksum
            self.hosted.submit(WriteEntries((entry,), 0))
            self.sync()
        return self.token

    def found(self) -> list[Entry | None]:
        """What was there when it was opened; all of it is read, and the chain is whole."""
        assert self.recovered is not None
        assert self.recovered.marks == ()
        parent, base = self.recovered.boundary, self.recovered.first
        for header in self.recovered.headers:
            assert (header.parent, header.base) == (parent, base)
            parent, base = header.checksum, header.end
        return [self.store.read(header) for header in self.recovered.headers]


def reopened(
    directory: object, shards: Iterable[str], plan: Plan = PLAN
) -> list[list[Entry | None]]:
    """What another process finds in each shard."""
    volume = made(RealFiles(), directory, plan=plan)
    found = [Client(volume, shard).found() for shard in shards]
    volume.close()
    return found


# --- files to watch ----------------------------------------------------------------------------


@dataclass
class Watch:
    """What the files did, in order; and what they are to do next.

    Nothing is synced in truth: no power is cut here.
    """

    events: list[tuple[str, str]] = field(default_factory=list)
    buffers: list[tuple[str, int]] = field(default_factory=list)
    dropped: list[tuple[str, int, int]] = field(default_factory=list)
    fetched: list[tuple[str, int, int]] = field(default_factory=list)
    fetching: list[Thread] = field(default_factory=list)
    failing: Callable[[str], bool] = field(default=lambda path: False)
    full: bool = False
    open_files: int = 0
    gate: Event = field(default_factory=Event)
    reached: Event = field(default_factory=Event)
    lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.gate.set()

    def close_gate(self) -> None:
        """The next sync waits until the gate is open again."""
        self.reached.clear()
        self.gate.clear()

    def syncs(self, part: str = "") -> int:
        return sum(1 for what, path in self.events if what == "sync" and part in path)

    def synced(self, path: str) -> None:
        with self.lock:
            self.events.append(("sync", path))
        self.reached.set()
        self.gate.wait(HANGS_S)
        if self.failing(path):
            raise DiskFailed(path, "sync: Input/output error")


class WatchedFile(RealFile):
    def __init__(self, file: RealFile, watch: Watch) -> None:
        super().__init__(file.fileno(), file.path)
        self.watch = watch
        with watch.lock:
            watch.open_files += 1

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        with self.watch.lock:
            self.watch.events.append(("write", self.path))
            self.watch.buffers.append((self.path, len(buffers)))
        super().write(position, buffers)

    def allocate(self, size: int) -> None:
        if self.watch.full:
            raise DiskFull(self.path)
        super().allocate(size)

    def sync(self) -> None:
        self.watch.synced(self.path)

    def fetch(self, position: int, length: int) -> None:
        with self.watch.lock:
            self.watch.fetched.append((self.path, position, length))
            self.watch.fetching.append(current_thread())
        super().fetch(position, length)

    def drop(self, position: int, length: int) -> None:
        with self.watch.lock:
            self.watch.events.append(("drop", self.path))
            self.watch.dropped.append((self.path, position, length))
        super().drop(position, length)

    def close(self) -> None:
        with self.watch.lock:
            self.watch.open_files -= self.fileno() >= 0
        super().close()


class WatchedVolume:
    """All of it at once; its path ends with a stroke."""

    def __init__(self, path: str, watch: Watch) -> None:
        self.path = path
        self.watch = watch

    def sync(self) -> None:
        self.watch.synced(f"{self.path}/")

    def close(self) -> None:
        self.watch.events.append(("close", f"{self.path}/"))


class WatchedFiles(RealFiles):
    def __init__(self) -> None:
        self.watch = Watch()

    def open(self, path: str, *, write: bool = True) -> RealFile:
        return WatchedFile(super().open(path, write=write), self.watch)

    def create(self, path: str) -> RealFile:
        self.watch.events.append(("create", path))
        return WatchedFile(super().create(path), self.watch)

    def sync_directory(self, path: str) -> None:
        self.watch.events.append(("sync directory", path))

    def open_volume(self, path: str) -> WatchedVolume:  # type: ignore[override]
        return WatchedVolume(path, self.watch)
