"""Bodies of entries, as clients send them: batches of one record."""

from __future__ import annotations

from shardlog.transport.batch import BatchBuilder

EMPTY_BYTES = 32
"""What a batch of one empty record takes."""


def body_of(value: bytes) -> bytes:
    builder = BatchBuilder()
    builder.append(value)
    return builder.body()


def body_of_size(size: int) -> bytes:
    """Of just this length, which is a multiple of 8."""
    body = body_of(bytes(size - EMPTY_BYTES))
    assert len(body) == size
    return body
