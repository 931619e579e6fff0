"""Old entries are brought into memory before they are read, and let go of when they have been.

A leader reads them for those who lack them, one MiB after the other, on the loop that serves its
clients too.  Left to the kernel, which fetches 128 KiB in advance, most of that time is spent
waiting for the disk; and what has been read once stays, in the place of what others read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
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
    """How far a file has been let go of again, and how far fetched."""

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

    def has_read(self, path: str, position: int, end: int) -> None:
        """Somebody has come to `position` of a file that is read up to `end`."""
        known = self._files.get(path)
        if known is None or not known.done <= position <= known.fetched:
            known = Progress(position, position)
        elif position < known.done + PIECE_BYTES:
            return
        progress = Progress(position, min(position + AHEAD_BYTES, end))
        self._files[path] = progress
        self._files.move_to_end(path)
        if len(self._files) > FILES_MAX:
            self._files.popitem(last=False)
        outdated = Stretch(path, known.done, progress.done - known.done)
        wanted = Stretch(path, known.fetched, progress.fetched - known.fetched)
        self._later(lambda: self._move(outdated, wanted))

    def _move(self, outdated: Stretch, wanted: Stretch) -> None:
        """Hints: the file may have been trimmed just now."""
        with suppress(StorageFailure), self._use(wanted.path) as file:
            if outdated.length:
                file.drop(outdated.position, outdated.length)
            if wanted.length:
                file.fetch(wanted.position, wanted.length)
