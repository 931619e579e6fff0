"""Compression of batch bodies: an extra, because a client that sends plain bodies needs none.

Nobody is trusted with how much memory a body takes: the plain length stands before the compressed
bytes, is held to a bound before anything is allocated, and must come out exactly.
"""

from __future__ import annotations

from enum import IntEnum

from shardlog.transport.failures import MalformedBatch, TransportFailure
from shardlog.transport.frames import Buffer


class Compression(IntEnum):
    """The first byte of a body."""

    NONE = 0
    ZSTD = 1
    LZ4 = 2


class CompressionMissing(TransportFailure):
    """The library for it is not installed here."""

    def __init__(self, compression: Compression) -> None:
        super().__init__(f"{compression.name} needs: pip install 'shardlog[compression]'")
        self.compression = compression


def compress(compression: Compression, plain: bytes) -> bytes:
    try:
        if compression is Compression.ZSTD:
            import zstandard

            return zstandard.compress(plain, level=1)
        import lz4.block

        packed: bytes = lz4.block.compress(plain, store_size=False)
        return packed
    except ImportError as failure:
        raise CompressionMissing(compression) from failure


def decompress(compression: Compression, data: Buffer, plain_bytes: int) -> bytes:
    try:
        plain = (
            _unzstd(data, plain_bytes)
            if compression is Compression.ZSTD
            else _unlz4(data, plain_bytes)
        )
    except ImportError as failure:
        raise CompressionMissing(compression) from failure
    if len(plain) != plain_bytes:
        raise MalformedBatch(f"{len(plain)} bytes came out where {plain_bytes} are announced")
    return plain


def _unzstd(data: Buffer, plain_bytes: int) -> bytes:
    import zstandard

    try:
        # A frame that tells its size is given that much memory, whatever was allowed.
        if zstandard.frame_content_size(data) != plain_bytes:
            raise MalformedBatch("ZSTD tells another length than the batch")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=plain_bytes)
    except zstandard.ZstdError as failure:
        raise MalformedBatch(f"ZSTD: {failure}") from failure


def _unlz4(data: Buffer, plain_bytes: int) -> bytes:
    import lz4.block

    try:
        plain: bytes = lz4.block.decompress(data, uncompressed_size=plain_bytes)
    except lz4.block.LZ4BlockError as failure:
        raise MalformedBatch(f"LZ4: {failure}") from failure
    return plain
