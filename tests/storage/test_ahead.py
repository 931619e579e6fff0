"""Who reads old entries one after the other finds them in memory, and leaves none of them there."""

import asyncio
from contextlib import closing, nullcontext
from pathlib import Path
from threading import main_thread

import pytest

from shardlog.storage import ahead
from shardlog.storage.ahead import AHEAD_BYTES, FILES_MAX, PIECE_BYTES, READERS_MAX, Ahead
from shardlog.storage.handles import Handles
from shardlog.storage.real_files import RealFiles
from shardlog.storage.recent import Stretch
from shardlog.storage.store import Store
from storage.driver import NODE, SHARD, SLOTS, SMALL
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


def read(reading: Ahead, start: int, *, once: bool = True, path: str = "file") -> None:
    reading.has_read(Stretch(path, start, MIB), LONG, once=once)


def joined(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those that follow upon each other as one; none may be there twice."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(stretches):
        if found and found[-1][1] == first:
            first, _ = found.pop()
        assert not found or found[-1][1] < first
        found.append((first, last))
    return found


def test_all_is_fetched_once_before_it_is_read_and_dropped_once_afterwards():
    hints, reading = hinted()
    for start in range(0, LONG, MIB):
        read(reading, start)
        now = start + MIB
        upto = hints.fetched[-1][1]
        assert upto == LONG or now + AHEAD_BYTES - PIECE_BYTES < upto
        assert now - PIECE_BYTES < (hints.dropped[-1][1] if hints.dropped else 0) + 1 <= now + 1
    assert joined(hints.fetched) == [(MIB, LONG)]
    assert joined(hints.dropped) == [(0, LONG)]


def test_what_others_may_read_too_is_not_dropped():
    hints, reading = hinted()
    for start in range(0, LONG, MIB):
        read(reading, start, once=False)
    assert joined(hints.fetched) == [(MIB, LONG)]
    assert not hints.dropped


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("gap", [1, 2, 4, 8, 12, 15, 20, 40])
def test_two_who_read_the_same_do_not_take_it_from_each_other(gap: int, once: bool):
    """The first one fetches for both, or each for itself where they are far from each other."""
    hints, reading = hinted()
    memory: set[int] = set()
    missed = 0

    def step(start: int, once: bool) -> None:
        nonlocal missed
        missed += start not in memory
        memory.add(start)
        read(reading, start, once=once)
        for first, last in hints.dropped:
            memory.difference_update(range(first, last, MIB))
        for first, last in hints.fetched:
            taken = range(first, last, MIB)
            from_disk.extend(set(taken) - memory)
            memory.update(taken)
        hints.dropped.clear()
        hints.fetched.clear()

    from_disk: list[int] = []
    for start in range(0, LONG + gap * MIB, MIB):
        if start < LONG:
            step(start, True)
        if start >= gap * MIB:
            step(start - gap * MIB, once)
    assert missed <= 2  # the beginning, by each
    apart = gap * MIB > AHEAD_BYTES - PIECE_BYTES
    assert len(from_disk) <= (2 * LONG if apart else LONG + AHEAD_BYTES) // MIB
    left = {each for each in memory if each < LONG - MIB}
    assert not left if once else len(left) >= (LONG - AHEAD_BYTES) // MIB


def test_who_begins_elsewhere_begins_anew():
    hints, reading = hinted()
    for start in (4 * MIB, 40 * MIB, 2 * MIB):
        read(reading, start)
    assert hints.fetched == [
        (5 * MIB, 5 * MIB + AHEAD_BYTES), (41 * MIB, 41 * MIB + AHEAD_BYTES),
        (3 * MIB, 3 * MIB + AHEAD_BYTES),
    ]  # fmt: skip
    assert not hints.dropped


def test_of_files_that_nobody_reads_any_more_nothing_is_remembered():
    hints, reading = hinted()
    for number in range(FILES_MAX + 1):
        read(reading, 0, path=f"file {number}")
    before = len(hints.fetched)
    read(reading, MIB, path="file 1")
    assert len(hints.fetched) == before
    read(reading, MIB, path="file 0")
    assert hints.fetched[-1] == (2 * MIB, 2 * MIB + AHEAD_BYTES)


def test_of_readers_that_are_gone_nothing_is_remembered():
    hints, reading = hinted()
    for number in range(READERS_MAX + 1):
        read(reading, 3 * number * MIB)
    before = len(hints.fetched)
    read(reading, MIB)  # of the first one, who was forgotten
    for start in range(2 * MIB, 8 * MIB, MIB):
        read(reading, start)
    assert len(hints.fetched) > before
    assert all(first >= MIB for first, _ in hints.dropped)


def test_a_file_that_is_gone_is_not_missed(tmp_path: Path):
    handles = Handles(RealFiles())
    handles.ahead.has_read(Stretch(str(tmp_path / "gone"), 0, MIB), LONG, once=True)


def test_what_is_fetched_is_in_memory(tmp_path: Path):
    """All of it, however little the disk is asked for at once."""
    path = tmp_path / "file"
    path.write_bytes(bytes(AHEAD_BYTES))
    file = RealFiles().open(str(path))
    with closing(file):
        file.settle()
        file.fetch(0, AHEAD_BYTES)
        for position in range(0, AHEAD_BYTES, MIB):
            assert file.read_cached(position, MIB) is not None


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
            assert segment.head.body_start <= position
            assert position + length <= segment.head.size
    return found


def test_full_segments_that_have_left_memory_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert fetched(tmp_path, monkeypatch, 0) == set(range(SEGMENTS - 1))


def test_those_that_are_in_memory_are_not_and_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert fetched(tmp_path, monkeypatch, 1 << 30) == set()


@pytest.mark.parametrize("recent_bytes_max", [1 << 30, None])
def test_after_a_start_the_newest_are_fetched_and_stay(
    tmp_path: Path, recent_bytes_max: int | None
):
    """Nobody knows whether they are in memory, but others read there."""
    store = begun(WatchedFiles(), tmp_path, 0)
    with closing(store.files.handles):
        perform(store, write(ENTRIES[: SEGMENTS * SLOTS], 1))
    files = WatchedFiles()
    handles = Handles(files, recent_bytes_max=recent_bytes_max)
    store, _ = Store.open(handles, str(tmp_path), SHARD, NODE, SMALL)
    with closing(handles):
        read_all(store)
        paths = [each.path for each in store.files.segments.items]
        assert {path for path, *_ in files.watch.fetched} == set(paths[:-1])
        assert not files.watch.dropped


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
