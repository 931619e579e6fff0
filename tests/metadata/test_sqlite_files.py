"""SQLite metadata files that are not as they should be: one line, and the type says who acts."""

import asyncio
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import pytest

from metadata.backends import put
from shardlog.metadata.failures import (
    CannotOpen,
    DamagedStore,
    ForeignStore,
    MetadataFailure,
    NewerStore,
    ReadOnlyStore,
    Unavailable,
    Unusable,
    Unwritten,
)
from shardlog.metadata.sqlite import SqliteStore
from shardlog.metadata.store import Change, Versioned

NOBODY = 65534
RECORDS = 60


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


async def make(path: Path) -> None:
    store = await SqliteStore.open(path)
    for number in range(RECORDS):
        await put(store, f"k{number}", b"%d" % number * 200)
    await store.close()


async def refusal(path: Path) -> MetadataFailure:
    """Why the file cannot be opened, in one line that names it."""
    with pytest.raises(MetadataFailure) as caught:
        await SqliteStore.open(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    return caught.value


async def test_an_empty_file_is_made_a_store(tmp_path: Path):
    path = tmp_path / "metadata.db"
    path.touch()
    await make(path)
    store = await SqliteStore.open(path)
    assert (await store.list("")).revision == RECORDS
    await store.close()


async def test_the_file_syncs_every_commit_and_has_a_write_ahead_log(tmp_path: Path):
    path = tmp_path / "metadata.db"
    store = await SqliteStore.open(path)
    assert store._file._value("PRAGMA synchronous") == 2
    assert store._file._value("PRAGMA journal_mode") == "wal"
    await store.close()


@pytest.mark.parametrize("content", [b"#!/bin/sh\n", b"\x00" * 8192, os.urandom(5000)])
async def test_a_foreign_file(tmp_path: Path, content: bytes):
    path = tmp_path / "file"
    path.write_bytes(content)
    assert isinstance(await refusal(path), ForeignStore)
    assert path.read_bytes() == content


async def test_another_database_is_left_as_it_is(tmp_path: Path):
    path = tmp_path / "other.db"
    execute(path, "CREATE TABLE records (a)")
    before = path.read_bytes()
    assert isinstance(await refusal(path), ForeignStore)
    execute(path, "DROP TABLE records", "PRAGMA application_id = 7")
    assert isinstance(await refusal(path), ForeignStore)
    execute(path, "PRAGMA application_id = 0", "CREATE TABLE records (a)")
    assert path.read_bytes()[18:20] == before[18:20] == b"\x01\x01"


async def test_a_newer_schema(tmp_path: Path):
    path = tmp_path / "metadata.db"
    await make(path)
    store = await SqliteStore.open(path)
    execute(path, "PRAGMA user_version = 2")
    assert isinstance(await refusal(path), NewerStore)
    # Also for those who had it open when it was upgraded.
    with pytest.raises(NewerStore):
        await store.compare_and_swap("new", 0, b"")
    await store.close()


async def test_a_schema_that_never_was(tmp_path: Path):
    path = tmp_path / "metadata.db"
    await make(path)
    execute(path, "PRAGMA user_version = 0")
    assert isinstance(await refusal(path), DamagedStore)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE records SET value = x'00' WHERE key = 'k7'",
        "UPDATE records SET value = 'text' WHERE key = 'k7'",
        "UPDATE records SET version = version + 1 WHERE key = 'k59'",
        "UPDATE records SET version = version - 1 WHERE key = 'k7'",
        "UPDATE records SET key = 'other' WHERE key = 'k7'",
        "DELETE FROM changes",
        "DROP TABLE changes",
        "DROP TABLE records",
        "ALTER TABLE records DROP COLUMN checksum",
    ],
)
async def test_damage_inside(tmp_path: Path, damage: str):
    path = tmp_path / "metadata.db"
    await make(path)
    execute(path, damage)
    assert isinstance(await refusal(path), DamagedStore)


async def test_damage_of_a_change_is_told_to_its_watcher(tmp_path: Path):
    path = tmp_path / "metadata.db"
    await make(path)
    execute(path, "UPDATE changes SET value = x'00' WHERE revision = 3")
    store = await SqliteStore.open(path)
    async with store.watch("", 1) as watch:
        with pytest.raises(DamagedStore):
            await anext(watch)
    async with store.watch("", 4) as watch:
        assert await anext(watch) == Change(4, "k3", b"3" * 200)
    await store.close()


async def test_a_file_cut_short(tmp_path: Path):
    path = tmp_path / "metadata.db"
    await make(path)
    whole = path.read_bytes()
    for size in (1, 50, 99, 100, 1000, 4096, 5000, len(whole) // 2, len(whole) - 4096):
        path.write_bytes(whole[:size])
        assert isinstance(await refusal(path), Unusable)


async def test_flipped_bytes_never_change_what_is_read(tmp_path: Path):
    """Wherever they are: the file is refused, or all records are as they were written."""
    path = tmp_path / "metadata.db"
    await make(path)
    whole = path.read_bytes()
    random = Random(5)
    refused = 0
    for _ in range(150):
        flipped = bytearray(whole)
        for at in random.sample(range(100, len(whole)), 3):
            flipped[at] ^= 1 << random.randrange(8)
        path.write_bytes(flipped)
        for beside in ("metadata.db-wal", "metadata.db-shm"):
            path.with_name(beside).unlink(missing_ok=True)
        try:
            store = await SqliteStore.open(path)
        except Unusable:
            refused += 1
            continue
        try:
            for number in range(RECORDS):
                expected = Versioned(f"k{number}", number + 1, b"%d" % number * 200)
                assert await store.get(f"k{number}") == expected
            assert len((await store.list("")).records) == RECORDS
        except DamagedStore:
            refused += 1
        await store.close()
    assert refused > 30


async def test_places_that_cannot_hold_a_store(tmp_path: Path):
    assert isinstance(await refusal(tmp_path), CannotOpen)
    missing = await refusal(tmp_path / "no" / "metadata.db")
    assert isinstance(missing, CannotOpen)
    assert str(tmp_path / "no") in missing.why
    (tmp_path / "file").write_bytes(b"")
    assert isinstance(await refusal(tmp_path / "file" / "metadata.db"), CannotOpen)


@contextmanager
def somebody_else() -> Iterator[Path]:
    """A directory of our own, as somebody who has no right to write there."""
    directory = Path(tempfile.mkdtemp(prefix="shardlog-"))
    directory.chmod(0o755)
    me = os.geteuid()
    try:
        yield directory
    finally:
        if me == 0:
            os.seteuid(0)
        directory.chmod(0o755)
        shutil.rmtree(directory)


def drop_rights() -> None:
    """Nobody may write what root may; anybody else already lacks the right."""
    if os.geteuid() == 0:
        os.seteuid(NOBODY)


async def test_a_read_only_file(tmp_path: Path):
    with somebody_else() as directory:
        path = directory / "metadata.db"
        await make(path)
        path.chmod(0o444)
        directory.chmod(0o777)
        drop_rights()
        assert isinstance(await refusal(path), ReadOnlyStore)


async def test_a_read_only_directory(tmp_path: Path):
    with somebody_else() as directory:
        path = directory / "metadata.db"
        directory.chmod(0o555)
        drop_rights()
        assert isinstance(await refusal(path), CannotOpen)


async def test_an_unreadable_file(tmp_path: Path):
    with somebody_else() as directory:
        path = directory / "metadata.db"
        await make(path)
        path.chmod(0o000)
        drop_rights()
        assert isinstance(await refusal(path), CannotOpen)


async def test_a_file_that_somebody_holds(tmp_path: Path):
    """Reads and watches go on; a write gives up after its time and has certainly not happened."""
    path = tmp_path / "metadata.db"
    store = await SqliteStore.open(path, busy_timeout_ms=20)
    await put(store, "a", b"1")
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unwritten) as caught:
            await store.compare_and_swap("b", 0, b"2")
        assert isinstance(caught.value, Unavailable)
        assert await store.get("a") == Versioned("a", 1, b"1")
        async with store.watch("", 1) as watch:
            assert await anext(watch) == Change(1, "a", b"1")
        holder.execute("ROLLBACK")
    assert await store.get("b") is None
    assert (await store.compare_and_swap("b", 0, b"2")).done
    await store.close()


async def test_a_write_of_a_cancelled_task_happens_whole_or_not_at_all(tmp_path: Path):
    path = tmp_path / "metadata.db"
    store = await SqliteStore.open(path)
    random = Random(6)
    for number in range(50):
        writing = asyncio.create_task(store.compare_and_swap(f"k{number}", 0, b"1"))
        await asyncio.sleep(random.choice((0, 0.0005, 0.001)))
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        listing = await store.list("")
        assert listing.revision == len(listing.records)
    assert (await put(store, "end", b"")).version == listing.revision + 1
    await store.close()
