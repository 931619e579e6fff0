"""Freed memory is kept for the next message, instead of being given back and asked for again.

A message of some hundred KiB is more than the C library likes to keep: each one would be mapped
anew, filled with zeros by the kernel page by page, and unmapped.  That was a third of what the
kernel did for a follower under load (`docs/benchmarks.md`).  What a process may hold is bounded
elsewhere; this much of it stays after a peak.
"""

from __future__ import annotations

import ctypes

KEPT_BYTES = 64 << 20
MAPPED_FROM_BYTES = 32 << 20
"""The most that glibc takes."""
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def keep_freed_memory() -> bool:
    """Whether this C library can be told so."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(
        mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES) and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
    )
