"""Old entries are brought into memory before they are read, because whoever reads some reads on.

Left to the kernel, the one who reads finds room for what is fetched, and waits for the disk where
it fetches too little in advance.  That is slow for a client; a leader that reads for one who lacks
them does it on the loop that serves all.  What a leader has read so is let go of: it was for one,
and would push out what others read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
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
READERS_MAX = 8
"""So many files, and readers of each, are remembered."""


class Reader(NamedTuple):
    """Up to where one has let go of what it read, and up to where it was fetched for it."""

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
        # The readers of a file, by where each goes on.
        self._files: OrderedDict[str, dict[int, Reader]] = OrderedDict()
        self._lock = Lock()

    def has_read(self, read: Stretch, end: int, *, once: bool) -> None:
        """Somebody has read this of a file that ends at `end`; `once`, and no more.

        May be called in any thread.
        """
        with self._lock:
            outdated, wanted = self._moved(self._readers(read.path), read, end)
        if not once:
            outdated = outdated._replace(length=0)
        if outdated.length or wanted.length:
            self._later(lambda: self._move(outdated, wanted))

    def _readers(self, path: str) -> dict[int, Reader]:
        readers = self._files.setdefault(path, {})
        self._files.move_to_end(path)
        if len(self._files) > FILES_MAX:
            self._files.popitem(last=False)
        return readers

    def _moved(
        self, readers: dict[int, Reader], read: Stretch, end: int
    ) -> tuple[Stretch, Stretch]:
        """What need not be in memory any more, and what should be."""
        now = read.position + read.length
        done, fetched = readers.pop(read.position, Reader(read.position, now))
        outdated = wanted = Stretch(read.path, now, 0)
        upto = min(now + AHEAD_BYTES, end)
        if upto - fetched >= PIECE_BYTES or upto == end > fetched:
            # What is on its way for another is not asked for again.
            start = max(fetched, *(each.fetched for at, each in _up_to(fetched, readers)), now)
            wanted = Stretch(read.path, start, max(upto - start, 0))
            fetched = upto
        if now - done >= PIECE_BYTES or now == end:
            # Those behind this one let go of it when they have read it.
            if not any(done < each.fetched for _, each in _up_to(now - 1, readers)):
                outdated = Stretch(read.path, done, now - done)
            done = now
        if now < end:
            readers[now] = Reader(done, fetched)
            if len(readers) > READERS_MAX:
                del readers[next(iter(readers))]
        return outdated, wanted

    def _move(self, outdated: Stretch, wanted: Stretch) -> None:
        """The file may have been trimmed just now."""
        with suppress(StorageFailure), self._use(wanted.path) as file:
            if outdated.length:
                file.drop(outdated.position, outdated.length)
            if wanted.length:
                file.fetch(wanted.position, wanted.length)


def _up_to(position: int, readers: dict[int, Reader]) -> Iterator[tuple[int, Reader]]:
    return ((at, each) for at, each in readers.items() if at <= position)
