"""A SQLite metadata file that fails for a while: what is told, and that it goes on afterwards."""

import asyncio
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from metadata.backends import put
from shardlog.metadata.failures import Unavailable, Unwritten
from shardlog.metadata.sqlite import THREAD_NAME, SqliteStore
from shardlog.metadata.store import VALUE_BYTES_MAX, Change, Versioned


@contextmanager
def no_file_grows_beyond(size: int) -> Iterator[None]:
    """The next write fails as on a full volume; SQLite meets it when it commits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_failed_commit_is_uncertain(tmp_path: Path):
    path = tmp_path / "metadata.db"
    store = await SqliteStore.open(path)
    before = await put(store, "a", b"1")
    with no_file_grows_beyond(path.with_name("metadata.db-wal").stat().st_size):
        with pytest.raises(Unavailable) as caught:
            await store.compare_and_swap("b", 0, b"2" * VALUE_BYTES_MAX)
        assert not isinstance(caught.value, Unwritten)
        assert await store.get("a") == before
    for _ in range(2):
        found = await store.get("b")
        assert found is None or found.value == b"2" * VALUE_BYTES_MAX
        assert (await put(store, "a", b"3")).version > before.version
        await store.close()
        store = await SqliteStore.open(path)
    await store.close()


async def test_a_write_that_finds_no_room_is_not_written(tmp_path: Path):
    store = await SqliteStore.open(tmp_path / "metadata.db")
    before = await put(store, "a", b"1")
    pages = store._file._number("PRAGMA page_count")
    store._file._connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(Unwritten, match="no space left"):
        await store.compare_and_swap("b", 0, b"2" * VALUE_BYTES_MAX)
    assert (await store.list("")).records == (before,)
    assert (await store.compare_and_swap("b", 0, b"2")).done
    await store.close()


async def test_a_watch_outlives_a_store_that_does_not_answer(tmp_path: Path):
    path = tmp_path / "metadata.db"
    store = await SqliteStore.open(path, poll_ms=1)
    other = await SqliteStore.open(path)
    async with store.watch("", 1) as watch, store.watch("", 1) as late:
        waiting = asyncio.create_task(anext(watch))
        await asyncio.sleep(0.01)
        # From here on every statement of this handle fails.
        store._file._connection.set_progress_handler(lambda: 1, 1)
        with pytest.raises(Unavailable):
            await store.get("a")
        waiting_late = asyncio.create_task(anext(late))
        await put(other, "a", b"1")
        await asyncio.sleep(0.02)
        assert not waiting.done()
        assert not waiting_late.done()
        store._file._connection.set_progress_handler(None, 1)
        assert await waiting == await waiting_late == Change(1, "a", b"1")
    assert await store.get("a") == Versioned("a", 1, b"1")
    await other.close()
    await store.close()


async def test_a_cancelled_opening_leaves_nothing_behind(tmp_path: Path):
    path = tmp_path / "metadata.db"
    for delay_s in (0, 0, 0.0005, 0.001, 0.002, 0.004):
        opening = asyncio.create_task(SqliteStore.open(path))
        await asyncio.sleep(delay_s)
        opening.cancel()
        for outcome in await asyncio.gather(opening, return_exceptions=True):
            if isinstance(outcome, SqliteStore):
                await outcome.close()
    for thread in threading.enumerate():
        if thread.name.startswith(THREAD_NAME):
            thread.join()
    store = await SqliteStore.open(path)
    assert (await put(store, "a", b"1")).version == 1
    await store.close()
    assert [file.name for file in tmp_path.iterdir()] == ["metadata.db"]
