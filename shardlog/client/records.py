"""What a reader delivers: records, or whole batches of them as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice, repeat
from typing import NamedTuple

from shardlog.transport.batch import Batch


class Record(NamedTuple):
    """One record.  `timestamp_ms` is its own, or its entry's where the producer gave none."""

    offset: int
    key: bytes | None
    value: bytes
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...]


_record: Callable[[Iterable[object]], Record] = partial(tuple.__new__, Record)


class EntryBatch(NamedTuple):
    """One entry: `batch` has its records as columns, the first of them at `base_offset`.

    `timestamp_ms` is the cluster's, of when the entry was appended.
    """

    base_offset: int
    epoch: int
    timestamp_ms: int
    batch: Batch

    @property
    def end(self) -> int:
        """The offset behind the last record."""
        return self.base_offset + self.batch.count

    def records(self, start: int = 0, end: int | None = None) -> Iterator[Record]:
        """The records with offsets in `[start, end)`, made out of iterators over the columns."""
        base, batch = self.base_offset, self.batch
        indexes = range(batch.count)
        keys: Iterator[bytes | None] = repeat(None)
        if batch.keys is not None:
            keys = map(batch.key, indexes)
        times: Iterator[int | None] = repeat(self.timestamp_ms)
        if batch.earliest_ms is not None:
            times = map(batch.timestamp_ms, indexes)
        headers: Iterator[tuple[tuple[str, bytes], ...]] = repeat(())
        if batch.has_headers:
            headers = map(batch.headers, indexes)
        offsets = range(base, base + batch.count)
        made = map(_record, zip(offsets, keys, batch.values.each(), times, headers, strict=False))
        if start <= base and (end is None or end >= self.end):
            return made
        stop = batch.count if end is None else max(0, end - base)
        return islice(made, max(0, start - base), stop)


@dataclass(frozen=True, order=True, slots=True)
class Range:
    """`count` records that got the offsets from `base` on, without a gap."""

    base: int
    count: int

    @property
    def end(self) -> int:
        return self.base + self.count


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A place to start: the first entry that is not older, by the cluster's clock."""

    ms: int


@dataclass(frozen=True, slots=True)
class FirstKept:
    """A place to start: wherever the log begins now."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """A place to start: behind all that is committed at that moment."""


FIRST = FirstKept()
END = LogEnd()

Start = int | Timestamp | FirstKept | LogEnd
"""Where to start: an offset, or one of the places above."""
