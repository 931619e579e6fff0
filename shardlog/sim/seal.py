"""The checksums of the simulator: short, and the same in every process.

CRC32 from the standard library is enough here: damage is modelled as a state of a slot, so no
checksum has to detect it; it only has to tell different entries apart and chain them.  The
functions stand at module level so that worker processes can import them by name.
"""

from __future__ import annotations

import struct
import zlib

_PACK = struct.Struct("<9Q").pack


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
    """A header's checksum; never 0, which stands for the parent of the first entry."""
    packed = _PACK(epoch, base, count, kind, session, request, timestamp_ms, parent, body_checksum)
    return zlib.crc32(packed) or 1


def seal_body(body: bytes) -> int:
    """What a client writes beside the body that it sends."""
    return zlib.crc32(body) or 1
