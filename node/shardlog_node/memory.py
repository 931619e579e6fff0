"""What is freed is kept for what comes next.

Entries come, and are read, in pieces of up to a MiB that live for a few milliseconds.  Left to
itself the C library gives such memory back at once, and the kernel zeroes each page of it anew for
the next piece: a fifth of all that a node does while it feeds one that was away.
"""

from __future__ import annotations

import ctypes

KEPT_BYTES_MAX = 64 << 20
"""So much at the end of the heap stays with this process."""
PIECE_BYTES_MAX = 8 << 20
"""Longer ones have their own memory, which goes when they do."""

ARENAS_MAX = 2
"""Heaps of which each keeps as much: one for the loop, one for all other threads."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def keep_freed() -> bool:
    """For the whole process; False where the C library knows of no such thing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    asked = (
        (_M_ARENA_MAX, ARENAS_MAX),
        (_M_TRIM_THRESHOLD, KEPT_BYTES_MAX),
        (_M_MMAP_THRESHOLD, PIECE_BYTES_MAX),
    )
    return all(mallopt(what, value) for what, value in asked)
