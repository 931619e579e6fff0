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

from shardlog.protocol.entry import Header, Kind, header_of

ENTRY_MAGIC = b"SE"
ENTRY_VERSION = 1
ENTRY_HEADER = struct.Struct("<2sBBIQQIIQQQQIIQ")
ENTRY_HEADER_BYTES = ENTRY_HEADER.size
BODY_BYTES_MAX = (1 << 32) - 1

_CRC = (1 << 32) - 1
# The same in fewer numbers: what must be as it is comes as one, and so does the CRC with the zero
# above it.  Every entry that is written, sent or recovered passes here.
_WIDE = struct.Struct("<QQQIIQQQQQQ")
_START_OF = {
    kind: int.from_bytes(struct.pack("<2sBBI", ENTRY_MAGIC, ENTRY_VERSION, kind, 0), "little")
    for kind in (Kind.DATA, Kind.EPOCH_START, Kind.REGISTER, Kind.LOST)
}
_STARTS = {start: kind for kind, start in _START_OF.items()}
_pack, _unpack_from = _WIDE.pack, _WIDE.unpack_from
assert _WIDE.size == ENTRY_HEADER_BYTES


def pack_header(header: Header, length: int) -> bytes:
    """`length` is that of the body, which follows."""
    epoch, base, count, kind, session, request, time, parent, body, checksum = header
    assert body >> 32 == length, f"{header.id} has another body"
    start = _START_OF[kind]
    return _pack(
        start, epoch, base, count, length, session, request, time, parent, body & _CRC, checksum
    )


def unpack_header(data: bytes | bytearray | memoryview, at: int = 0) -> tuple[Header, int] | None:
    """The header at `at`, not verified, and its body's length; None if these bytes are not one."""
    if len(data) - at < ENTRY_HEADER_BYTES:
        return None
    start, epoch, base, count, length, session, request, time, parent, body, checksum = (
        _unpack_from(data, at)
    )
    kind = _STARTS.get(start)
    if kind is None or body > _CRC:
        return None
    body |= length << 32
    header = (epoch, base, count, kind, session, request, time, parent, body, checksum)
    return header_of(header), length
