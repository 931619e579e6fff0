"""Which full segments of a volume stay in the page cache: the newest, up to a bound.

Left to the kernel, a log that grows takes new memory for all that is written until there is none,
and then every write looks for some.  The pages of a segment that is old by then serve as well.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from threading import Lock
from typing import NamedTuple

from shardlog.storage.failures import StorageFailure
from shardlog.storage.files import File


class Stretch(NamedTuple):
    """Of a file; nothing is written there any more."""

    path: str
    position: int
    length: int


class Recent:
    """`use` opens a file by its path; without a bound the kernel decides what stays."""

    def __init__(
        self, use: Callable[[str], AbstractContextManager[File]], bytes_max: int | None
    ) -> None:
        self._use = use
        self._bytes_max = bytes_max
        self._kept: OrderedDict[str, Stretch] = OrderedDict()
        # Those of them that were full before the start: nobody knows whether they are in memory.
        self._found: set[str] = set()
        self._bytes = 0
        self._lock = Lock()

    def keeps(self, path: str) -> bool:
        """Whether it may stay in memory."""
        return self._bytes_max is None or path in self._kept

    def holds(self, path: str) -> bool:
        """Whether it is in memory."""
        return path in self._kept and path not in self._found

    def found(self, stretch: Stretch) -> None:
        """It was full before the start, and is older than those that were filled since."""
        with self._lock:
            if self._bytes_max is None or self._bytes + stretch.length > self._bytes_max:
                return
            self._take_out(stretch.path)
            self._kept[stretch.path] = stretch
            self._kept.move_to_end(stretch.path, last=False)
            self._found.add(stretch.path)
            self._bytes += stretch.length

    def filled(self, stretch: Stretch) -> None:
        """It is the newest now; the oldest are let go of."""
        if self._bytes_max is None:
            return
        for old in self._outdated_by(stretch, self._bytes_max):
            # A hint: the file may have been trimmed just now.
            with suppress(StorageFailure), self._use(old.path) as file:
                file.drop(old.position, old.length)

    def _outdated_by(self, stretch: Stretch, bytes_max: int) -> list[Stretch]:
        outdated: list[Stretch] = []
        with self._lock:
            self._take_out(stretch.path)
            self._kept[stretch.path] = stretch
            self._bytes += stretch.length
            while self._bytes > bytes_max:
                oldest = next(iter(self._kept))
                outdated.append(self._kept[oldest])
                self._take_out(oldest)
        return outdated

    def forget(self, path: str) -> None:
        """The file is about to be gone, or to be another."""
        with self._lock:
            self._take_out(path)

    def _take_out(self, path: str) -> None:
        self._found.discard(path)
        gone = self._kept.pop(path, None)
        if gone is not None:
            self._bytes -= gone.length
