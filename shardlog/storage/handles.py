"""Open files, a bounded number of them, for all replicas of a volume.

A file that somebody uses is pinned and stays open; so does one with unsynced writes, because an
error of the write-back is reported to those who have the file open.  Of the others the one that was
used longest ago is closed when the bound is reached.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import TypeVar

from shardlog.storage.ahead import Ahead
from shardlog.storage.failures import TooManyOpenFiles
from shardlog.storage.files import File, Files
from shardlog.storage.recent import Recent

T = TypeVar("T")
Names = list[str]


class Sparing:
    """The volume; if the process has no descriptor left, idle files are closed to get one."""

    def __init__(self, files: Files, close_idle: Callable[[], None]) -> None:
        self._files = files
        self._close_idle = close_idle
        self.make_directory = files.make_directory
        self.rename = files.rename
        self.remove = files.remove
        self.machine_run = files.machine_run

    def open(self, path: str, *, write: bool = True) -> File:
        return self._spared(lambda: self._files.open(path, write=write))

    def create(self, path: str) -> File:
        return self._spared(lambda: self._files.create(path))

    def list(self, path: str) -> Names:
        return self._spared(lambda: self._files.list(path))

    def sync_directory(self, path: str) -> None:
        self._spared(lambda: self._files.sync_directory(path))

    def _spared(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except TooManyOpenFiles:
            self._close_idle()
            return act()


class Held:
    """An open file, by how many it is used, and whether its name means another by now."""

    __slots__ = ("file", "forgotten", "pins")

    def __init__(self, file: File) -> None:
        self.file = file
        self.pins = 0
        self.forgotten = False


class Handles:
    """`open_files_max` bounds those that nobody uses; those in use are bounded by the users.

    `recent` knows which full segments are in the page cache; without a bound the kernel does.
    `ahead` fetches others, by `later` if they must not keep anybody waiting.
    """

    def __init__(
        self,
        files: Files,
        open_files_max: int = 256,
        recent_bytes_max: int | None = None,
        later: Callable[[Callable[[], None]], object] = lambda act: act(),
    ) -> None:
        self.files: Files = Sparing(files, self.close_idle)
        self.open_files_max = open_files_max
        self._lock = RLock()
        self._open: OrderedDict[str, Held] = OrderedDict()
        self.recent = Recent(self.use, recent_bytes_max)
        self.ahead = Ahead(self.use, later)

    def pin(self, path: str) -> File:
        """The open file; it stays open until `unpin`."""
        return self._held(path).file

    def unpin(self, path: str) -> None:
        with self._lock:
            self._release(self._open[path])

    @contextmanager
    def use(self, path: str) -> Iterator[File]:
        held = self._held(path)
        try:
            yield held.file
        finally:
            with self._lock:
                self._release(held)

    def _held(self, path: str) -> Held:
        with self._lock:
            held = self._open.get(path)
            if held is None:
                held = self._open[path] = Held(self.files.open(path))
            else:
                self._open.move_to_end(path)
            held.pins += 1
            self._close_idle(self.open_files_max)
            return held

    def _release(self, held: Held) -> None:
        held.pins -= 1
        if held.forgotten and not held.pins:
            held.file.close()

    def forget(self, path: str) -> bool:
        """The name is about to mean nothing, or another file; whoever uses it keeps this one.

        Whether nobody does.
        """
        self.recent.forget(path)
        with self._lock:
            held = self._open.pop(path, None)
            if held is None:
                return True
            held.forgotten = True
            if not held.pins:
                held.file.close()
            return not held.pins

    def close(self) -> None:
        with self._lock:
            for held in self._open.values():
                held.file.close()
            self._open.clear()

    def close_idle(self) -> None:
        """Give back every descriptor that nobody uses."""
        with self._lock:
            self._close_idle(0)

    def _close_idle(self, most: int) -> None:
        if len(self._open) <= most:
            return
        for path in [path for path, held in self._open.items() if not held.pins]:
            if len(self._open) <= most:
                return
            self._open.pop(path).file.close()
