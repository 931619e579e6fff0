"""The filesystem seam: all that the storage engine asks of a disk.

A write that has returned can be read back; it is durable after the file's `sync`.  A file's name is
durable after `sync_directory` of the directory it stands in.  Writes of one file that were not
synced may reach the medium in any order, in part, or not at all; one aligned sector of
`SECTOR_BYTES` lands whole or not at all.  Every error is a `StorageFailure`.

Paths are plain strings with `/`; the simulator has no operating system to ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

SECTOR_BYTES = 512

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """An open file.  Positions are absolute: there is no cursor."""

    @property
    def path(self) -> str: ...

    def size(self) -> int:
        """The length in bytes."""

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""

    def read_alone(self, position: int, length: int) -> bytes:
        """As `read`, for one who does not read on: nothing behind it is fetched in advance."""

    def read_cached(self, position: int, length: int) -> Buffer | None:
        """All of these bytes if they are in memory; None if the disk would have to be asked."""

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        """All of the buffers, one behind the other; grows the file if need be."""

    def allocate(self, size: int) -> None:
        """Make the file at least so long, with its blocks reserved; the new part reads as zeros."""

    def sync(self) -> None:
        """All that was written, and the length, is durable.  Never called again after it failed."""

    def settle(self) -> None:
        """For a start: what is read from now on is what the medium holds, and nothing else.

        An earlier process may have died before its sync, or have been told that it failed; what it
        wrote can then be read, but is not durable, and may never have reached the medium.
        """

    def fetch(self, position: int, length: int) -> None:
        """What is there will be read soon: it is brought into memory, as far as it can be."""

    def drop(self, position: int, length: int) -> None:
        """What is durable there will hardly be read soon: no need to keep it in memory."""

    def close(self) -> None:
        """Unsynced writes stay where they are: written, not durable."""


class Files(Protocol):
    """One volume."""

    def open(self, path: str, *, write: bool = True) -> File:
        """An existing file; `MissingFile` if there is none."""

    def create(self, path: str) -> File:
        """A new, empty file in the place of whatever had the name."""

    def make_directory(self, path: str) -> None:
        """With its parents; nothing happens if it is there."""

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted; empty if it does not exist."""

    def rename(self, old: str, new: str) -> None:
        """Atomic, replacing `new`; durable after `sync_directory`."""

    def remove(self, path: str) -> None:
        """A file or an empty directory; nothing happens if it is gone."""

    def sync_directory(self, path: str) -> None:
        """The names in this directory are durable."""

    def machine_run(self) -> str:
        """Names the time since the machine was started: unsynced writes last no longer."""
