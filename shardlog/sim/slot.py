"""One entry on a model disk: what was written, and what has become of its two copies."""

from __future__ import annotations

from enum import Enum

from shardlog.protocol.entry import Entry


class Part(Enum):
    """The state of one copy.  ABSENT is positive knowledge: nothing was ever written there."""

    OK = "ok"
    BAD = "bad"
    ABSENT = "absent"


class Slot:
    """`header` is the copy apart, `body` the whole entry.

    `entry` is what was meant to be here; nobody but the model knows it if both copies are bad.
    `loose`: it counts, and a power cut may still take it.
    """

    __slots__ = ("body", "entry", "header", "loose")

    def __init__(self, entry: Entry, header: Part = Part.OK, body: Part = Part.OK) -> None:
        self.entry = entry
        self.header = header
        self.body = body
        self.loose = False

    @property
    def known(self) -> bool:
        """Whether a reader can tell what is, or was, here."""
        return self.body is Part.OK or self.header is Part.OK

    @property
    def blank(self) -> bool:
        return self.body is not Part.OK and self.header is Part.ABSENT
