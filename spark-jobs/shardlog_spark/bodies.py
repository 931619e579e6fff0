"""Rows of Arrow become bodies of batches, by their buffers.

A batch of rows is halved until each part fits into a body, which depends on the rows alone: the
same rows in the same order give the same bodies.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shardlog.client.batching import TIMESTAMP_MS_MAX, TIMESTAMP_MS_MIN
from shardlog.transport.batch import (
    ALIGNMENT,
    BATCH_VERSION,
    HAS_DELTAS,
    HAS_HEADERS,
    HAS_KEYS,
    HAS_NULL_KEYS,
    HAS_TIMESTAMPS,
    HEAD,
    HEADER_HEAD,
    PLAIN_BYTES_MAX,
    PREFIX,
    pack_headers,
)
from shardlog.transport.compression import Compression, compress
from shardlog_spark.failures import CannotWrite

BODY_BYTES = 1 << 20
"""About the most of keys, values and headers in a body of more than one row."""
BODY_BYTES_MAX = 4 << 20
"""What a node takes at most."""
ROWS_MAX = 65_536
_HEADER_BYTES = HEADER_HEAD.size
_U32 = 1 << 32


def bodies(batch: pa.RecordBatch, compression: Compression) -> Iterator[tuple[bytes, int]]:
    """Bodies and how many records each has.

    `CannotWrite` if a row can be no record, or its body would be longer than a node takes.
    """
    for rows in pieces(batch):
        yield body_of(rows, compression), rows.num_rows


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in order, as many at once as one body holds."""
    if not batch.num_rows:
        return
    if batch.num_rows > 1 and not _fits(batch):
        half = batch.num_rows // 2
        yield from pieces(batch.slice(0, half))
        yield from pieces(batch.slice(half))
    else:
        yield batch


def body_of(rows: pa.RecordBatch, compression: Compression) -> bytes:
    """One body of all these rows, which `pieces` gave."""
    content = b"".join(_content(rows))
    kind = Compression.NONE
    data = content
    if compression is not Compression.NONE:
        packed = compress(compression, content)
        if len(packed) < len(content):
            kind, data = compression, packed
    if len(content) > PLAIN_BYTES_MAX or PREFIX.size + len(data) > BODY_BYTES_MAX:
        raise CannotWrite(
            f"a record of {len(content)} bytes, more than a node takes: {BODY_BYTES_MAX}, "
            f"and {PLAIN_BYTES_MAX} before compression"
        )
    return PREFIX.pack(kind, BATCH_VERSION, 0, len(content)) + data


def _fits(batch: pa.RecordBatch) -> bool:
    if batch.num_rows > ROWS_MAX or _bytes(batch) > BODY_BYTES:
        return False
    if "timestamp" not in batch.schema.names:
        return True
    times = batch.column("timestamp")
    if times.null_count:
        return bool(times.null_count == len(times))
    ms = _milliseconds(times)
    return bool(pc.max(ms).as_py() - pc.min(ms).as_py() < _U32)


def _bytes(batch: pa.RecordBatch) -> int:
    """Of keys, values and headers."""
    names = batch.schema.names
    columns = [batch.column(name) for name in ("key", "value") if name in names]
    found = 0
    if "headers" in names:
        headers = batch.column("headers").flatten()
        found += _HEADER_BYTES * len(headers)
        columns += headers.flatten()
    return found + sum(pc.sum(pc.binary_length(_binary(each))).as_py() or 0 for each in columns)


def _content(rows: pa.RecordBatch) -> list[bytes]:
    names = rows.schema.names
    flags, earliest = 0, 0
    parts = [b""]
    if "key" in names and rows.column("key").null_count < rows.num_rows:
        keys = _binary(rows.column("key"))
        flags |= HAS_KEYS
        ends, data = _run(keys)
        parts += _padded(ends)
        if keys.null_count:
            flags |= HAS_NULL_KEYS
            parts += _padded(_bitmap(keys))
        parts += _padded(data)
    values = _binary(rows.column("value"))
    if values.null_count:
        raise CannotWrite("a value is null: records have values, which may be empty")
    for part in _run(values):
        parts += _padded(part)
    if "timestamp" in names:
        flags, earliest, deltas = _times(rows.column("timestamp"), flags)
        parts += _padded(deltas)
    if "headers" in names and rows.column("headers").null_count < rows.num_rows:
        flags |= HAS_HEADERS
        packed = [_packed_headers(found) for found in rows.column("headers").to_pylist()]
        for part in _run(pa.array(packed, pa.binary())):
            parts += _padded(part)
    parts[0] = HEAD.pack(rows.num_rows, flags, earliest)
    return parts


def _packed_headers(found: list[dict[str, Any] | None] | None) -> bytes:
    """A null value is written as an empty one: records have no null in headers."""
    headers = [] if found is None else found
    named = [each for each in headers if each is not None and each["key"] is not None]
    if len(named) < len(headers):
        raise CannotWrite("a header has no name")
    try:
        return pack_headers([(each["key"], each["value"] or b"") for each in named])
    except struct.error as failure:
        raise CannotWrite(f"a header's name has at most {0xFFFF} bytes") from failure


def _binary(column: pa.Array) -> pa.Array:
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _run(column: pa.Array) -> tuple[bytes, bytes]:
    """Ends from 0 on, and the bytes; null is as empty."""
    column = pa.concat_arrays([column.fill_null(b""), pa.array([b""], pa.binary())])
    lengths = pc.binary_length(column.slice(0, len(column) - 1))
    ends = pc.cumulative_sum(lengths.cast(pa.int64()))
    last = ends[len(ends) - 1].as_py()
    if last >= _U32 >> 1:
        raise CannotWrite("a record is too long")
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
    start = column.buffers()[1]
    first = pa.Array.from_buffers(pa.int32(), 1, [None, start], offset=column.offset)[0].as_py()
    buffer = column.buffers()[2]
    data = b"" if buffer is None else buffer.slice(first, last).to_pybytes()
    return _bytes_of(offsets, 4), data


def _bytes_of(column: pa.Array, width: int) -> bytes:
    buffer = column.buffers()[1]
    found: bytes = buffer.slice(width * column.offset, width * len(column)).to_pybytes()
    return found


def _bitmap(column: pa.Array) -> bytes:
    packed = pa.concat_arrays([column.is_valid(), pa.array([], pa.bool_())])
    size = (len(column) + 7) // 8
    found = bytearray(packed.buffers()[1].to_pybytes()[:size])
    if len(column) % 8:
        found[-1] &= (1 << len(column) % 8) - 1
    return bytes(found)


def _milliseconds(column: pa.Array) -> pa.Array:
    """Since 1970, rounded down, as integers."""
    floor = pc.floor_temporal(column, unit="millisecond")
    return floor.cast(pa.timestamp("ms", tz=column.type.tz)).view(pa.int64())


def _times(column: pa.Array, flags: int) -> tuple[int, int, bytes]:
    """Flags, the earliest, and what the others are later; all rows have a time or none has."""
    if column.null_count == len(column):
        return flags, 0, b""
    ms = _milliseconds(column)
    earliest, latest = pc.min(ms).as_py(), pc.max(ms).as_py()
    if not TIMESTAMP_MS_MIN <= earliest <= latest <= TIMESTAMP_MS_MAX:
        raise CannotWrite("a timestamp is outside the years 1 to 9999")
    flags |= HAS_TIMESTAMPS
    if earliest == latest:
        return flags, earliest, b""
    deltas = pc.subtract(ms, earliest).cast(pa.uint32())
    return flags | HAS_DELTAS, earliest, _bytes_of(deltas, 4)


def _padded(run: bytes) -> tuple[bytes, bytes]:
    return run, bytes(-len(run) % ALIGNMENT)
