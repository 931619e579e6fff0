"""Two checksums: CRC32C for bytes at rest, and a hash for the chain of headers.

CRC32C runs at memory speed and finds every kind of damage that a disk deals; it sums bodies,
slots, segment heads and superblock copies.  The chain decides whether two logs are the same, so
its links are 64 bits of BLAKE2b over the header, which names the body's checksum and the parent.
"""

from __future__ import annotations

import struct
from hashlib import blake2b

from crc32c import crc32c

from shardlog.protocol.entry import Header, Kind, witness

Buffer = bytes | bytearray | memoryview

_PACK = struct.Struct("<9Q").pack


sum_of = crc32c
"""The CRC32C of some bytes."""


def seal_body(body: Buffer) -> int:
    """What stands in a header for its body: its CRC32C and, above that, its length; 0 if empty."""
    return crc32c(body) | len(body) << 32


def is_sealed(header: Header) -> bool:
    """Whether a header is as it was made.

    A marker of what was lost takes over the checksum of that, so that the chain holds; what it
    says itself is witnessed where other headers have the sum of their body.
    """
    if header.checksum == seal(*header[:-1]):
        return True
    return header.kind is Kind.LOST and header.body_checksum == witness(seal, header)


def is_body(header: Header, body: Buffer) -> bool:
    """Whether a body is the one that its header names; a marker has none."""
    if header.kind is Kind.LOST:
        return not body
    return seal_body(body) == header.body_checksum


def seal(
    epoch: int,
    base: int,
    count: int,
    kind: int,
    session: int,
    request: int,
    timestamp_ms: int,
    parent: int,
    body_checksum: int,
) -> int:
    """A header's link in the chain; never 0, which stands for the parent of the first entry."""
    packed = _PACK(epoch, base, count, kind, session, request, timestamp_ms, parent, body_checksum)
    return int.from_bytes(blake2b(packed, digest_size=8).digest(), "little") or 1
