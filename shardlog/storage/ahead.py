"""Old entries are brought into memory before they are read, because whoever reads some reads on.

Left to the kernel, the one who reads finds room for what is fetched, and waits for the disk where
it fetches too little in advance.  That is slow for a client; a leader that reads for one who lacks
them does it on the loop that serves all.  What a leader has read so is let go of: it was for one,
and would push out what others read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from threading import Lock
from typing import NamedTuple

from shardlog.storage.failures import StorageFailure
from shardlog.storage.files import File
from shardlog.storage.recent import Stretch

AHEAD_BYTES = 16 << 20
"""So much is in memory, or on its way there, before it is read."""
PIECE_BYTES = 4 << 20
"""Asked for, and let go of, at once."""
FILES_MAX = 64
"""The files of so many are remembered."""


class Progress(NamedTuple):
    """How far a file has been read, as of the last time it was asked for, and how far fetched."""

    done: int
    fetched: int


class Ahead:
    """`use` opens a file by its path; `later` has something done where nobody waits for it."""

    def __init__(
        self,
        use: Callable[[str], AbstractContextManager[File]],
        later: Callable[[Callable[[], None]], object],
    ) -> None:
        self._use = use
        self._later = later
        self._files: OrderedDict[str, Progress] = OrderedDict()
        self._lock = Lock()

    def has_read(self, path: str, position: int, end: int, *, once: bool) -> None:
        """Somebody has come to `position` of a file that is read up to `end`; `once`, and no more.

        May be called in any thread.
        """
        moved = self._moved(path, Progress(position, min(position + AHEAD_BYTES, end)))
        if moved is not None:
            before, now = moved
            outdated = Stretch(path, before.done, now.done - before.done if once else 0)
            wanted = Stretch(path, before.fetched, now.fetched - before.fetched)
            self._later(lambda: self._move(outdated, wanted))

    def _moved(self, path: str, now: Progress) -> tuple[Progress, Progress] | None:
        """From where to where; None if that is not far enough yet."""
        with self._lock:
            before = self._files.get(path)
            if before is None or not before.done <= now.done <= before.fetched:
                before = Progress(now.done, now.done)
            elif now.done < before.done + PIECE_BYTES:
                return None
            self._files[path] = now
            self._files.move_to_end(path)
            if len(self._files) > FILES_MAX:
                self._files.popitem(last=False)
            return before, now

    def _move(self, outdated: Stretch, wanted: Stretch) -> None:
        """Hints: the file may have been trimmed just now."""
        with suppress(StorageFailure), self._use(wanted.path) as file:
            if outdated.length:
                file.drop(outdated.position, outdated.length)
            if wanted.length:
                file.fetch(wanted.position, wanted.length)
