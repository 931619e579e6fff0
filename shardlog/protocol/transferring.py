"""How far a replica is that receives what it lacks: for the status and the driver, for no rule.

A transfer begins when a replica learns of a log that reaches beyond its own, from a leader's
announcement or from a snapshot's descriptor, and ends when it has got there.  It is not kept on
disk: what has come is in the log, so a restart goes on from there and counts anew.
"""

from __future__ import annotations

from collections.abc import Iterable

from shardlog.protocol.entry import Entry, Member
from shardlog.protocol.header_bytes import ENTRY_HEADER_BYTES
from shardlog.protocol.value import value

WINDOW_MS = 1000
"""The rate is that of about the last second."""


@value
class Transfer:
    """How far a replica is that receives `[first, end)` from `source`: it has all below `at`.

    `done_bytes` came since it began, or since its node was started.
    """

    source: Member
    first: int
    at: int
    end: int
    done_bytes: int
    bytes_per_s: int


class Transferring:
    """`[first, end)` is wanted; `done_bytes` have come from `source` and others."""

    __slots__ = ("_looked_bytes", "_looked_ms", "_per_s", "done_bytes", "end", "first", "source")

    def __init__(self, source: Member, first: int, end: int, now_ms: int) -> None:
        self.source = source
        self.first = first
        self.end = end
        self.done_bytes = 0
        self._looked_ms = now_ms
        self._looked_bytes = 0
        self._per_s = 0

    def took(self, source: Member, entries: Iterable[Entry], now_ms: int) -> int:
        """These came, and were new here: how many bytes they are."""
        size = sum([ENTRY_HEADER_BYTES + len(each.body) for each in entries])
        self.source = source
        self.done_bytes += size
        self._look(now_ms)
        return size

    def _look(self, now_ms: int) -> None:
        passed_ms = now_ms - self._looked_ms
        if passed_ms >= WINDOW_MS:
            self._per_s = (self.done_bytes - self._looked_bytes) * 1000 // passed_ms
            self._looked_ms, self._looked_bytes = now_ms, self.done_bytes

    def left_bytes(self, at: int) -> int:
        """Of what is still to come, if it is like what came; 0 before anything has."""
        come = at - self.first
        return self.done_bytes * (self.end - at) // come if come > 0 else 0

    def report(self, at: int, now_ms: int) -> Transfer:
        self._look(now_ms)
        return Transfer(self.source, self.first, at, self.end, self.done_bytes, self._per_s)
