"""Format version 1, byte by byte: segment heads, slots and entries.  All numbers little-endian.

A segment is one file, so that one sync covers all of it:

    [0, 4096)                  the head, in two copies of 2048 bytes
    [4096, body_start)         slots of 128 bytes, one for each entry, in order
    [body_start, size)         entries: header (80 bytes) and body, one behind the other

An entry is written first; its slot, which repeats the header and tells where the entry stands,
only when the entry is durable.  Hence a slot that can be read says for certain that its entry was
once whole, and a bad entry without a slot was never acknowledged (rule 14).

`docs/storage-format.md` has the tables; a test compares them with these structures.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from shardlog.checksum import is_sealed, sum_of
from shardlog.protocol import header_bytes
from shardlog.protocol.entry import Header
from shardlog.storage.files import Buffer

FORMAT_VERSION = 1

SEGMENT_MAGIC = b"SHARDSEG"

ENTRY_MAGIC = header_bytes.ENTRY_MAGIC
ENTRY_HEADER = header_bytes.ENTRY_HEADER
ENTRY_HEADER_BYTES = header_bytes.ENTRY_HEADER_BYTES
pack_header = header_bytes.pack_header
SLOT = struct.Struct("<B3xIQQQQ80sII")
SLOT_BYTES = SLOT.size
_SLOT_SUMMED = SLOT_BYTES - 4
_SLOT_SUMMED_PART = struct.Struct("<B3xIQQQQ80sI")
SLOT_PLACE = struct.Struct("<B3xIQQ16x16xQII56x")
"""Type, lineage, sequence and position of a slot; base, count and length of the header in it."""
SLOT_KEYS = struct.Struct("<B3xIQ24x16xQ24xQ")
"""Type, lineage and sequence of a slot, and base and timestamp of the header in it."""
BLANK_SLOT = bytes(SLOT_BYTES)
LOST_BYTE = b"\xff"
LOST_SLOT = LOST_BYTE * SLOT_BYTES
"""Stands for a slot that was lost, and keeps being one."""

HEAD = struct.Struct("<8sIIQQQQQQQ")
HEAD_COPY_BYTES = 2048
SLOTS_START = 2 * HEAD_COPY_BYTES


class RecordType(IntEnum):
    """Every record of the write-ahead log (M1).  0 is blank, and never written."""

    ENTRY = 1
    COMMIT = 2
    CHECKPOINT = 3
    SEGMENT_START = 4
    EPOCH_END = 5
    FENCED = 6


_ENTRY = int(RecordType.ENTRY)


class Context(NamedTuple):
    """The commit context: everything below `end` is committed, and `checksum` ends it (rule 17)."""

    end: int
    checksum: int


class Slot(NamedTuple):
    """The copy apart of an entry's header, with its place and the context that rode along."""

    header: Header
    length: int
    position: int
    context: Context

    @property
    def after(self) -> int:
        """Where the next entry stands."""
        return self.position + ENTRY_HEADER_BYTES + self.length


@dataclass(frozen=True, slots=True)
class Head:
    """What a segment says of itself.  `lineage` counts how often the log was started over."""

    shard: str
    incarnation: int
    lineage: int
    number: int
    first: int
    boundary: int
    slots: int
    size: int

    @property
    def body_start(self) -> int:
        return SLOTS_START + self.slots * SLOT_BYTES


def unpack_header(data: Buffer) -> tuple[Header, int] | None:
    """A verified header and its body's length; None if these bytes are not one."""
    known = header_bytes.unpack_header(data)
    if known is None:
        return None
    return known if is_sealed(known[0]) else None


def pack_slot(slot: Slot, lineage: int, sequence: int) -> bytes:
    """`sequence` is the slot's place in the whole log: a misplaced slot gives itself away."""
    packed = pack_header(slot.header, slot.length)
    return join_slot(packed, slot.position, slot.context, lineage, sequence)


def join_slot(packed: bytes, position: int, context: Context, lineage: int, sequence: int) -> bytes:
    """A slot around a header that is packed already."""
    summed = _SLOT_SUMMED_PART.pack(_ENTRY, lineage, sequence, position, *context, packed, 0)
    return summed + sum_of(summed).to_bytes(4, "little")


def unpack_slot(data: Buffer, lineage: int, sequence: int) -> Slot | None:
    """The slot; None if it is blank, damaged or not the one that belongs here."""
    (kind, its_lineage, its_sequence, position, end, checksum, packed, zero, total) = SLOT.unpack(
        data
    )
    if sum_of(data[:_SLOT_SUMMED]) != total or kind != RecordType.ENTRY or zero:
        return None
    if its_lineage != lineage or its_sequence != sequence:
        return None
    known = unpack_header(packed)
    if known is None:
        return None
    return Slot(known[0], known[1], position, Context(end, checksum))


def headers_of(slots: bytes, lineage: int, sequence: int, body: range, at: int) -> list[Header]:
    """Of slots in one piece, as far as they can be read and each goes on where the last one ended.

    The first has the base `at`; the entries stand within `body`.
    """
    found: list[Header] = []
    start = 0
    for kind, its_lineage, its_sequence, position, _, _, packed, zero, total in SLOT.iter_unpack(
        slots
    ):
        if sum_of(slots[start : start + _SLOT_SUMMED]) != total or kind != _ENTRY or zero:
            break
        known = unpack_header(packed)
        if known is None or its_lineage != lineage or its_sequence != sequence:
            break
        header, length = known
        behind = position + ENTRY_HEADER_BYTES + length
        if header.base != at or position < body.start or behind > body.stop:
            break
        found.append(header)
        at += header.count
        sequence += 1
        start += SLOT_BYTES
    return found


def peek_slot(data: Buffer, lineage: int, sequence: int) -> tuple[int, int] | None:
    """Base offset and timestamp alone, for those who search; None as in `unpack_slot`."""
    if sum_of(data[:_SLOT_SUMMED]) != int.from_bytes(data[_SLOT_SUMMED:], "little"):
        return None
    kind, its_lineage, its_sequence, base, timestamp_ms = SLOT_KEYS.unpack_from(data)
    if (kind, its_lineage, its_sequence) != (RecordType.ENTRY, lineage, sequence):
        return None
    return base, timestamp_ms


def is_summed(data: bytes, at: int) -> bool:
    """Whether the slot at byte `at` is as it was written."""
    summed = at + _SLOT_SUMMED
    return sum_of(data[at:summed]) == int.from_bytes(data[summed : summed + 4], "little")


def foreign_type(data: Buffer) -> int | None:
    """The type of a whole record that has no place among the slots; None if it is no such thing."""
    if sum_of(data[:_SLOT_SUMMED]) != int.from_bytes(data[_SLOT_SUMMED:], "little"):
        return None
    kind = data[0]
    return None if kind in (0, RecordType.ENTRY) else kind


def slot_sequence(number: int, index: int) -> int:
    """The sequence of slot `index` in segment `number`."""
    return (number << 24) | index


def pack_head(head: Head) -> bytes:
    """One copy, padded."""
    name = head.shard.encode()
    packed = HEAD.pack(
        SEGMENT_MAGIC,
        FORMAT_VERSION,
        len(name),
        head.incarnation,
        head.lineage,
        head.number,
        head.first,
        head.boundary,
        head.slots,
        head.size,
    )
    summed = (packed + name).ljust(HEAD_COPY_BYTES - 4, b"\0")
    return summed + sum_of(summed).to_bytes(4, "little")


def unpack_head(data: Buffer) -> Head | None:
    """The head in one copy; None if the copy is damaged."""
    if len(data) != HEAD_COPY_BYTES:
        return None
    if sum_of(data[:-4]) != int.from_bytes(data[-4:], "little"):
        return None
    magic, version, named, incarnation, lineage, number, first, boundary, slots, size = (
        HEAD.unpack_from(data)
    )
    if magic != SEGMENT_MAGIC or version != FORMAT_VERSION:
        return None
    shard = bytes(data[HEAD.size : HEAD.size + named]).decode(errors="replace")
    return Head(shard, incarnation, lineage, number, first, boundary, slots, size)


def foreign_version(data: Buffer, magic: bytes) -> int | None:
    """The version of a format that is not this one, if some bytes are whole and say so."""
    if len(data) != HEAD_COPY_BYTES or bytes(data[: len(magic)]) != magic:
        return None
    if sum_of(data[:-4]) != int.from_bytes(data[-4:], "little"):
        return None
    version = int.from_bytes(data[len(magic) : len(magic) + 4], "little")
    return None if version == FORMAT_VERSION else version
