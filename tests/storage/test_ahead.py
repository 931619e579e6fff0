"""Who reads old entries one after the other finds them in memory, and leaves none of them there."""

import asyncio
from contextlib import closing, nullcontext
from pathlib import Path
from threading import main_thread

import pytest

from shardlog.storage import ahead
from shardlog.storage.ahead import AHEAD_BYTES, FILES_MAX, PIECE_BYTES, Ahead
from shardlog.storage.handles import Handles
from shardlog.storage.real_files import RealFiles
from shardlog.storage.store import Store
from storage.driver import SLOTS
from storage.replicas import perform
from storage.states import write
from storage.test_recent import begun
from storage.test_spares import ENTRIES
from storage.volumes import Client, WatchedFiles, made, running

MIB = 1 << 20
LONG = 64 * MIB
SEGMENTS = 4


class Hints:
    """A file that is told what is wanted of it."""

    def __init__(self) -> None:
        self.fetched: list[tuple[int, int]] = []
        self.dropped: list[tuple[int, int]] = []

    def fetch(self, position: int, length: int) -> None:
        self.fetched.append((position, position + length))

    def drop(self, position: int, length: int) -> None:
        self.dropped.append((position, position + length))


def hinted() -> tuple[Hints, Ahead]:
    hints = Hints()
    return hints, Ahead(lambda path: nullcontext(hints), lambda act: act())  # type: ignore[arg-type]


def test_all_is_fetched_once_before_it_is_read_and_dropped_once_afterwards():
    hints, reading = hinted()
    for position in range(MIB, LONG + 1, MIB):
        reading.has_read("file", position, LONG, once=True)
        upto = hints.fetched[-1][1]
        assert upto == LONG or position + AHEAD_BYTES - PIECE_BYTES < upto
        assert position - PIECE_BYTES < (hints.dropped[-1][1] if hints.dropped else MIB) <= position
    for stretches, end in ((hints.fetched, LONG), (hints.dropped, LONG - 3 * MIB)):
        assert stretches[0][0] == MIB
        assert [first for first, _ in stretches[1:]] == [last for _, last in stretches[:-1]]
        assert stretches[-1][1] == end


def test_what_others_may_read_too_is_not_dropped():
    hints, reading = hinted()
    for position in range(MIB, LONG + 1, MIB):
        reading.has_read("file", position, LONG, once=False)
    assert (hints.fetched[0][0], hints.fetched[-1][1]) == (MIB, LONG)
    assert not hints.dropped


def test_who_begins_elsewhere_begins_anew():
    hints, reading = hinted()
    for position in (4 * MIB, 40 * MIB, 2 * MIB):
        reading.has_read("file", position, LONG, once=True)
        assert hints.fetched[-1] == (position, position + AHEAD_BYTES)
    assert not hints.dropped


def test_of_files_that_nobody_reads_any_more_nothing_is_remembered():
    hints, reading = hinted()
    for number in range(FILES_MAX + 1):
        reading.has_read(f"file {number}", MIB, LONG, once=True)
    before = len(hints.fetched)
    reading.has_read("file 1", 2 * MIB, LONG, once=True)
    assert len(hints.fetched) == before
    reading.has_read("file 0", 2 * MIB, LONG, once=True)
    assert hints.fetched[-1] == (2 * MIB, 2 * MIB + AHEAD_BYTES)


def test_a_file_that_is_gone_is_not_missed(tmp_path: Path):
    handles = Handles(RealFiles())
    handles.ahead.has_read(str(tmp_path / "gone"), MIB, LONG, once=True)


# --- of a log ------------------------------------------------------------------------------------


def read_all(store: Store) -> None:
    """Two entries at a time, as a leader does for one who lacks them."""
    for at in range(0, SEGMENTS * SLOTS, 2):
        headers = [each.header for each in ENTRIES[at : at + 2]]
        assert store.read_run(headers) == tuple(ENTRIES[at : at + 2])


def fetched(directory: Path, monkeypatch: pytest.MonkeyPatch, recent_bytes_max: int) -> set[int]:
    """Which segments, of those that are read from the first to the last."""
    monkeypatch.setattr(ahead, "PIECE_BYTES", 128)
    files = WatchedFiles()
    store = begun(files, directory, recent_bytes_max)
    with closing(store.files.handles):
        perform(store, write(ENTRIES[: SEGMENTS * SLOTS], 1))
        files.watch.dropped.clear()
        read_all(store)
        paths = [each.path for each in store.files.segments.items]
        found = {paths.index(path) for path, *_ in files.watch.fetched}
        assert {paths.index(path) for path, *_ in files.watch.dropped} == found
        for path, position, length in files.watch.fetched:
            segment = store.files.segments.items[paths.index(path)]
            assert segment.head.body_start < position
            assert position + length <= segment.head.size
    return found


def test_full_segments_that_have_left_memory_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert fetched(tmp_path, monkeypatch, 0) == set(range(SEGMENTS - 1))


def test_those_that_are_in_memory_are_not_and_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert fetched(tmp_path, monkeypatch, 1 << 30) == set()


def test_those_of_clients_are_fetched_too_and_stay(tmp_path: Path):
    files = WatchedFiles()
    store = begun(files, tmp_path, 0)
    with closing(store.files.handles):
        perform(store, write(ENTRIES[: SEGMENTS * SLOTS], 1))
        files.watch.dropped.clear()
        raw = store.raw(0, store.durable_end, 1)
        assert raw is not None
        assert len(store.read_raw(raw)) == raw.length
        assert [path for path, *_ in files.watch.fetched] == [raw.path]
        assert not files.watch.dropped


def test_a_volume_fetches_beside_its_loop(tmp_path: Path):
    files = WatchedFiles()

    async def story() -> None:
        async with running(made(files, tmp_path / "volume")) as volume:
            client = Client(volume, "orders")
            await client.format()
            client.append(80)
            await client.durable()
            headers = [each.header for each in client.entries[:2]]
            assert len(client.store.files.segments.items) > 1
            assert client.store.read_run(headers) == tuple(client.entries[:2])
            while not files.watch.fetching:
                await asyncio.sleep(0.005)

    asyncio.run(story())
    assert main_thread() not in files.watch.fetching


def test_a_volume_that_is_closed_fetches_nothing(tmp_path: Path):
    """Whoever still reads there finds what there is."""
    files = WatchedFiles()

    async def story() -> Client:
        async with running(made(files, tmp_path / "volume")) as volume:
            client = Client(volume, "orders")
            await client.format()
            client.append(80)
            await client.durable()
            return client

    client = asyncio.run(story())
    headers = [each.header for each in client.entries[:2]]
    with closing(client.store.files.handles):
        assert client.store.read_run(headers) == tuple(client.entries[:2])
    assert not files.watch.fetched
