"""A segment of a snapshot, byte by byte: head, entries, index, foot.

Entries stand as they stand on a node's disk, so whoever reads them verifies them by the same
checksums and the same chain.  Behind them is what saves a reader from reading them all: blocks of
about a MiB with their offsets and times, the epochs, and which sessions wrote.  All of that follows
from the entries alone: the same entries make the same file, whoever took the snapshot, so equal
segments are one object.

`docs/snapshot-format.md` has the tables; a test compares them with this.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from shardlog.checksum import sum_of
from shardlog.snapshots.failures import Damaged

HEAD_MAGIC = b"SHLGSNAP"
FOOT_MAGIC = b"SHLGFOOT"
VERSION = 1
HEAD = struct.Struct("<8sIIQQ")
BLOCK = struct.Struct("<QQQQQQQIII4x")
SPAN = struct.Struct("<QQ")
SESSION = struct.Struct("<QQQ")
FOOT = struct.Struct("<QQQQIIIII4s8s")
"""end, head, entries, records, blocks, spans, sessions, compressions, sum, zero, magic."""

OWN_TIMES = 1
"""Flag of a block: some records have times of their own, or may have."""
GIVEN_UP = 2
"""Flag of a block: a marker stands in it for records that were given up."""


class Block(NamedTuple):
    """Whole entries, one behind the other, that are read at once.

    `parent` is the checksum of the entry before; times are those of entries; `batches` are the
    entries with records.
    """

    base: int
    position: int
    length: int
    parent: int
    earliest_ms: int
    latest_ms: int
    records: int
    entries: int
    batches: int
    flags: int


class Span(NamedTuple):
    """An epoch, and where in this segment it begins."""

    epoch: int
    first: int


class Writer(NamedTuple):
    """A session that wrote here: its last request, and the offset of that entry."""

    session: int
    request: int
    used: int


class Index(NamedTuple):
    """All that stands in a segment but its entries; `compressions` has a bit for each kind."""

    base: int
    end: int
    parent: int
    head: int
    entries: int
    records: int
    blocks: tuple[Block, ...]
    spans: tuple[Span, ...]
    sessions: tuple[Writer, ...]
    compressions: int

    @property
    def earliest_ms(self) -> int:
        return min(block.earliest_ms for block in self.blocks)

    @property
    def latest_ms(self) -> int:
        return max(block.latest_ms for block in self.blocks)

    @property
    def batches(self) -> int:
        return sum(block.batches for block in self.blocks)

    @property
    def flags(self) -> int:
        found = 0
        for block in self.blocks:
            found |= block.flags
        return found

    @property
    def tail_bytes(self) -> int:
        """How long the part behind the entries is."""
        return (
            BLOCK.size * len(self.blocks)
            + SPAN.size * len(self.spans)
            + SESSION.size * len(self.sessions)
            + FOOT.size
        )


def pack_head(base: int, parent: int) -> bytes:
    return HEAD.pack(HEAD_MAGIC, VERSION, 0, base, parent)


def pack_tail(index: Index) -> bytes:
    """What follows the entries.  The sum is over all of it with a 0 in its own place."""
    tables = b"".join(
        (
            *(BLOCK.pack(*block) for block in index.blocks),
            *(SPAN.pack(*span) for span in index.spans),
            *(SESSION.pack(*session) for session in index.sessions),
        )
    )
    blank = _foot(index, 0)
    return tables + _foot(index, sum_of(tables + blank))


def _foot(index: Index, checksum: int) -> bytes:
    return FOOT.pack(
        index.end, index.head, index.entries, index.records, len(index.blocks), len(index.spans),
        len(index.sessions), index.compressions, checksum, bytes(4), FOOT_MAGIC,
    )  # fmt: skip


def tail_bytes(name: str, foot: bytes | memoryview) -> int:
    """How long the part behind the entries is, from the file's last bytes."""
    if len(foot) < FOOT.size:
        raise Damaged(name, f"{len(foot)} bytes are no segment")
    fields = FOOT.unpack(foot[-FOOT.size :])
    if fields[10] != FOOT_MAGIC:
        raise Damaged(name, "it does not end as a segment does")
    _, _, _, _, blocks, spans, sessions, *_ = fields
    return int(BLOCK.size * blocks + SPAN.size * spans + SESSION.size * sessions + FOOT.size)


def unpack_head(name: str, data: bytes | memoryview) -> tuple[int, int]:
    """Where the segment begins, and the checksum of the entry before."""
    if len(data) < HEAD.size:
        raise Damaged(name, f"{len(data)} bytes are no segment")
    magic, version, _, base, parent = HEAD.unpack_from(data)
    if magic != HEAD_MAGIC:
        raise Damaged(name, "it does not begin as a segment does")
    if version != VERSION:
        raise Damaged(name, f"its version is {version}, and {VERSION} is known here")
    return base, parent


def unpack_index(name: str, head: bytes | memoryview, tail: bytes | memoryview, size: int) -> Index:
    """`tail` is all that follows the entries, in a file of `size` bytes."""
    base, parent = unpack_head(name, head)
    if len(tail) < FOOT.size or tail_bytes(name, tail) != len(tail):
        raise Damaged(name, "its index does not fit")
    tables = bytes(tail[: -FOOT.size])
    end, last, entries, records, blocks, spans, _, packed, checksum, *_ = FOOT.unpack(
        tail[-FOOT.size :]
    )
    at = BLOCK.size * blocks
    until = at + SPAN.size * spans
    index = Index(
        base, end, parent, last, entries, records,
        tuple(Block(*each) for each in BLOCK.iter_unpack(tables[:at])),
        tuple(Span(*each) for each in SPAN.iter_unpack(tables[at:until])),
        tuple(Writer(*each) for each in SESSION.iter_unpack(tables[until:])),
        packed,
    )  # fmt: skip
    if sum_of(tables + _foot(index, 0)) != checksum:
        raise Damaged(name, "its index has another checksum")
    _check(name, index, size - len(tail))
    return index


def _check(name: str, index: Index, entries_end: int) -> None:
    """The blocks cover the entries without a gap."""
    position = HEAD.size
    offset = index.base
    for block in index.blocks:
        if block.position != position or block.base < offset or block.base >= index.end:
            raise Damaged(name, "its blocks do not follow each other", block.base)
        position += block.length
        offset = block.base
    if not index.blocks or index.blocks[0].base != index.base or position != entries_end:
        raise Damaged(name, "its blocks do not cover its entries")
