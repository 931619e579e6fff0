"""Frames that have begun and are not whole yet: bounded for many connections together.

One who promises much and sends little must not fill our memory.  Room is reserved for what has not
come only as long as there is plenty; and if what has come is too much, those are dismissed whose
senders have finished nothing for longest.
"""

from __future__ import annotations

from shardlog.transport.connection import Connection
from shardlog.transport.handshake import Reason


class Unfinished:
    """All bytes of such frames, of the connections that are counted here."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self.bytes_max = bytes_max
        self._begun: set[UnfinishedFrame] = set()

    def may_reserve(self, size: int) -> bool:
        """Whether a frame may have its room before it comes; nobody is dismissed for that."""
        return self.bytes + size <= self.bytes_max // 2

    def change(self, frame: UnfinishedFrame, before: int) -> None:
        self.bytes += frame.bytes - before
        (self._begun.add if frame.bytes else self._begun.discard)(frame)
        if frame.bytes > before and self.bytes > self.bytes_max:
            self._dismiss()

    def _dismiss(self) -> None:
        for frame in sorted(self._begun, key=lambda frame: frame.looks, reverse=True):
            frame.dismiss()
            if self.bytes <= self.bytes_max:
                return


class UnfinishedFrame:
    """That of one connection.  `finished` when one is whole, `look` now and then."""

    __slots__ = ("_all", "_connection", "bytes", "looks")

    def __init__(self, frames: Unfinished, connection: Connection) -> None:
        self._all = frames
        self._connection = connection
        self.bytes = 0
        # Looks since the last frame that was whole.
        self.looks = 0
        connection.count_unfinished(self._count, frames.may_reserve)

    def finished(self) -> None:
        self.looks = 0

    def look(self) -> None:
        self.looks += 1

    def _count(self, size: int) -> None:
        before = self.bytes
        if size != before:
            self.bytes = size
            self._all.change(self, before)

    def forget(self) -> None:
        """The connection has ended, or does."""
        self._count(0)

    def dismiss(self) -> None:
        self.forget()
        self._connection.close(Reason.OVERLOADED, "too much has begun and does not end")
