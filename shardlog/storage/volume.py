"""All replicas of one volume, and the group commit that they share.

While one batch of rounds is on its way to the disk, what comes in gathers in the stores; when it
is done, whatever gathered is the next batch.  Writing and syncing happen in threads; only a lone
small round goes to the disk from the event loop itself, while the disk is prompt (`promptness`).
Few files are synced each by itself, side by side; from `sync_together_from` files on one sync of
the whole volume is cheaper (measured: `docs/benchmarks.md`).

A round that fails for want of room is tried again later, and its replica says meanwhile that it is
stalled.  Any other failure is the end of that replica in this process: it has to be opened anew.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Protocol
from urllib.parse import quote, unquote

from shardlog.protocol.effects import Disk, Recovered
from shardlog.protocol.failures import ImpossibleState
from shardlog.storage.changes import Tended
from shardlog.storage.failures import Retriable, StorageFailure
from shardlog.storage.files import Files
from shardlog.storage.handles import Handles
from shardlog.storage.plan import Plan
from shardlog.storage.promptness import Promptness
from shardlog.storage.replica_files import ReplicaFiles
from shardlog.storage.rounds import ROUND_FILES_MAX, Round
from shardlog.storage.store import Store


class Whole(Protocol):
    """Everything on the volume, to be synced at once."""

    def sync(self) -> None: ...

    def close(self) -> None: ...


class Claimed(Protocol):
    """A directory that no other process may use."""

    def close(self) -> None: ...


class VolumeFiles(Files, Protocol):
    """Files that can all be synced at once; `open_volume` gives None if they cannot."""

    def open_volume(self, path: str) -> Whole | None: ...

    def claim(self, path: str) -> Claimed: ...


@dataclass(frozen=True, slots=True)
class VolumeLimits:
    """`workers` threads write and sync; a stalled replica is tried again after `retry_ms`.

    A batch is of so many replicas at most that their files fit into `open_files_max`.  A lone round
    of up to `on_loop_bytes_max` is performed on the loop while most of them take less than
    `on_loop_us_max`.  Of full segments `recent_bytes_max` stay in the page cache.
    """

    workers: int = 8
    on_loop_bytes_max: int = 64 << 10
    on_loop_us_max: int = 1000
    sync_together_from: int = 32
    open_files_max: int = 1024
    recent_bytes_max: int | None = None
    retry_ms: int = 200


class Hosted:
    """One replica's store on this volume, and whom to tell."""

    __slots__ = ("_volume", "on_failed", "on_synced", "shard", "store")

    def __init__(
        self,
        volume: Volume,
        shard: str,
        store: Store,
        on_synced: Callable[[int], None],
        on_failed: Callable[[StorageFailure], None],
    ) -> None:
        self._volume = volume
        self.shard = shard
        self.store = store
        self.on_synced = on_synced
        self.on_failed = on_failed

    def submit(self, effect: Disk) -> None:
        """What a stalled replica is given waits until it is tried again."""
        self.store.submit(effect)
        self._wake()

    def tend(self, change: Tended) -> None:
        """What the node asks for by itself, not the replica."""
        self.store.tend(change)
        self._wake()

    def _wake(self) -> None:
        if self.store.stalled is None:
            self._volume.wake(self)


Done = tuple[Hosted, Round, StorageFailure | None]
Batch = list[tuple[Hosted, Round]]


def directory_name(shard: str) -> str:
    """One name for any shard, never one that leads elsewhere."""
    if not shard:
        raise ImpossibleState("a shard without a name")
    quoted = quote(shard, safe="")
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted


class Performer:
    """A thread that performs one batch after the other, and tells the loop of each."""

    def __init__(
        self,
        perform: Callable[[Batch], list[Done]],
        performed: Callable[[list[Done] | BaseException], None],
    ) -> None:
        self._perform = perform
        self._performed = performed
        self._batches: SimpleQueue[Batch | None] = SimpleQueue()
        self._results: deque[list[Done] | BaseException] = deque()
        self._ended: asyncio.Future[None]

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ended = loop.create_future()
        Thread(target=self._run, args=(loop,), name="volume").start()

    def put(self, batch: Batch) -> None:
        self._batches.put(batch)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while (batch := self._batches.get()) is not None:
            try:
                self._results.append(self._perform(batch))
            except BaseException as failure:  # told to whoever runs the volume
                self._results.append(failure)
            loop.call_soon_threadsafe(self._tell)
        loop.call_soon_threadsafe(self._ended.set_result, None)

    def _tell(self) -> None:
        self._performed(self._results.popleft())

    async def stop(self) -> None:
        """When the batch under way is done, and told."""
        self._batches.put(None)
        await asyncio.wait([self._ended])


class Volume:
    """See the module.  `run` is a task for as long as the volume is used."""

    def __init__(
        self,
        files: VolumeFiles,
        directory: str,
        node: str,
        plan: Plan | None = None,
        limits: VolumeLimits | None = None,
    ) -> None:
        self.files = files
        self.directory = directory
        self.node = node
        self.plan = plan or Plan()
        self.limits = limits or VolumeLimits()
        self._threads = ThreadPoolExecutor(self.limits.workers, "volume")
        # Of its own: it waits for the disk, and no write may wait for it.
        self._fetching = ThreadPoolExecutor(1, "fetching")
        self.handles = Handles(
            files, self.limits.open_files_max, self.limits.recent_bytes_max, self._later
        )
        self._performer = Performer(self._perform, self._performed)
        self._promptness = Promptness(self.limits.on_loop_us_max)
        self._woken: dict[Hosted, None] = {}
        # Whether a batch is on its way, or about to be.
        self._busy = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Future[None]
        if not files.list(directory):
            files.make_directory(directory)
            parent = directory.rpartition("/")[0]
            files.sync_directory(parent or ("/" if directory.startswith("/") else "."))
        self._claim = files.claim(directory)
        self._whole = files.open_volume(directory)

    def _later(self, act: Callable[[], None]) -> None:
        """One after the other in a thread; of a volume that is closed, never."""
        with suppress(RuntimeError):
            self._fetching.submit(act)

    def shards(self) -> list[str]:
        """Those that have a directory here, formatted or not; names of others are left out."""
        names = {unquote(name): name for name in self.files.list(self.directory)}
        ours = {shard: name for shard, name in names.items() if directory_name(shard) == name}
        return [shard for shard, name in ours.items() if self._is_directory(name)]

    def _is_directory(self, name: str) -> bool:
        """One that cannot be read counts: that is its replica's to tell."""
        try:
            self.files.list(f"{self.directory}/{name}")
        except StorageFailure as failure:
            return not isinstance(failure.__cause__, NotADirectoryError)
        return True

    def open(
        self,
        shard: str,
        on_synced: Callable[[int], None],
        on_failed: Callable[[StorageFailure], None],
    ) -> tuple[Hosted, Recovered | None]:
        """A replica's store, and what was found in it; None if there is no replica."""
        directory = f"{self.directory}/{directory_name(shard)}"
        store, recovered = Store.open(self.handles, directory, shard, self.node, self.plan)
        return Hosted(self, shard, store, on_synced, on_failed), recovered

    def blank(
        self,
        shard: str,
        on_synced: Callable[[int], None],
        on_failed: Callable[[StorageFailure], None],
    ) -> tuple[Hosted, None]:
        """The same, whatever is there: it cannot be opened, and is erased by the next format."""
        directory = f"{self.directory}/{directory_name(shard)}"
        files = ReplicaFiles(self.handles, directory, shard, self.node, self.plan, None)
        return Hosted(self, shard, Store(files), on_synced, on_failed), None

    def wake(self, hosted: Hosted) -> None:
        """There may be something to do for this replica."""
        self._woken[hosted] = None
        if not self._busy and self._loop is not None:
            self._busy = True
            self._begin_soon(self._loop)

    def _begin_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """In the turn after the next: what this one has to send leaves before the disk is asked."""
        loop.call_soon(lambda: loop.call_soon(self._begin))

    async def run(self) -> None:
        """Perform batch after batch, until cancelled; the one under way is finished first."""
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._performer.start(self._loop)
        self._busy = True
        self._begin()
        try:
            await self._ended
        finally:
            self._loop = None
            await self._performer.stop()
            self.close()

    def _begin(self, at_once: bool = True) -> None:
        """The next batch, if there is one; on the loop only when nothing has to be sent before."""
        loop = self._loop
        if loop is None:
            return
        batch = self._taken()
        self._busy = bool(batch)
        if len(batch) == 1 and self._promptness.prompt and self._is_small(batch[0][1]):
            if at_once:
                self._perform_here(batch)
            else:
                loop.call_soon(lambda: loop.call_soon(self._perform_here, batch))
        elif batch:
            self._performer.put(batch)

    def _is_small(self, round_: Round) -> bool:
        return round_.alone is None and round_.bytes <= self.limits.on_loop_bytes_max

    def _perform_here(self, batch: Batch) -> None:
        if self._loop is None:
            return
        try:
            self._settle(self._perform(batch))
        except Exception as failure:
            self._give_up(failure)
            return
        self._busy = bool(self._woken)
        if self._busy:
            self._begin_soon(self._loop)

    def _performed(self, done: list[Done] | BaseException) -> None:
        """On the loop: whatever gathered meanwhile is the next batch."""
        if isinstance(done, BaseException):
            self._give_up(done)
            return
        try:
            self._settle(done)
        except Exception as failure:
            self._give_up(failure)
            return
        self._begin(at_once=False)

    def _give_up(self, failure: BaseException) -> None:
        """Nobody knows what became of the others: the volume is not run any further."""
        if not self._ended.done():
            self._ended.set_exception(failure)

    def close(self) -> None:
        """For a volume that is not run any more, or never was."""
        self._fetching.shutdown(cancel_futures=True)
        self._threads.shutdown()
        self.handles.close()
        if self._whole is not None:
            self._whole.close()
        self._claim.close()

    def _taken(self) -> Batch:
        """A round of each replica that was woken; if there are too many, the rest comes next."""
        batch: Batch = []
        most = max(self.limits.open_files_max // ROUND_FILES_MAX, 1)
        while self._woken and len(batch) < most:
            hosted = next(iter(self._woken))
            del self._woken[hosted]
            round_ = None if hosted.store.broken else hosted.store.take()
            if round_ is not None:
                batch.append((hosted, round_))
        return batch

    # --- in threads ------------------------------------------------------------------------------

    def _perform(self, batch: Batch) -> list[Done]:
        if len(batch) == 1:
            return [self._performed_alone(batch[0])]
        written = list(self._threads.map(self._written, batch))
        done = [each for each in written if each[2] is not None or not each[1].unsynced]
        unsynced = [each[:2] for each in written if each[2] is None and each[1].unsynced]
        files = sum(len(round_.unsynced) for _, round_ in unsynced)
        if self._whole is not None and files >= self.limits.sync_together_from:
            return done + self._synced_together(self._whole, unsynced)
        return done + list(self._threads.map(self._synced, unsynced))

    def _performed_alone(self, item: tuple[Hosted, Round]) -> Done:
        begun_ns = time.perf_counter_ns()
        done = self._written(item)
        if done[2] is None and item[1].unsynced:
            done = self._synced(item)
        if self._is_small(item[1]):
            self._promptness.took((time.perf_counter_ns() - begun_ns) / 1000)
        return done

    def _written(self, item: tuple[Hosted, Round]) -> Done:
        return self._tried(item, item[1].write)

    def _synced(self, item: tuple[Hosted, Round]) -> Done:
        """A lone group is completed at once, without a way through the loop in between."""
        hosted, round_ = item
        done = self._tried(item, round_.sync)
        if done[2] is None and hosted.store.is_last(round_):
            return self._tried(item, round_.complete_group)
        return done

    def _tried(self, item: tuple[Hosted, Round], act: Callable[[], None]) -> Done:
        try:
            act()
        except StorageFailure as failure:
            return (*item, failure)
        return (*item, None)

    def _synced_together(self, whole: Whole, batch: Batch) -> list[Done]:
        """If it fails nobody knows whose write was lost: all that were in it are at their end."""
        try:
            whole.sync()
        except StorageFailure as failure:
            return [(*item, failure) for item in batch]
        return [(*item, None) for item in batch]

    # --- back on the loop ------------------------------------------------------------------------

    def _settle(self, batch: list[Done]) -> None:
        for hosted, round_, failure in batch:
            if hosted.store.broken:
                hosted.store.fail(round_)  # its replica was stopped meanwhile
            elif failure is None:
                for token in hosted.store.finish(round_):
                    hosted.on_synced(token)
                if hosted.store.waiting:
                    self.wake(hosted)
            elif isinstance(failure, Retriable):
                hosted.store.defer(round_, failure)
                later = self.limits.retry_ms / 1000
                asyncio.get_running_loop().call_later(later, self.wake, hosted)
            else:
                hosted.store.fail(round_)
                hosted.on_failed(failure)
