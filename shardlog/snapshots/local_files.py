"""Objects that are files: whole and durable when they are there, or not there at all.

A file is written under another name, synced, and only then called what it is called: a crash never
leaves a segment that has the right name and not its bytes.  The other name ends as those do that
the library leaves out of its listings.

A long file passes by the page cache, where the file system lets it: the disk fetches the bytes from
where they stand, which takes a third of the processor time or less (decision 0140).  That works for
whole pages only, and the rest goes the usual way.  There pieces are short: on a virtual machine
writes of 8 MiB took several times as long as the same bytes in writes of up to 1 MiB (decision
0130).
"""

from __future__ import annotations

import errno
import mmap
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Condition

from shardlog.checksum import Buffer

PIECE_BYTES = 1 << 20


class LocalFiles:
    """Below a directory that is there.  May be used by several threads."""

    def __init__(self, top: Path) -> None:
        self._top = top
        # Those whose own names are durable.
        self._durable: set[Path] = set()

    def put(self, name: str, data: Buffer, *, new: bool) -> None:
        """`new`: `FileExistsError` if there is one."""
        file = self.begin(name)
        try:
            file.write(data, 0)
            file.finish(name, new=new)
        finally:
            file.abandon()

    def begin(self, name: str) -> LocalFile:
        """A file in the same directory as `name`, which it may be called in the end."""
        path = self._top / name
        self._make(path.parent)
        return LocalFile(self._top, path.with_name(f"{path.name}#{secrets.randbits(48)}"))

    def _make(self, directory: Path) -> None:
        """A directory whose name will outlive a crash."""
        if directory == self._top or (directory in self._durable and directory.is_dir()):
            return
        self._make(directory.parent)
        directory.mkdir(exist_ok=True)
        _sync(directory.parent)
        self._durable.add(directory)


class LocalFile:
    """One that is not finished.  May be used by several threads, each with a part of its own."""

    def __init__(self, top: Path, path: Path) -> None:
        self._top = top
        self._path = path
        self._fds = [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)]
        with suppress(OSError):  # not every file system has it
            self._fds.append(os.open(path, os.O_WRONLY | os.O_DIRECT))
        self._changed = Condition()
        self._users = 0  # while there are any nothing is closed: its number may become another's

    @contextmanager
    def _used(self) -> Iterator[list[int]]:
        with self._changed:
            if not self._fds:
                raise OSError(errno.EBADF, "it has been given up", str(self._path))
            fds = self._fds
            self._users += 1
        try:
            yield fds
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    def write(self, data: Buffer, at: int) -> None:
        with self._used() as fds:
            _write(fds[0], memoryview(data), at)

    def write_pages(self, data: memoryview, at: int) -> None:
        """Whole pages, as they stand in memory and as they shall stand in the file."""
        assert not (at | len(data)) % mmap.PAGESIZE, "a part of a page"
        written = 0
        with self._used() as fds:
            try:
                if len(fds) > 1:
                    written = os.pwrite(fds[1], data, at)
            except OSError as failure:
                if failure.errno != errno.EINVAL:  # it wants more than pages
                    raise
            _write(fds[0], data[written:], at + written)

    def finish(self, name: str, *, new: bool = False) -> None:
        """Durable, and then called so.  `new`: `FileExistsError` if there is one."""
        path = self._top / name
        with self._used() as fds:
            os.fdatasync(fds[0])
            if new:
                os.link(self._path, path)
            else:
                self._path.replace(path)
        _sync(path.parent)

    def abandon(self) -> None:
        """It is closed, and if it has not been finished it is gone.  May be called again."""
        with self._changed:
            fds, self._fds = self._fds, []
            self._changed.wait_for(lambda: not self._users)
        if fds:
            for fd in fds:
                os.close(fd)
            self._path.unlink(missing_ok=True)


def _write(fd: int, left: memoryview, at: int) -> None:
    while left:
        written = os.pwrite(fd, left[:PIECE_BYTES], at)
        left, at = left[written:], at + written


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
