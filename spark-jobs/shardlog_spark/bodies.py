"""Rows of Arrow become bodies of batches, again by their buffers.

A batch of rows is cut where bodies would become too long, by offsets alone, so that the same rows
give the same bodies: a task that runs again sends the same requests.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from shardlog.transport.batch import (
    ALIGNMENT,
    BATCH_VERSION,
    HAS_DELTAS,
    HAS_HEADERS,
    HAS_KEYS,
    HAS_NULL_KEYS,
    HAS_TIMESTAMPS,
    HEAD,
    PREFIX,
    pack_headers,
)
from shardlog.transport.compression import Compression, compress
from shardlog_spark.failures import CannotWrite

BODY_BYTES = 1 << 20
ROWS_MAX = 65_536
_U32 = 1 << 32


def bodies(batch: pa.RecordBatch, compression: Compression) -> Iterator[tuple[bytes, int]]:
    """Bodies and how many records each has."""
    for rows in _cut(batch):
        content = b"".join(_content(rows))
        kind = Compression.NONE
        data = content
        if compression is not Compression.NONE:
            packed = compress(compression, content)
            if len(packed) < len(content):
                kind, data = compression, packed
        yield PREFIX.pack(kind, BATCH_VERSION, 0, len(content)) + data, rows.num_rows


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """In halves, until each is short enough or a single row."""
    if not batch.num_rows:
        return
    if batch.num_rows > 1 and (batch.num_rows > ROWS_MAX or _bytes(batch) > BODY_BYTES):
        half = batch.num_rows // 2
        yield from _cut(batch.slice(0, half))
        yield from _cut(batch.slice(half))
    else:
        yield batch


def _bytes(batch: pa.RecordBatch) -> int:
    """Of keys and values."""
    found = 0
    for name in ("key", "value"):
        if name in batch.schema.names:
            found += pc.sum(pc.binary_length(_binary(batch.column(name)))).as_py() or 0
    return int(found)


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
        packed = [
            pack_headers([(each["key"], each["value"] or b"") for each in found or ()])
            for found in rows.column("headers").to_pylist()
        ]
        for part in _run(pa.array(packed, pa.binary())):
            parts += _padded(part)
    parts[0] = HEAD.pack(rows.num_rows, flags, earliest)
    return parts


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


def _times(column: pa.Array, flags: int) -> tuple[int, int, bytes]:
    """Milliseconds; all rows have one or none has."""
    if column.null_count == len(column):
        return flags, 0, b""
    if column.null_count:
        raise CannotWrite("some timestamps are null and some are not")
    floor = pc.floor_temporal(column, unit="millisecond")
    ms = floor.cast(pa.timestamp("ms", tz="UTC")).view(pa.int64())
    earliest, latest = pc.min(ms).as_py(), pc.max(ms).as_py()
    flags |= HAS_TIMESTAMPS
    if earliest == latest:
        return flags, earliest, b""
    if latest - earliest >= _U32:
        raise CannotWrite("timestamps in one batch are more than 49 days apart")
    deltas = pc.subtract(ms, earliest).cast(pa.uint32())
    return flags | HAS_DELTAS, earliest, _bytes_of(deltas, 4)


def _padded(run: bytes) -> tuple[bytes, bytes]:
    return run, bytes(-len(run) % ALIGNMENT)
