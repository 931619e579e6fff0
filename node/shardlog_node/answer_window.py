"""How many bytes of answers one client may have waiting.

What is read for a client counts against all clients until it is taken, so one that asks for much
and takes little would keep the others waiting.  Its window begins small, doubles with each look at
which as much was taken, up to a share of what there is for everybody, and halves when less was.
What the kernel holds counts as taken, so the window of a slow client hardly grows beyond the first.
"""

from __future__ import annotations

FIRST_BYTES = 512 << 10
SHARE = 8
"""One client has at most so great a part of the bytes that all may have waiting."""
RATE_MIN = 32 << 10
"""Bytes a second: one that takes less of what waits for it counts as one that takes nothing."""


class AnswerWindow:
    """`owed`: bytes that are being read for it, or wait to be taken."""

    __slots__ = ("_bytes", "_first", "_owed_before", "_taken_before", "most",
                 "owed")  # fmt: skip

    def __init__(self, all_bytes_max: int) -> None:
        self.most = all_bytes_max // SHARE
        self._first = min(FIRST_BYTES, self.most)
        self._bytes = self._first
        self._taken_before = self._owed_before = 0
        self.owed = 0

    @property
    def room(self) -> int:
        """How long the next answer may be; 0: when something has been taken.

        An entry that is longer comes alone, to a client that is owed nothing.
        """
        left = self._bytes - self.owed
        return left if left >= self._first // 2 or not self.owed else 0

    def is_slow(self, taken_bytes: int, unsent_bytes: int, passed_ms: int) -> bool:
        """Look at what was taken since the last time, and tell whether it is too little.

        `taken_bytes`: since the connection began; `unsent_bytes`: what waits now.
        """
        taken, due = taken_bytes - self._taken_before, self._owed_before
        self._taken_before, self._owed_before = taken_bytes, unsent_bytes
        if taken >= self._bytes:
            self._bytes = min(2 * self._bytes, self.most)
        elif taken < due:
            self._bytes = max(self._bytes // 2, self._first)
        return unsent_bytes > 0 and taken < min(due, RATE_MIN * passed_ms // 1000)
