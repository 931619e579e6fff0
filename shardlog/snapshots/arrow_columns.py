"""The columns of a batch as Arrow arrays, by wrapping its bytes.

The ends in a batch are Arrow's offsets as they stand, so nothing is done for each record but what
Arrow does in native code.  Native code trusts offsets, so they are checked first, also there: they
start with 0, never fall, and end where the run does.  Headers are taken apart for all records at
once, first the first one of each record, then the second one, and only where somebody asks for
them; batches in which a record has very many are the exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardlog.client.batching import TIMESTAMP_MS_MAX, TIMESTAMP_MS_MIN
from shardlog.protocol.entry import Header
from shardlog.transport.batch import (
    ALIGNMENT,
    HAS_DELTAS,
    HAS_HEADERS,
    HAS_KEYS,
    HAS_NULL_KEYS,
    HAS_TIMESTAMPS,
    HEAD,
    HEADER_HEAD,
    PREFIX,
    Batch,
    plain_content,
)
from shardlog.transport.failures import MalformedBatch

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TIMESTAMP = pa.timestamp("us", tz="UTC")
TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "shard": pa.string(),
    "offset": pa.int64(),
    "epoch": pa.int64(),
    "timestamp": TIMESTAMP,
    "headers": HEADERS,
    "appended": TIMESTAMP,
}
COLUMNS = ("key", "value", "shard", "offset", "epoch", "timestamp", "headers")
"""Those that are made if nobody says which."""
_U32 = 1 << 32
HEADERS_MAX = 32
"""Records of a batch have at most so many where headers are taken apart for all at once."""
ROWS = 16_384
BYTES = 4 << 20


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, TYPES[name]) for name in columns])


class _Run(NamedTuple):
    """Byte strings one behind the other; `offsets` as Arrow has them."""

    offsets: memoryview
    data: memoryview

    def array(self, count: int, validity: memoryview | None = None) -> pa.Array:
        buffers = [
            None if validity is None else pa.py_buffer(validity),
            pa.py_buffer(self.offsets),
            pa.py_buffer(self.data),
        ]
        return pa.Array.from_buffers(pa.binary(), count, buffers)


class Columns:
    """A body's columns, found and checked; `times` are milliseconds."""

    __slots__ = ("body", "count", "deltas", "earliest_ms", "headers", "key_validity", "keys",
                 "values")  # fmt: skip

    def __init__(self, body: memoryview, count: int) -> None:
        self.body = body
        content = plain_content(body)
        if len(content) < HEAD.size:
            raise MalformedBatch(f"a batch of {len(content)} bytes")
        self.count, flags, earliest = HEAD.unpack_from(content)
        if self.count != count:
            raise MalformedBatch(f"{self.count} records where {count} are due")
        at = HEAD.size

        def take(length: int) -> memoryview:
            nonlocal at
            found = content[at : at + length]
            if len(found) != length:
                raise MalformedBatch(f"a run of {length} bytes does not fit at byte {at}")
            at += length + -length % ALIGNMENT
            return found

        def run(validity: bool = False) -> tuple[_Run, memoryview | None]:
            offsets = take(4 * (count + 1))
            valid = take((count + 7) // 8) if validity else None
            return _Run(offsets, take(_checked(offsets, count))), valid

        self.keys: _Run | None = None
        self.key_validity: memoryview | None = None
        if flags & HAS_KEYS:
            self.keys, self.key_validity = run(bool(flags & HAS_NULL_KEYS))
        self.values, _ = run()
        self.earliest_ms = earliest if flags & HAS_TIMESTAMPS else None
        self.deltas = take(4 * count) if flags & HAS_DELTAS else None
        self.headers = run()[0] if flags & HAS_HEADERS else None


def _checked(offsets: memoryview, count: int) -> int:
    """Where the last one ends; `MalformedBatch` unless they begin with 0 and never fall."""
    buffer = pa.py_buffer(offsets)
    ends = pa.Array.from_buffers(pa.int32(), count + 1, [None, buffer])
    lowest = pc.min(pc.subtract(ends.slice(1), ends.slice(0, count))).as_py()
    if ends[0].as_py() != 0 or lowest < 0:
        raise MalformedBatch("ends must start with 0 and never fall")
    return int(ends[count].as_py())


# --- one batch -----------------------------------------------------------------------------------


def _key(header: Header, found: Columns, shard: str) -> pa.Array:
    if found.keys is None:
        return pa.nulls(found.count, pa.binary())
    return found.keys.array(found.count, found.key_validity)


def _value(header: Header, found: Columns, shard: str) -> pa.Array:
    return found.values.array(found.count)


def _shard(header: Header, found: Columns, shard: str) -> pa.Array:
    return pa.repeat(pa.scalar(shard, pa.string()), found.count)


def _offset(header: Header, found: Columns, shard: str) -> pa.Array:
    return pa.arange(header.base, header.base + found.count)


def _epoch(header: Header, found: Columns, shard: str) -> pa.Array:
    return pa.repeat(pa.scalar(header.epoch, pa.int64()), found.count)


def _timestamp(header: Header, found: Columns, shard: str) -> pa.Array:
    """Null outside the years 1 to 9999, which producers refuse, and dates of Python cannot hold."""
    earliest = header.timestamp_ms if found.earliest_ms is None else found.earliest_ms
    if found.deltas is None:
        return _at(earliest, found.count)
    if not _is_date(earliest) and not _is_date(earliest + _U32):
        return pa.nulls(found.count, TIMESTAMP)
    deltas = pa.Array.from_buffers(
        pa.uint32(), found.count, [None, pa.py_buffer(found.deltas)]
    ).cast(pa.int64())
    ms = pc.add(deltas, earliest)
    if not (_is_date(earliest) and _is_date(earliest + _U32)):
        dates = pc.and_(pc.greater_equal(ms, TIMESTAMP_MS_MIN), pc.less_equal(ms, TIMESTAMP_MS_MAX))
        ms = pc.if_else(dates, ms, pa.scalar(None, pa.int64()))
    return pc.multiply(ms, 1000).view(TIMESTAMP)


def _is_date(ms: int) -> bool:
    return TIMESTAMP_MS_MIN <= ms <= TIMESTAMP_MS_MAX


def _appended(header: Header, found: Columns, shard: str) -> pa.Array:
    return _at(header.timestamp_ms, found.count)


def _at(ms: int, count: int) -> pa.Array:
    if not _is_date(ms):
        return pa.nulls(count, TIMESTAMP)
    return pa.repeat(pa.scalar(ms * 1000, pa.int64()), count).view(TIMESTAMP)


def _headers(header: Header, found: Columns, shard: str) -> pa.Array:
    run = found.headers
    if run is None:
        return pa.nulls(found.count, HEADERS)
    offsets = np.frombuffer(run.offsets, "<i4").astype(np.int64)
    places = _header_places(run.data, offsets[:-1], offsets[1:])
    if places is None:
        return _headers_one_by_one(found)
    at, middles, records = places
    # Heads, names and values stand one behind the other, so they are one array of byte strings.
    edges = np.empty(3 * len(at) + 1, np.int32)
    edges[0:-1:3], edges[1::3], edges[2::3], edges[-1] = at, at + HEADER_HEAD.size, middles, (
        len(run.data)
    )  # fmt: skip
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(run.data)]
    parts = pa.Array.from_buffers(pa.binary(), len(edges) - 1, buffers)
    firsts = np.arange(0, len(edges) - 1, 3)
    try:
        names = parts.take(pa.array(firsts + 1)).cast(pa.string())
    except pa.ArrowInvalid as failure:
        raise MalformedBatch("a header's name is not UTF-8") from failure
    values = parts.take(pa.array(firsts + 2))
    counts = np.bincount(records, minlength=found.count)
    lists = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(
        pa.array(lists), pairs, type=HEADERS, mask=pa.array(counts == 0)
    )


Numbers = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def _header_places(
    data: memoryview, at: Numbers, ends: Numbers
) -> tuple[Numbers, Numbers, Numbers] | None:
    """In order: where headers and their values begin, and whose they are.

    None if a record has more than `HEADERS_MAX`.
    """
    names = np.ndarray((max(0, len(data) - 1),), "<u2", data, 0, (1,))
    values = np.ndarray((max(0, len(data) - 5),), "<u4", data, 2, (1,)) if len(data) > 5 else names
    records = np.arange(len(at))
    found: list[tuple[Numbers, Numbers, Numbers]] = []
    more = at < ends
    while True:
        at, ends, records = at[more], ends[more], records[more]
        if not len(at):
            break
        if len(found) == HEADERS_MAX:
            return None
        if (at + HEADER_HEAD.size > ends).any():
            raise MalformedBatch("a header is cut")
        middles = at + HEADER_HEAD.size + names[at]
        after = middles + values[at]
        if (after > ends).any():
            raise MalformedBatch("a header is cut")
        found.append((at, middles, records))
        at, more = after, after < ends
    if not found:
        return at, at, records
    places, starts, whose = (np.concatenate(each) for each in zip(*found, strict=True))
    order = np.argsort(places, kind="stable")
    return places[order], starts[order], whose[order]


def _headers_one_by_one(found: Columns) -> pa.Array:
    batch = Batch(found.body, found.count)
    made = [
        [{"key": name, "value": value} for name, value in batch.headers(index)] or None
        for index in range(found.count)
    ]
    return pa.array(made, HEADERS)


_MADE: dict[str, Callable[[Header, Columns, str], pa.Array]] = {
    "key": _key,
    "value": _value,
    "shard": _shard,
    "offset": _offset,
    "epoch": _epoch,
    "timestamp": _timestamp,
    "headers": _headers,
    "appended": _appended,
}


def record_batch(header: Header, body: memoryview, shard: str, schema: pa.Schema) -> pa.RecordBatch:
    found = Columns(body, header.count)
    arrays = [_MADE[name](header, found, shard) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def plain_bytes(body: memoryview) -> int:
    """How long a checked body is without compression."""
    length: int = PREFIX.unpack_from(body)[3]
    return length


# --- many ----------------------------------------------------------------------------------------


class Packer:
    """Puts small batches together, up to about `ROWS` rows or `BYTES` bytes.

    The `size` of a batch is what it keeps in memory: its body as it is without compression.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._gathered: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
        self._gathered.append(batch)
        self._rows += batch.num_rows
        self._bytes += size
        if self._rows >= ROWS or self._bytes >= BYTES:
            yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            self._rows = self._bytes = 0
            yield gathered[0] if len(gathered) == 1 else pa.concat_batches(gathered)
