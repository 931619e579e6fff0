"""Memory that segments are gathered in, part by part.

Fresh memory costs more than copying into it, so a room that is done with is used again, at best
while it is still in the processor's cache.  It begins where a page does: only from there a disk can
fetch bytes by itself (`local_files`).
"""

from __future__ import annotations

import mmap

ROOM_BYTES = 2 << 20


class Rooms:
    """As many as are taken at once.  For one thread."""

    def __init__(self) -> None:
        self._free: list[memoryview] = []

    def take(self) -> memoryview:
        if self._free:
            return self._free.pop()
        return memoryview(mmap.mmap(-1, ROOM_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))

    def give_back(self, room: memoryview) -> None:
        """It, and every part of it, is used by nobody any more."""
        self._free.append(room)
