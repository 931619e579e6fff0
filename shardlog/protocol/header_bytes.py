"""An entry's header as 80 bytes: the same on disk and on the wire.

Storage and transport may not import each other, and both must agree on every byte, because a node
sends entries just as they stand in its segments.  A body's checksum holds its CRC in the lower 32
bits and its length above them, so the chain of headers vouches for both.  Whether a header's
checksum is right is not asked here: checksums come in as values, and whoever reads a header
verifies it.

`docs/storage-format.md` has the table.
"""

from __future__ import annotations

import struct

from shardlog.protocol.entry import Header, Kind

ENTRY_MAGIC = b"SE"
ENTRY_VERSION = 1
ENTRY_HEADER = struct.Struct("<2sBBIQQIIQQQQIIQ")
ENTRY_HEADER_BYTES = ENTRY_HEADER.size
BODY_BYTES_MAX = (1 << 32) - 1

_CRC = (1 << 32) - 1
_KINDS = {int(kind): kind for kind in (Kind.DATA, Kind.EPOCH_START, Kind.REGISTER)}


def pack_header(header: Header, length: int) -> bytes:
    """`length` is that of the body, which follows."""
    assert header.body_checksum >> 32 == length, f"{header.id} has another body"
    return ENTRY_HEADER.pack(
        ENTRY_MAGIC,
        ENTRY_VERSION,
        header.kind,
        0,
        header.epoch,
        header.base,
        header.count,
        length,
        header.session,
        header.request,
        header.timestamp_ms,
        header.parent,
        header.body_checksum & _CRC,
        0,
        header.checksum,
    )


def unpack_header(data: bytes | bytearray | memoryview, at: int = 0) -> tuple[Header, int] | None:
    """The header at `at`, not verified, and its body's length; None if these bytes are not one."""
    if len(data) - at < ENTRY_HEADER_BYTES:
        return None
    (magic, version, kind, zero, epoch, base, count, length, session, request, time, parent, body,
     also_zero, checksum) = ENTRY_HEADER.unpack_from(data, at)  # fmt: skip
    if magic != ENTRY_MAGIC or version != ENTRY_VERSION or zero or also_zero:
        return None
    named = _KINDS.get(kind)
    if named is None:
        return None
    body |= length << 32
    return Header(epoch, base, count, named, session, request, time, parent, body, checksum), length
