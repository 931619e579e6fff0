"""From records to requests: what a producer gathers, and who is told when it is appended.

Nothing here does work for each record but what the caller asked for record by record: many values
that come at once stay one list, and get one future.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, repeat
from typing import Any, NamedTuple

from shardlog.checksum import seal_body
from shardlog.client.failures import ClientFailure, InvalidRecord
from shardlog.client.records import Range
from shardlog.transport.batch import BatchBuilder, Headers
from shardlog.transport.compression import Compression

Octets = bytes | bytearray | memoryview
"""What values, keys and headers may be given as; they are kept as bytes."""
_SPREAD_MS = 1 << 32
TIMESTAMP_MS_MIN, TIMESTAMP_MS_MAX = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999: what dates of other systems can hold."""
OVERHEAD_BYTES = 4
"""What a record takes beside its value."""


class Group:
    """Many records with one future, which has the ranges that they got, in order."""

    __slots__ = ("_found", "_missing", "future")

    def __init__(self, future: asyncio.Future[list[Range]], parts: int) -> None:
        self.future = future
        self._missing = parts
        self._found: list[Range] = []

    def appended(self, base: int, count: int) -> None:
        self._found.append(Range(base, count))
        self._missing -= 1
        if not self._missing and not self.future.done():
            self.future.set_result(sorted(self._found))


Told = asyncio.Future[int] | tuple[Group, int]
"""Who is told of the next record, or of the next so many."""


class Request:
    """One batch on its way.  `number` is 0 until it has one in a session.

    `sends` counts how often it was sent: after the first time its fate may be unknown.
    """

    __slots__ = ("answered", "body", "checksum", "count", "expires_at", "number", "sends",
                 "settled", "told")  # fmt: skip

    def __init__(self, body: bytes, count: int, expires_at: float, everyone: list[Told]) -> None:
        self.body = body
        self.checksum = seal_body(body)
        self.count = count
        self.expires_at = expires_at
        self.told = everyone
        self.number = 0
        self.sends = 0
        self.answered = False
        self.settled = False

    def appended(self, base: int) -> None:
        self.settled = True
        for told in self.told:
            if isinstance(told, tuple):
                group, count = told
                group.appended(base, count)
                base += count
            else:
                if not told.done():
                    told.set_result(base)
                base += 1
        self.told = []

    def failed(self, failure: ClientFailure) -> None:
        """`told` is kept for those who want to know whether anybody looks at it."""
        self.settled = True
        fail(self.told, failure)


def fail(everyone: list[Told], failure: ClientFailure) -> None:
    for future in futures_of(everyone):
        if not future.done():
            future.set_exception(failure)


def futures_of(everyone: list[Told]) -> list[asyncio.Future[Any]]:
    return [told[0].future if isinstance(told, tuple) else told for told in everyone]


class Gathering:
    """The batch that is being filled."""

    __slots__ = ("_builder", "_earliest_ms", "_latest_ms", "expires_at", "gathered_bytes", "told")

    def __init__(self, expires_at: float) -> None:
        self.expires_at = expires_at
        self.gathered_bytes = 0
        self.told: list[Told] = []
        self._builder = BatchBuilder()
        self._earliest_ms: int | None = None
        self._latest_ms = 0

    def takes(self, timestamp_ms: int | None) -> bool:
        """All records of a batch have a timestamp or none has, and they are not too far apart."""
        if timestamp_ms is None or self._earliest_ms is None:
            return timestamp_ms is self._earliest_ms or not self.told
        spread = max(self._latest_ms, timestamp_ms) - min(self._earliest_ms, timestamp_ms)
        return spread < _SPREAD_MS

    def add(
        self,
        value: bytes,
        key: bytes | None,
        timestamp_ms: int | None,
        headers: Headers,
        told: asyncio.Future[int],
    ) -> None:
        self.told.append(told)
        self._builder.append(value, key, timestamp_ms, headers)
        self.gathered_bytes = self._builder.bytes_gathered
        if timestamp_ms is not None:
            earliest = self._earliest_ms
            self._earliest_ms = timestamp_ms if earliest is None else min(earliest, timestamp_ms)
            self._latest_ms = max(self._latest_ms, timestamp_ms)

    def add_many(self, piece: Piece, told: Group) -> None:
        self.told.append((told, len(piece.values)))
        self._builder.extend(*piece)
        self.gathered_bytes = self._builder.bytes_gathered

    def sealed(self, compression: Compression) -> Request:
        body = self._builder.body(compression)
        return Request(body, len(self._builder), self.expires_at, self.told)


def octets(what: str, content: Octets) -> bytes:
    """A copy of what is like bytes; `InvalidRecord` for anything else."""
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    raise InvalidRecord(f"{what} is bytes, not {type(content).__name__}")


def checked_headers(headers: Headers) -> Headers:
    """A copy that can be encoded; `InvalidRecord` if there is none."""
    if isinstance(headers, Mapping):
        raise InvalidRecord("headers are pairs of name and bytes: of a dict, pass `dict.items()`")
    made = []
    try:
        for name, content in headers:
            if len(name.encode()) >= 1 << 16:
                raise InvalidRecord("a header's name has at most 65535 bytes")
            made.append((name, octets("a header's content", content)))
    except InvalidRecord:
        raise
    except (AttributeError, TypeError, ValueError) as failure:
        raise InvalidRecord(f"headers are pairs of name and bytes: {failure}") from failure
    return tuple(made)


def check_timestamp(timestamp_ms: int) -> None:
    """`InvalidRecord` outside the years 1 to 9999, where other units than milliseconds lead."""
    if type(timestamp_ms) is not int:
        what = type(timestamp_ms).__name__
        raise InvalidRecord(f"timestamp_ms is an int, milliseconds since 1970, not {what}")
    if not TIMESTAMP_MS_MIN <= timestamp_ms <= TIMESTAMP_MS_MAX:
        raise InvalidRecord(
            f"a timestamp of {timestamp_ms} ms since 1970 is outside the years 1 to 9999"
        )


def check_record(
    value: Octets, key: Octets | None, headers: Headers, timestamp_ms: int | None
) -> tuple[bytes, bytes | None, Headers]:
    """What a record is made of, as it is kept; `InvalidRecord` if it can be none."""
    if type(value) is not bytes:
        value = octets("a value", value)
    if key is not None and type(key) is not bytes:
        key = octets("a key", key)
    if headers != ():
        headers = checked_headers(headers)
    if timestamp_ms is not None:
        check_timestamp(timestamp_ms)
    return value, key, headers


def record_bytes(value: bytes, key: bytes | None, headers: Headers) -> int:
    """What a record takes that has been checked."""
    size = len(value) + OVERHEAD_BYTES
    if key is not None:
        size += len(key)
    if headers:
        size += sum([len(name) + len(content) + 6 for name, content in headers])
    return size


class Piece(NamedTuple):
    """Many records as columns of one length.  `content_bytes` is how long all of it is."""

    values: Sequence[bytes]
    content_bytes: int
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[Headers] | None = None

    def sizes(self) -> Iterable[int]:
        """How long the content of each record is."""
        if self.keys is None and self.headers is None:
            return map(len, self.values)
        return [size - OVERHEAD_BYTES for size in map(record_bytes, *self._columns())]

    def _columns(self) -> tuple[Iterable[bytes], Iterable[bytes | None], Iterable[Headers]]:
        count = len(self.values)
        return self.values, self.keys or repeat(None, count), self.headers or repeat((), count)


def checked_columns(
    values: Iterable[Octets],
    keys: Iterable[Octets | None] | None,
    headers: Iterable[Headers] | None,
) -> Piece:
    """All that is given, as it is kept; `InvalidRecord` says which record can be none."""
    made = _checked_column("value", values, {bytes})
    content_bytes = sum(map(len, made))
    if keys is None and headers is None:
        return Piece(made, content_bytes)
    made_keys = None if keys is None else _checked_column("key", keys, {bytes, type(None)})
    made_headers = None if headers is None else [checked_headers(each) for each in headers]
    for name, column in (("keys", made_keys), ("headers", made_headers)):
        if column is not None and len(column) != len(made):
            raise InvalidRecord(f"{len(made)} values with {len(column)} {name}")
    if made_keys is not None:
        content_bytes += sum(map(len, filter(None, made_keys)))
    if made_headers is not None:
        content_bytes += sum(
            record_bytes(b"", None, each) - OVERHEAD_BYTES for each in made_headers
        )
    return Piece(made, content_bytes, made_keys, made_headers)


def _checked_column(what: str, column: Iterable[Any], kinds: set[type]) -> Sequence[Any]:
    if not isinstance(column, list | tuple):
        column = list(column)
    if kinds.issuperset(map(type, column)):
        return column
    return [
        each if type(each) in kinds else octets(f"{what} {index}", each)
        for index, each in enumerate(column)
    ]


def pieces(whole: Piece, first_bytes: int, each_bytes: int) -> list[Piece]:
    """Cut at most `first_bytes` off, then `each_bytes`; a piece has one record at least."""
    values, _, keys, headers = whole
    ends = list(accumulate(whole.sizes(), initial=0))
    made: list[Piece] = []
    at, room = 0, first_bytes
    while at < len(values):
        most = room + ends[at] + OVERHEAD_BYTES * at
        stop = bisect_right(
            range(at + 1, len(ends)), most, key=lambda i: ends[i] + OVERHEAD_BYTES * i
        )
        stop = at + max(1, stop)
        made.append(
            Piece(
                values[at:stop],
                ends[stop] - ends[at],
                keys and keys[at:stop],
                headers and headers[at:stop],
            )
        )
        at, room = stop, each_bytes
    return made
