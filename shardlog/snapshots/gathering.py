"""Entries become a segment: gathered as they come, described while they pass.

A segment is closed when it has reached its size, so it is one entry longer at most.  Only what the
entries say decides what stands in it.  What has been gathered never changes, so whoever likes may
hash and write the rooms that are full while more is added.
"""

from __future__ import annotations

from shardlog.protocol.entry import Header, Kind
from shardlog.protocol.header_bytes import ENTRY_HEADER_BYTES
from shardlog.protocol.sessions import session_of
from shardlog.snapshots.rooms import ROOM_BYTES, Rooms
from shardlog.snapshots.segment_bytes import (
    GIVEN_UP,
    HEAD,
    OWN_TIMES,
    Block,
    Index,
    Span,
    Writer,
    pack_head,
    pack_tail,
)
from shardlog.transport.batch import HAS_TIMESTAMPS, PREFIX
from shardlog.transport.batch import HEAD as BATCH_HEAD

SEGMENT_BYTES = 32 << 20
BLOCK_BYTES = 1 << 20
_DATA = Kind.DATA


class Gathering:
    """From the entry at `base` on, which must name `parent`.

    Its bytes come out of `taken`, part by part.
    """

    def __init__(self, base: int, parent: int, rooms: Rooms) -> None:
        self.base = base
        self.parent = parent
        self.end = base
        self._head = parent
        self._full: list[memoryview] = []
        self._rooms = rooms
        self._room = rooms.take()
        self._filled = 0  # of that room
        self._size = 0
        self._write(memoryview(pack_head(base, parent)))
        self._entries = self._records = self._compressions = 0
        self._blocks: list[Block] = []
        self._block: _Open | None = None
        self._spans: list[Span] = []
        self._sessions: dict[int, Writer] = {}

    def __len__(self) -> int:
        return self._size

    def _write(self, data: memoryview) -> None:
        self._size += len(data)
        while data:
            if self._filled == ROOM_BYTES:
                self._full.append(self._room)
                self._room, self._filled = self._rooms.take(), 0
            most = min(len(data), ROOM_BYTES - self._filled)
            self._room[self._filled : self._filled + most] = data[:most]
            self._filled += most
            data = data[most:]

    @property
    def is_empty(self) -> bool:
        return self.end == self.base

    def taken(self) -> list[memoryview]:
        """Whole rooms that have become full since; when it is made, the rest too."""
        taken, self._full = self._full, []
        return taken

    def add(self, header: Header, raw: memoryview) -> None:
        """`raw` is the header and the body as they stand, verified."""
        assert header.base == self.end, f"{header.id} does not continue at {self.end}"
        block = self._block
        if block is None:
            block = self._block = _Open(header.base, self._size, self._head)
        self._write(raw)
        self.end, self._head = header.base + header.count, header.checksum
        self._entries += 1
        if not self._spans or self._spans[-1].epoch != header.epoch:
            self._spans.append(Span(header.epoch, header.base))
        flags = 0
        if header.kind is _DATA:
            self._records += header.count
            self._sessions[header.session] = Writer(header.session, header.request, header.base)
            kind, flags = _looked_into(raw)
            self._compressions |= 1 << kind
            block.records += header.count
            block.batches += 1
        elif header.kind is Kind.REGISTER:
            name = session_of(header)
            self._sessions[name] = Writer(name, 0, header.base)
        elif header.kind is Kind.LOST:
            flags = GIVEN_UP
            if header.request:
                self._sessions[header.session] = Writer(header.session, header.request, header.base)
        block.note(header.timestamp_ms, flags)
        if self._size - block.position >= BLOCK_BYTES:
            self._close_block(block)

    def _close_block(self, block: _Open) -> None:
        self._blocks.append(block.closed(self._size))
        self._block = None

    def made(self) -> Index:
        """All that stands in the segment but its entries.  Nothing can be added afterwards."""
        if self._block is not None:
            self._close_block(self._block)
        assert self._blocks and self._size > HEAD.size, "a segment has entries"
        index = Index(
            self.base, self.end, self.parent, self._head, self._entries, self._records,
            tuple(self._blocks), tuple(self._spans),
            tuple(self._sessions[each] for each in sorted(self._sessions)), self._compressions,
        )  # fmt: skip
        self._write(memoryview(pack_tail(index)))
        self._full.append(self._room[: self._filled])
        return index


class _Open:
    """A block that is being filled."""

    __slots__ = ("base", "batches", "earliest_ms", "entries", "flags", "latest_ms", "parent",
                 "position", "records")  # fmt: skip

    def __init__(self, base: int, position: int, parent: int) -> None:
        self.base = base
        self.position = position
        self.parent = parent
        self.earliest_ms = self.latest_ms = -1
        self.entries = self.batches = self.flags = self.records = 0

    def note(self, timestamp_ms: int, flags: int) -> None:
        self.entries += 1
        self.flags |= flags
        self.latest_ms = max(self.latest_ms, timestamp_ms)
        if self.earliest_ms < 0 or timestamp_ms < self.earliest_ms:
            self.earliest_ms = timestamp_ms

    def closed(self, end: int) -> Block:
        return Block(
            self.base, self.position, end - self.position, self.parent, self.earliest_ms,
            self.latest_ms, self.records, self.entries, self.batches, self.flags,
        )  # fmt: skip


def _looked_into(raw: memoryview) -> tuple[int, int]:
    """How a body is compressed, and whether its records may have times of their own."""
    start = ENTRY_HEADER_BYTES
    if len(raw) < start + PREFIX.size + BATCH_HEAD.size:
        return 0, OWN_TIMES  # no batch of records; whoever reads it will say so
    compression: int = raw[start]
    if compression == 0 and raw[start + PREFIX.size + 4] & HAS_TIMESTAMPS == 0:
        return 0, 0
    return min(compression, 31), OWN_TIMES
