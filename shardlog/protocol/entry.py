"""Entries: what the log is made of.

An entry is a batch of records and the unit of replication, checksum and truncation.  Offsets
count records, so the next entry's base is this one's base plus its count.  Every header names
the checksum of its parent: two logs that agree on one checksum agree on everything before it.

The checksum itself is computed by a `Seal` that the driver brings along (CRC32C on a real node);
here it is only a value that is stored, compared and chained.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import NamedTuple

Body = bytes | memoryview
"""What an entry holds, or a part of the piece that it came in."""
GENESIS_CHECKSUM = 0
"""The parent of the first entry of a log that was never trimmed."""


class Kind(IntEnum):
    """What an entry carries.  Control entries take one offset and are hidden from readers."""

    DATA = 0
    EPOCH_START = 1
    REGISTER = 2
    UNKNOWN = 3
    """Not an entry: a stretch of the log whose headers cannot be read any more."""
    LOST = 4
    """Stands for what was given up: its place in the chain is kept, its records are gone."""


class EntryId(NamedTuple):
    """An entry's name.  One node leads an epoch, so no two entries share an id."""

    epoch: int
    offset: int

    def __str__(self) -> str:
        return f"({self.epoch},{self.offset})"


class Member(NamedTuple):
    """A replica's full name: a node, and which formatting of its volume is meant."""

    node: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.node}#{self.incarnation}"


class Header(NamedTuple):
    """All that a replica keeps in memory of an entry.

    A tuple, because one is made for every entry on every node, and a frozen dataclass takes three
    times as long.
    """

    epoch: int
    base: int
    count: int  # type: ignore[assignment]  # not the method of tuples
    kind: Kind
    session: int
    request: int
    timestamp_ms: int
    parent: int
    body_checksum: int
    checksum: int

    @property
    def end(self) -> int:
        return self.base + self.count

    @property
    def id(self) -> EntryId:
        return EntryId(self.epoch, self.base)

    @property
    def body_bytes(self) -> int:
        """A body's checksum holds its length above the lower 32 bits."""
        return self.body_checksum >> 32


header_of: Callable[[tuple[int, int, int, Kind, int, int, int, int, int, int]], Header]
header_of = partial(tuple.__new__, Header)
"""For those who make many: without the detour through `Header.__new__`, written in Python."""


class Entry(NamedTuple):
    """A header and the bytes that it describes."""

    header: Header
    body: Body


entry_of: Callable[[tuple[Header, Body]], Entry] = partial(tuple.__new__, Entry)
"""As `header_of`."""


class EntryRun(tuple[Entry, ...]):
    """Entries that stand one behind the other in `raw`, each behind its header.

    Whoever passes them on as they are has no need to put them together again.
    """

    raw: Body = b""


Seal = Callable[[int, int, int, int, int, int, int, int, int], int]
"""(epoch, base, count, kind, session, request, timestamp_ms, parent, body_checksum) → checksum."""


def sealed(
    seal: Seal,
    epoch: int,
    base: int,
    count: int,
    kind: Kind,
    session: int,
    request: int,
    timestamp_ms: int,
    parent: int,
    body_checksum: int,
) -> Header:
    """A header with its checksum."""
    checksum = seal(
        epoch, base, count, int(kind), session, request, timestamp_ms, parent, body_checksum
    )
    return header_of(
        (epoch, base, count, kind, session, request, timestamp_ms, parent, body_checksum, checksum)
    )


def unreadable(epoch: int, base: int, count: int) -> Header:
    """A placeholder for a stretch whose headers are lost.

    Its epoch comes from the replica's history, which is kept apart from the log.  A count of 0
    means that nobody knows how far it reaches: it is the tail, and may have held anything.
    """
    return Header(epoch, base, count, Kind.UNKNOWN, 0, 0, 0, 0, 0, 0)


# --- what was lost -------------------------------------------------------------------------------

_WITNESS_MASK = (1 << 32) - 1


def witness(seal: Seal, header: Header) -> int:
    """What vouches for a marker: a seal of all its fields, the checksum that it took over too."""
    epoch, base, count, kind, session, request, timestamp_ms, parent, _, checksum = header
    fields = (epoch, base, count, int(kind), session, request, timestamp_ms, parent)
    return seal(*fields, checksum) & _WITNESS_MASK


def marker(seal: Seal, lost: Header, parent: int, timestamp_ms: int) -> Header:
    """What stands for `lost`, behind an entry with the checksum `parent` and this timestamp.

    It has no body, so there is room for it wherever an entry stood.  What had none itself is not
    lost while its header is known.
    """
    if lost.kind is not Kind.UNKNOWN and not lost.body_checksum:
        return lost
    kept = lost._replace(kind=Kind.LOST, body_checksum=0)
    if lost.kind is Kind.UNKNOWN:
        kept = kept._replace(timestamp_ms=timestamp_ms, parent=parent)
    if not kept.checksum:
        kept = kept._replace(checksum=seal(*kept[:-1]))
    return kept._replace(body_checksum=witness(seal, kept))
