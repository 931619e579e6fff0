"""The body of an entry: a batch of records, column by column.

Only producers and readers look inside; a node stores and sends it as it is.  Columns are what makes
it cheap in Python: a producer joins all values at once, a reader slices, and Arrow takes the runs
as its own buffers, because ends start with a 0 and every run starts at a multiple of 8.  Nothing
here does work for each record but what builds or delivers that record.

A body may come from any client, so a reader checks it all before it hands anything out: behind
`Batch` no slice is out of bounds, and native code may be given the columns.

`docs/batch-format.md` has the tables; a test compares them with this.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import NamedTuple

from shardlog.transport.column import Column, ends_in, packed_ends, u32s
from shardlog.transport.compression import Compression, compress, decompress
from shardlog.transport.failures import MalformedBatch
from shardlog.transport.frames import Buffer

BATCH_VERSION = 1
PREFIX = struct.Struct("<BBHI")
HEAD = struct.Struct("<IIq")
HEADER_HEAD = struct.Struct("<HI")
PLAIN_BYTES_MAX = 64 << 20
"""What a body may have when it is not compressed, unless a reader says otherwise."""
RECORDS_MAX = 1 << 20
"""So many records a batch has at most: a reader needs memory for each, whatever it holds."""
ALIGNMENT = 8

HAS_KEYS = 0x01
HAS_NULL_KEYS = 0x02
HAS_TIMESTAMPS = 0x04
HAS_DELTAS = 0x08
HAS_HEADERS = 0x10
_KNOWN_FLAGS = 0x1F
_PREFIX = PREFIX.unpack_from
_COUNT_AND_FLAGS = struct.Struct("<II").unpack_from

_COMPRESSED = frozenset(each.value for each in Compression if each is not Compression.NONE)

Headers = Sequence[tuple[str, bytes]]


class Record(NamedTuple):
    """One record.  `timestamp_ms` is None where the client gave none: the entry's counts then."""

    key: bytes | None
    value: bytes
    timestamp_ms: int | None
    headers: tuple[tuple[str, bytes], ...]


_record: Callable[[Iterable[object]], Record] = partial(tuple.__new__, Record)

# --- writing -------------------------------------------------------------------------------------


def _padding(length: int) -> bytes:
    return bytes(-length % ALIGNMENT)


class BatchBuilder:
    """Gathers records; `body` turns them into bytes at once."""

    __slots__ = ("_headers", "_keys", "_plain", "_timestamps", "_values", "bytes_gathered")

    def __init__(self) -> None:
        self._values: list[bytes] = []
        self._plain = True  # nothing but values so far
        self._keys: list[bytes | None] | None = None
        self._timestamps: list[int] = []
        self._headers: list[Headers] | None = None
        self.bytes_gathered = 0

    def __len__(self) -> int:
        return len(self._values)

    def append(
        self,
        value: bytes,
        key: bytes | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Of all records in a batch either all have a timestamp or none."""
        if self._plain and key is None and timestamp_ms is None and not headers:
            self._values.append(value)
            self.bytes_gathered += len(value) + 4
            return
        if (timestamp_ms is None) != (len(self._timestamps) == 0) and self._values:
            raise ValueError("a batch has timestamps for all records or for none")
        if timestamp_ms is not None:
            self._timestamps.append(timestamp_ms)
        if key is not None and self._keys is None:
            self._keys = [None] * len(self._values)
        if self._keys is not None:
            self._keys.append(key)
            self.bytes_gathered += len(key or b"")
        if headers and self._headers is None:
            self._headers = [()] * len(self._values)
        if self._headers is not None:
            self._headers.append(headers)
            self.bytes_gathered += sum(len(name) + len(each) + 6 for name, each in headers)
        self._values.append(value)
        self.bytes_gathered += len(value) + 4
        self._plain = False

    def extend(
        self,
        values: Sequence[bytes],
        content_bytes: int | None = None,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers] | None = None,
    ) -> None:
        """Many records without timestamps: columns of one length.

        `content_bytes` is how long all of it is, if that is known.
        """
        if self._timestamps and values:
            raise ValueError("a batch has timestamps for all records or for none")
        if keys is not None and self._keys is None:
            self._keys = [None] * len(self._values)
        if self._keys is not None:
            self._keys += [None] * len(values) if keys is None else keys
        if headers is not None and self._headers is None:
            self._headers = [()] * len(self._values)
        if self._headers is not None:
            self._headers += [()] * len(values) if headers is None else headers
        self._plain = self._plain and keys is None and headers is None
        self._values += values
        if content_bytes is None:
            content_bytes = sum(map(len, values))
        self.bytes_gathered += content_bytes + 4 * len(values)

    def body(self, compression: Compression = Compression.NONE) -> bytes:
        """The body; plain if compression does not make it shorter."""
        if not self._values:
            raise ValueError("a batch has at least one record")
        content = b"".join(self._content())
        if compression is not Compression.NONE:
            packed = compress(compression, content)
            if len(packed) < len(content):
                return PREFIX.pack(compression, BATCH_VERSION, 0, len(content)) + packed
        return PREFIX.pack(Compression.NONE, BATCH_VERSION, 0, len(content)) + content

    def _content(self) -> list[bytes]:
        flags, earliest, deltas = self._times()
        parts = [b""]
        if self._keys is not None:
            flags |= HAS_KEYS
            nulls = None in self._keys
            keys = [key or b"" for key in self._keys]
            parts += _ends_of(keys)
            if nulls:
                flags |= HAS_NULL_KEYS
                parts += _padded(_bitmap(self._keys))
            parts += _padded(b"".join(keys))
        parts += _ends_of(self._values)
        parts += _padded(b"".join(self._values))
        if flags & HAS_DELTAS:
            parts += _padded(u32s(deltas))
        if self._headers is not None:
            flags |= HAS_HEADERS
            packed = [pack_headers(each) for each in self._headers]
            parts += _ends_of(packed)
            parts += _padded(b"".join(packed))
        parts[0] = HEAD.pack(len(self._values), flags, earliest)
        return parts

    def _times(self) -> tuple[int, int, list[int]]:
        if not self._timestamps:
            return 0, 0, []
        earliest = min(self._timestamps)
        if max(self._timestamps) == earliest:
            return HAS_TIMESTAMPS, earliest, []
        deltas = [each - earliest for each in self._timestamps]
        if max(deltas) >= 1 << 32:
            raise ValueError("timestamps in a batch may be 2^32 ms apart, not more")
        return HAS_TIMESTAMPS | HAS_DELTAS, earliest, deltas


def _padded(run: bytes) -> tuple[bytes, bytes]:
    return run, _padding(len(run))


def _ends_of(runs: list[bytes]) -> tuple[bytes, bytes]:
    return _padded(packed_ends(runs))


def _bitmap(keys: list[bytes | None]) -> bytes:
    """A bit for each key that is there, the lowest first, as Arrow has it."""
    bits = "".join(["0" if key is None else "1" for key in reversed(keys)])
    return int(bits, 2).to_bytes((len(keys) + 7) // 8, "little")


def pack_headers(headers: Headers) -> bytes:
    parts = []
    for name, value in headers:
        encoded = name.encode()
        parts += [HEADER_HEAD.pack(len(encoded), len(value)), encoded, value]
    return b"".join(parts)


# --- reading -------------------------------------------------------------------------------------


def flaw_of(body: Buffer, count: int, at: int = 0) -> str | None:
    """Why what stands from `at` on cannot be a batch of `count` records, None if nothing shows.

    By its first bytes alone: columns are not looked into, and nothing is decompressed.
    """
    size = len(body) - at - PREFIX.size
    if size < 0:
        return f"a body of {size + PREFIX.size} bytes"
    compression, version, zero, plain_bytes = _PREFIX(body, at)
    if version != BATCH_VERSION or zero:
        return f"no batch has version {version}"
    if not 0 < count <= RECORDS_MAX:
        return f"{count} records, from 1 to {RECORDS_MAX} are possible"
    if not HEAD.size + 4 * (count + 1) <= plain_bytes <= PLAIN_BYTES_MAX:
        return f"{count} records in {plain_bytes} bytes, at most {PLAIN_BYTES_MAX} are possible"
    if compression:
        return None if compression in _COMPRESSED else f"no compression has number {compression}"
    if plain_bytes != size:
        return f"{size} bytes where {plain_bytes} are announced"
    found, flags = _COUNT_AND_FLAGS(body, at + PREFIX.size)
    if found != count or flags & ~_KNOWN_FLAGS:
        return f"{found} records where {count} are due, or unknown flags {flags:#x}"
    return None


class _Cursor:
    """Takes runs from the content, each in its bounds."""

    __slots__ = ("at", "content")

    def __init__(self, content: memoryview) -> None:
        self.content = content
        self.at = HEAD.size

    def take(self, length: int) -> memoryview:
        start, end = self.at, self.at + length
        padded = end + -length % ALIGNMENT
        if padded > len(self.content):
            raise MalformedBatch(f"a run of {length} bytes does not fit at byte {start}")
        if any(self.content[end:padded]):
            raise MalformedBatch(f"something stands behind the run that ends at byte {end}")
        self.at = padded
        return self.content[start:end]

    def ends(self, count: int) -> tuple[Sequence[int], memoryview]:
        offsets = self.take(4 * (count + 1))
        return ends_in(offsets, count), offsets


class Batch:
    """A checked body.  Columns are views of it, unless it was compressed."""

    __slots__ = ("_deltas", "_headers", "count", "deltas", "earliest_ms", "key_validity", "keys",
                 "values")  # fmt: skip

    def __init__(
        self, body: Buffer, count: int | None = None, plain_bytes_max: int = PLAIN_BYTES_MAX
    ) -> None:
        """`count` is what the entry's header says; another one in the body is malformed."""
        if count is not None and count > RECORDS_MAX:
            raise MalformedBatch(f"{count} records, more than {RECORDS_MAX}")
        content = _plain(body, plain_bytes_max)
        if len(content) < HEAD.size:
            raise MalformedBatch(f"a batch of {len(content)} bytes")
        self.count: int
        self.count, flags, earliest = HEAD.unpack_from(content)
        if flags & ~_KNOWN_FLAGS:
            raise MalformedBatch(f"no batch has the flags {flags:#x}")
        if not self.count or (count is not None and count != self.count):
            raise MalformedBatch(f"{self.count} records where {count or 'some'} are due")
        if self.count > RECORDS_MAX:
            raise MalformedBatch(f"{self.count} records, more than {RECORDS_MAX}")
        if 4 * self.count > len(content):
            raise MalformedBatch(f"{self.count} records in {len(content)} bytes")
        cursor = _Cursor(content)
        self._read_keys(cursor, flags)
        ends, offsets = cursor.ends(self.count)
        self.values = Column(ends, offsets, cursor.take(ends[-1]))
        self._read_times(cursor, flags, earliest)
        self._headers: Column | None = None
        if flags & HAS_HEADERS:
            ends, offsets = cursor.ends(self.count)
            self._headers = Column(ends, offsets, cursor.take(ends[-1]))
        if cursor.at != len(content):
            raise MalformedBatch(f"{len(content) - cursor.at} bytes behind the last column")

    def _read_keys(self, cursor: _Cursor, flags: int) -> None:
        self.keys: Column | None = None
        self.key_validity: memoryview | None = None
        if not flags & HAS_KEYS:
            if flags & HAS_NULL_KEYS:
                raise MalformedBatch("null keys without keys")
            return
        ends, offsets = cursor.ends(self.count)
        if flags & HAS_NULL_KEYS:
            self.key_validity = cursor.take((self.count + 7) // 8)
        self.keys = Column(ends, offsets, cursor.take(ends[-1]))

    def _read_times(self, cursor: _Cursor, flags: int, earliest: int) -> None:
        self.earliest_ms: int | None = earliest if flags & HAS_TIMESTAMPS else None
        self.deltas: memoryview | None = None
        self._deltas: tuple[int, ...] = ()
        if flags & HAS_DELTAS:
            if not flags & HAS_TIMESTAMPS:
                raise MalformedBatch("deltas without a timestamp")
            self.deltas = cursor.take(4 * self.count)
            self._deltas = struct.unpack(f"<{self.count}I", self.deltas)

    def __len__(self) -> int:
        return self.count

    @property
    def has_headers(self) -> bool:
        return self._headers is not None

    def __iter__(self) -> Iterator[Record]:
        """Each record is made when it is asked for, out of iterators over the columns."""
        keys: Iterator[bytes | None] = repeat(None)
        if self.key_validity is not None:
            keys = map(self.key, range(self.count))
        elif self.keys is not None:
            keys = self.keys.each()
        times: Iterator[int | None] = repeat(self.earliest_ms)
        if self.earliest_ms is not None and self.deltas is not None:
            times = map(self.earliest_ms.__add__, self._deltas)
        headers: Iterator[tuple[tuple[str, bytes], ...]] = repeat(())
        if self._headers is not None:
            headers = map(_unpack_headers, self._headers.each())
        return map(_record, zip(keys, self.values.each(), times, headers, strict=False))

    def record(self, index: int) -> Record:
        return Record(
            self.key(index), self.values.at(index), self.timestamp_ms(index), self.headers(index)
        )

    def key(self, index: int) -> bytes | None:
        if self.keys is None:
            return None
        validity = self.key_validity
        if validity is not None and not validity[index >> 3] >> (index & 7) & 1:
            return None
        return self.keys.at(index)

    def timestamp_ms(self, index: int) -> int | None:
        if self.earliest_ms is None or self.deltas is None:
            return self.earliest_ms
        return self.earliest_ms + self._deltas[index]

    def headers(self, index: int) -> tuple[tuple[str, bytes], ...]:
        """Parsed when asked for; `MalformedBatch` may still come of it."""
        return _unpack_headers(self._headers.at(index)) if self._headers is not None else ()


def with_timestamps(body: Buffer, timestamp_ms: int) -> bytes:
    """The same records; those without a time of their own have this one."""
    content = plain_content(body)
    if len(content) < HEAD.size:
        raise MalformedBatch(f"a batch of {len(content)} bytes")
    count, flags, _ = HEAD.unpack_from(content)
    if flags & HAS_TIMESTAMPS:
        return bytes(body)
    head = HEAD.pack(count, flags | HAS_TIMESTAMPS, timestamp_ms)
    patched = head + bytes(content[HEAD.size :])
    compression = Compression(body[0])
    if compression is not Compression.NONE:
        packed = compress(compression, patched)
        if len(packed) < len(patched):
            return PREFIX.pack(compression, BATCH_VERSION, 0, len(patched)) + packed
    return PREFIX.pack(Compression.NONE, BATCH_VERSION, 0, len(patched)) + patched


def plain_content(body: Buffer, plain_bytes_max: int = PLAIN_BYTES_MAX) -> memoryview:
    """What is behind the prefix, not compressed, and not looked into."""
    return _plain(body, plain_bytes_max)


def _plain(body: Buffer, plain_bytes_max: int) -> memoryview:
    if len(body) < PREFIX.size:
        raise MalformedBatch(f"a body of {len(body)} bytes")
    compression, version, zero, plain_bytes = PREFIX.unpack_from(body)
    if version != BATCH_VERSION or zero:
        raise MalformedBatch(f"no batch has version {version}")
    if plain_bytes > plain_bytes_max:
        raise MalformedBatch(f"a batch of {plain_bytes} bytes, more than {plain_bytes_max}")
    content = memoryview(body)[PREFIX.size :]
    if compression == Compression.NONE:
        if len(content) != plain_bytes:
            raise MalformedBatch(f"{len(content)} bytes where {plain_bytes} are announced")
        return content
    if compression not in _COMPRESSED:
        raise MalformedBatch(f"no compression has number {compression}")
    return memoryview(decompress(Compression(compression), content, plain_bytes))


def _unpack_headers(data: bytes) -> tuple[tuple[str, bytes], ...]:
    found, at = [], 0
    while at < len(data):
        if len(data) - at < HEADER_HEAD.size:
            raise MalformedBatch("a header is cut")
        name_bytes, value_bytes = HEADER_HEAD.unpack_from(data, at)
        middle = at + HEADER_HEAD.size + name_bytes
        start, at = at + HEADER_HEAD.size, middle + value_bytes
        if at > len(data):
            raise MalformedBatch("a header is cut")
        try:
            found.append((data[start:middle].decode(), data[middle:at]))
        except UnicodeDecodeError as failure:
            raise MalformedBatch("a header's name is not UTF-8") from failure
    return tuple(found)
