"""How often each row stands somewhere, in bounded memory: on disk where there are many."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from hashlib import blake2b

from shardlog.transport.batch import Batch, Record

CACHE_KIB = 64 << 10


class RowCounts:
    """A multiset of digests."""

    def __init__(self) -> None:
        self.total = 0
        self._table = sqlite3.connect("", isolation_level=None)  # a file that goes with it
        self._table.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._table.execute("PRAGMA journal_mode = OFF")
        self._table.execute(
            "CREATE TABLE rows (digest BLOB PRIMARY KEY, count INTEGER) WITHOUT ROWID"
        )

    def add(self, digests: Iterable[bytes]) -> None:
        for digest in digests:
            self._table.execute(
                "INSERT INTO rows VALUES (?, 1) ON CONFLICT DO UPDATE SET count = count + 1",
                (digest,),
            )
            self.total += 1

    def take(self, digest: bytes) -> bool:
        """Whether it was there; it is once less now."""
        if not self.total:
            return False
        changed = self._table.execute(
            "UPDATE rows SET count = count - 1 WHERE digest = ? AND count > 0", (digest,)
        ).rowcount
        self.total -= changed
        return bool(changed)

    def close(self) -> None:
        self._table.close()


def digests_of(body: bytes | memoryview, count: int) -> Iterator[bytes]:
    """One for each record, by all that it holds."""
    return map(_digest, Batch(body, count))


def _digest(record: Record) -> bytes:
    key, value, timestamp_ms, headers = record
    lengths = [(name, len(content)) for name, content in headers]
    shape = repr((None if key is None else len(key), len(value), timestamp_ms, lengths))
    made = blake2b(shape.encode(), digest_size=16)
    made.update(key or b"")
    made.update(value)
    for _, content in headers:
        made.update(content)
    return made.digest()
