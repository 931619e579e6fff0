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

from shardlog.storage.failures import TooManyOpenFiles
from shardlog.storage.files import File, Files

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


class Handles:
    """`open_files_max` bounds those that nobody uses; those in use are bounded by the users."""

    def __init__(self, files: Files, open_files_max: int = 256) -> None:
        self.files: Files = Sparing(files, self.close_idle)
        self.open_files_max = open_files_max
        self._lock = RLock()
        self._open: OrderedDict[str, File] = OrderedDict()
        self._pins: dict[str, int] = {}

    def pin(self, path: str) -> File:
        """The open file; it stays open until `unpin`."""
        with self._lock:
            file = self._open.get(path)
            if file is None:
                file = self.files.open(path)
                self._open[path] = file
            else:
                self._open.move_to_end(path)
            self._pins[path] = self._pins.get(path, 0) + 1
            self._close_idle(self.open_files_max)
            return file

    def unpin(self, path: str) -> None:
        with self._lock:
            left = self._pins[path] - 1
            if left:
                self._pins[path] = left
            else:
                del self._pins[path]

    @contextmanager
    def use(self, path: str) -> Iterator[File]:
        file = self.pin(path)
        try:
            yield file
        finally:
            self.unpin(path)

    def forget(self, path: str) -> None:
        """The file is about to be removed or replaced."""
        with self._lock:
            file = self._open.pop(path, None)
            if file is not None:
                file.close()

    def close(self) -> None:
        with self._lock:
            for file in self._open.values():
                file.close()
            self._open.clear()
            self._pins.clear()

    def close_idle(self) -> None:
        """Give back every descriptor that nobody uses."""
        with self._lock:
            self._close_idle(0)

    def _close_idle(self, most: int) -> None:
        if len(self._open) <= most:
            return
        for path in [path for path in self._open if path not in self._pins]:
            if len(self._open) <= most:
                return
            self._open.pop(path).close()
