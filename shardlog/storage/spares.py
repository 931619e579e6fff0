"""Files of trimmed segments, kept for those that will be made.

A block that was written before costs its sync no metadata, and the file system and the page cache
have it at hand; so a log that is trimmed as it grows goes round and round in the same files.

What a spare file still holds is older than the log.  It is never taken for a part of it: the slots
are blanked before it becomes a segment, and an entry without a slot counts only if its base is the
next offset, which lies above all that was trimmed.  Nothing is overwritten before the file has lost
its old name durably, nor while somebody may still be reading from it.

Spares count for nothing.  The next start removes them.
"""

from __future__ import annotations

from collections import deque

from shardlog.storage.handles import Handles

PREFIX = "spare-"
SPARES_MAX = 4


class Spares:
    """Those of one replica, by size; the oldest is used first."""

    def __init__(self, handles: Handles, directory: str) -> None:
        self._handles = handles
        self._directory = directory
        self._kept: deque[tuple[int, str]] = deque()
        self._named = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, path: str, size: int) -> None:
        """Instead of removing a file that has no part in the log any more."""
        self._named += 1
        spare = f"{self._directory}/{PREFIX}{self._named}"
        files = self._handles.files
        files.rename(path, spare)
        if self._handles.forget(path):
            self._kept.append((size, spare))
        else:
            files.remove(spare)

    def take(self, size: int, path: str) -> bool:
        """Give one of that size another name, durably; False if there is none."""
        found = next((each for each in self._kept if each[0] == size), None)
        if found is None:
            return False
        files = self._handles.files
        files.rename(found[1], path)
        self._kept.remove(found)
        files.sync_directory(self._directory)
        return True

    def drop(self, most: int = 0) -> None:
        """Remove all but so many."""
        while len(self._kept) > most:
            self._handles.files.remove(self._kept.popleft()[1])

    def remove_left_over(self, names: list[str]) -> None:
        for name in names:
            if name.startswith(PREFIX):
                self._handles.files.remove(f"{self._directory}/{name}")
