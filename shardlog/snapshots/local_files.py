"""Objects that are files: whole and durable when they are there, or not there at all.

A file is written under another name, synced, and only then called what it is called: a crash never
leaves a segment that has the right name and not its bytes.  The other name ends as those do that
the library leaves out of its listings.

It is written in pieces: on a virtual machine writes of 8 MiB took several times as long as the same
bytes in writes of up to 1 MiB (decision 0130).
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

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
        path = self._top / name
        self._make(path.parent)
        unfinished = path.with_name(f"{path.name}#{secrets.randbits(48)}")
        try:
            _write(unfinished, data)
            if new:
                os.link(unfinished, path)
            else:
                unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
        _sync(path.parent)

    def _make(self, directory: Path) -> None:
        """A directory whose name will outlive a crash."""
        if directory == self._top or (directory in self._durable and directory.is_dir()):
            return
        self._make(directory.parent)
        directory.mkdir(exist_ok=True)
        _sync(directory.parent)
        self._durable.add(directory)


def _write(path: Path, data: Buffer) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left[:PIECE_BYTES]) :]
        os.fdatasync(fd)
    finally:
        os.close(fd)


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
