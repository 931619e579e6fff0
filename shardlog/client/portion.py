"""How much of a log is asked for at once.

One who is behind a busy writer, or copies a log, is answered in full each time, and spends most of
the time waiting for the next answer: so more is asked for then.  Over a slow line long answers
would only be late, and keep others waiting.
"""

from __future__ import annotations

from shardlog.client.limits import ClientLimits

QUICK_TIMES = 10
"""An answer is quick that could come so often before one would doubt that it comes."""


class Portion:
    """`bytes` for the next read, by how the last one was answered."""

    __slots__ = ("_limits", "bytes")

    def __init__(self, limits: ClientLimits) -> None:
        self._limits = limits
        self.bytes = limits.read_bytes

    def answered(self, took_ms: float, size: int) -> None:
        limits = self._limits
        is_quick = QUICK_TIMES * took_ms < limits.attempt_ms
        is_long = 2 * size >= limits.read_bytes
        self.bytes = limits.long_read_bytes if is_quick and is_long else limits.read_bytes
