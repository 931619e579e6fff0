"""One connection to a metadata file: its layout, its transactions, and its errors translated.

Nothing here is asynchronous; `sqlite` calls it from one thread.  The layout is two tables.
`records` is what stands; `changes` the latest writes, for watchers.  The greatest revision in
`changes` is the revision of the store, so the newest change is never dropped, and no counter can
disagree with it.  Every row carries a checksum, because SQLite would hand out a changed byte of a
value without a word.

Only SQLite itself may open the file: closing any other descriptor of it would drop the locks that
this process holds (POSIX).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from zlib import crc32

from shardlog.metadata.failures import (
    CannotOpen,
    DamagedStore,
    ForeignStore,
    MetadataFailure,
    NewerStore,
    ReadOnlyStore,
    Unavailable,
    Unwritten,
)
from shardlog.metadata.store import (
    ABSENT,
    AFTER_PRINTABLE,
    Change,
    Listing,
    Relisted,
    Swapped,
    Versioned,
)
from shardlog.metadata.watching import PAGE_CHANGES_MAX, Page

APPLICATION_ID = 0x53484C4D
"""The file's mark in SQLite's header: "SHLM"."""
SCHEMA_VERSION = 1

_LAYOUT = """
CREATE TABLE records (
    key TEXT PRIMARY KEY NOT NULL, version INTEGER NOT NULL, value BLOB NOT NULL,
    checksum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE changes (
    revision INTEGER PRIMARY KEY NOT NULL, key TEXT NOT NULL, value BLOB,
    checksum INTEGER NOT NULL);
"""
_RECORD = "SELECT key, version, value, checksum FROM records"
_CHANGE = "SELECT key, revision, value, checksum FROM changes"
_IN_PREFIX = "key >= ? AND key < ?"
_PASSING = {
    sqlite3.SQLITE_BUSY: "another process holds the file",
    sqlite3.SQLITE_LOCKED: "another process holds the file",
    sqlite3.SQLITE_FULL: "no space left on the volume",
    sqlite3.SQLITE_IOERR: "the disk reports an error",
    sqlite3.SQLITE_NOMEM: "out of memory",
    sqlite3.SQLITE_PROTOCOL: "too many processes at once",
    sqlite3.SQLITE_INTERRUPT: "interrupted",
    sqlite3.SQLITE_CANTOPEN: "a file beside it cannot be opened",
}
_OPEN_AGAIN_S = 0.01
_PAGE_BYTES_MIN = 512
_FOREIGN = "is not a Shardlog metadata file"


class SqliteFile:
    def __init__(self, path: str, busy_timeout_ms: int, changes_kept: int) -> None:
        self.path = path
        self._changes_kept = changes_kept
        _require_not_short(path)
        try:
            self._connection = sqlite3.connect(
                path, timeout=busy_timeout_ms / 1000, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise CannotOpen(path, _why_not(path)) from error
        try:
            self._open_in_time(monotonic() + busy_timeout_ms / 1000)
        except MetadataFailure:
            self._connection.close()
            raise

    # --- opening ---------------------------------------------------------------------------------

    def _open_in_time(self, deadline: float) -> None:
        """SQLite's own busy timeout does not cover the change of the mode of a new file."""
        while True:
            try:
                return self._open()
            except Unwritten:
                if monotonic() > deadline:
                    raise
            sleep(_OPEN_AGAIN_S)

    def _open(self) -> None:
        try:
            self._prepare()
        except sqlite3.Error as error:
            raise self._translated(error, opening=True) from error

    def _prepare(self) -> None:
        # Before the mode is changed: a file of somebody else is left as it is.  In one transaction,
        # because another process may be laying the file out between two looks at it.
        with self._transaction("BEGIN"):
            self._require_ours_or_empty()
        if self._value("PRAGMA journal_mode = WAL") != "wal":
            raise CannotOpen(self.path, "the filesystem cannot hold a write-ahead log")
        self._connection.execute("PRAGMA synchronous = FULL")
        with self._transaction("BEGIN IMMEDIATE"):
            if self._require_ours_or_empty():
                self._lay_out()
            self._require_schema()
            # Writes nothing, but is refused where nothing can be written; BEGIN alone is not.
            self._connection.execute("DELETE FROM changes WHERE 0")
        self._require_whole()

    def _require_ours_or_empty(self) -> bool:
        """Whether the file is empty."""
        mark = self._number("PRAGMA application_id")
        if mark == APPLICATION_ID:
            return False
        if mark or self._number("SELECT count(*) FROM sqlite_master"):
            raise ForeignStore(self.path, f"{_FOREIGN}, but another SQLite database")
        return True

    def _lay_out(self) -> None:
        for statement in _LAYOUT.split(";")[:-1]:
            self._connection.execute(statement)
        self._connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _require_schema(self) -> None:
        """Also before each write: a newer Shardlog may have changed the layout under us."""
        found = self._number("PRAGMA user_version")
        if found < 1:
            raise DamagedStore(self.path, f"damaged: schema version {found}")
        if found > SCHEMA_VERSION:
            why = f"schema version {found} is newer than {SCHEMA_VERSION}; upgrade Shardlog"
            raise NewerStore(self.path, why)

    def _require_whole(self) -> None:
        found = self._value("PRAGMA integrity_check(1)")
        if found != "ok":
            raise DamagedStore(self.path, f"damaged: {_one_line(found)}")
        with self._transaction("BEGIN"):
            newest = self._number("SELECT max(version) FROM records")
            if newest > self._revision():
                raise DamagedStore(self.path, f"damaged: the change of revision {newest} is gone")
            for row in self._connection.execute(_RECORD):
                self._record(row)

    # --- reading ---------------------------------------------------------------------------------

    def revision(self) -> int:
        with self._transaction("BEGIN"):
            return self._revision()

    def get(self, key: str) -> Versioned | None:
        with self._transaction("BEGIN"):
            return self._get(key)

    def list(self, prefix: str) -> Listing:
        with self._transaction("BEGIN"):
            return Listing(self._revision(), self._records(prefix))

    def page(self, prefix: str, from_revision: int) -> Page:
        with self._transaction("BEGIN"):
            end = self._revision() + 1
            kept_from = self._number("SELECT min(revision) FROM changes") or end
            if not kept_from <= from_revision <= end:
                return Page((Relisted(end - 1, self._records(prefix)),), end)
            rows = self._connection.execute(
                f"{_CHANGE} WHERE revision >= ? AND {_IN_PREFIX} ORDER BY revision LIMIT ?",
                (from_revision, prefix, prefix + AFTER_PRINTABLE, PAGE_CHANGES_MAX),
            )
            changes = tuple(self._change(row) for row in rows)
        is_full = len(changes) == PAGE_CHANGES_MAX
        return Page(changes, changes[-1].revision + 1 if is_full else end)

    def _revision(self) -> int:
        return self._number("SELECT max(revision) FROM changes")

    def _get(self, key: str) -> Versioned | None:
        row = self._connection.execute(f"{_RECORD} WHERE key = ?", (key,)).fetchone()
        return self._record(row) if row else None

    def _records(self, prefix: str) -> tuple[Versioned, ...]:
        rows = self._connection.execute(
            f"{_RECORD} WHERE {_IN_PREFIX} ORDER BY key", (prefix, prefix + AFTER_PRINTABLE)
        )
        return tuple(self._record(row) for row in rows)

    def _record(self, row: tuple[object, ...]) -> Versioned:
        key, version, value = self._checked(row)
        if value is None:
            raise DamagedStore(self.path, f"damaged: the value of {key} is gone")
        return Versioned(key, version, value)

    def _change(self, row: tuple[object, ...]) -> Change:
        key, revision, value = self._checked(row)
        return Change(revision, key, value)

    def _checked(self, row: tuple[object, ...]) -> tuple[str, int, bytes | None]:
        match row:
            case (str(key), int(version), bytes() | None as value, int(checksum)):
                if checksum == _checksum(key, version, value):
                    return key, version, value
        raise DamagedStore(self.path, f"damaged: the row of {row[0]!r:.80} does not match its sum")

    # --- writing ---------------------------------------------------------------------------------

    def compare_and_swap(self, key: str, version: int, value: bytes | None) -> tuple[Swapped, int]:
        """What came of it, and the revision that the store then has."""
        with self._transaction("BEGIN IMMEDIATE"):
            self._require_schema()
            current = self._get(key)
            if version != (current.version if current else ABSENT):
                return Swapped(False, current), self._revision()
            revision = self._revision() + 1
            self._write(key, revision, value)
        return Swapped(True, None if value is None else Versioned(key, revision, value)), revision

    def _write(self, key: str, revision: int, value: bytes | None) -> None:
        execute = self._connection.execute
        checksum = _checksum(key, revision, value)
        if value is None:
            execute("DELETE FROM records WHERE key = ?", (key,))
        else:
            execute(
                "INSERT OR REPLACE INTO records (key, version, value, checksum)"
                " VALUES (?, ?, ?, ?)",
                (key, revision, value, checksum),
            )
        execute(
            "INSERT INTO changes (revision, key, value, checksum) VALUES (?, ?, ?, ?)",
            (revision, key, value, checksum),
        )
        execute("DELETE FROM changes WHERE revision <= ?", (revision - self._changes_kept,))

    # --- transactions and errors -----------------------------------------------------------------

    def close(self) -> None:
        self._connection.close()

    def _value(self, query: str) -> object:
        row = self._connection.execute(query).fetchone()
        return row[0] if row else None

    def _number(self, query: str) -> int:
        """What is no number, NULL too, is 0."""
        found = self._value(query)
        return found if isinstance(found, int) else 0

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        """All or nothing; until COMMIT is tried it certainly is nothing."""
        committing = False
        try:
            self._connection.execute(begin)
            yield
            committing = begin != "BEGIN"
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise self._translated(error, committing=committing) from error
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        # Where this fails SQLite has rolled back by itself, and the first error tells why.
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _translated(
        self, error: sqlite3.Error, *, opening: bool = False, committing: bool = False
    ) -> MetadataFailure:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code == sqlite3.SQLITE_NOTADB:
            return ForeignStore(self.path, f"{_FOREIGN}, or its first page is damaged")
        if code == sqlite3.SQLITE_READONLY:
            return ReadOnlyStore(self.path, "is read-only")
        if opening and code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            return CannotOpen(self.path, _why_not(self.path))
        if code in _PASSING:
            kind = Unavailable if committing else Unwritten
            return kind(self.path, _PASSING[code])
        return DamagedStore(self.path, f"damaged: {_one_line(error)}")


def _checksum(key: str, version: int, value: bytes | None) -> int:
    kept = b"-" if value is None else b"+" + value
    return crc32(kept, crc32(f"{version} {key} ".encode()))


def _one_line(message: object) -> str:
    return " ".join(str(message).split())


def _require_not_short(path: str) -> None:
    """SQLite takes a file of a few bytes for an empty one and would write over it."""
    with suppress(OSError):
        if 0 < os.stat(path).st_size < _PAGE_BYTES_MIN:
            raise ForeignStore(path, f"{_FOREIGN}, or was cut short")


def _why_not(path: str) -> str:
    """SQLite says only that it cannot open a file."""
    file = Path(path)
    if file.is_dir():
        return "is a directory"
    if not file.parent.is_dir():
        return f"no such directory: {file.parent}"
    return "cannot be opened or made here; permission denied?"
