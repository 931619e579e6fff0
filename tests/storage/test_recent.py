"""Full segments beyond a bound do not stay in memory; what they hold stays on the disk."""

from contextlib import closing, nullcontext
from pathlib import Path

from shardlog.protocol.effects import Format, TruncateLog, WriteSuperblock
from shardlog.protocol.history import Span
from shardlog.storage.handles import Handles
from shardlog.storage.recent import Recent, Stretch
from shardlog.storage.store import Store
from storage.driver import NODE, SHARD, SLOTS, SMALL
from storage.replicas import perform
from storage.states import superblock, write
from storage.test_spares import ENTRIES, trim_before
from storage.volumes import WatchedFiles

SEGMENTS = 5
BEGIN = (Format(superblock()), WriteSuperblock(superblock(1, history=(Span(1, 0),))))
BODIES = SMALL.size_max - SMALL.size_min + 2048


def begun(files: WatchedFiles, directory: Path, recent_bytes_max: int | None) -> Store:
    handles = Handles(files, recent_bytes_max=recent_bytes_max)
    store, _ = Store.open(handles, str(directory), SHARD, NODE, SMALL)
    perform(store, *BEGIN)
    return store


def test_what_was_full_before_the_start_may_stay_as_far_as_there_is_room():
    dropped: list[str] = []

    class Dropping:
        def __init__(self, path: str) -> None:
            self.path = path

        def drop(self, position: int, length: int) -> None:
            dropped.append(self.path)

    recent = Recent(lambda path: nullcontext(Dropping(path)), 3)  # type: ignore[arg-type]
    for path in ("newest", "older", "old", "oldest"):
        recent.found(Stretch(path, 0, 1))
    assert [recent.keeps(path) for path in ("newest", "older", "old", "oldest")] == [True] * 3 + [
        False
    ]
    assert not recent.holds("newest")
    recent.filled(Stretch("new", 0, 1))
    assert recent.holds("new")
    recent.filled(Stretch("next", 0, 1))
    assert dropped == ["old", "older"]
    recent.forget("newest")
    assert not recent.keeps("newest")


def dropped(directory: Path, recent_bytes_max: int | None) -> int:
    """How many of the oldest segments, while `SEGMENTS` and one entry more were written."""
    files = WatchedFiles()
    store = begun(files, directory, recent_bytes_max)
    with closing(store.files.handles):
        perform(store, write(ENTRIES[: SEGMENTS * SLOTS + 1], 1))
        known = [each.bodies for each in store.files.segments.items]
        assert files.watch.dropped == known[: len(files.watch.dropped)]
        assert [store.read(each.header) for each in ENTRIES[: SEGMENTS * SLOTS + 1]] == list(
            ENTRIES[: SEGMENTS * SLOTS + 1]
        )
    return len(files.watch.dropped)


def test_the_oldest_go_when_the_newest_are_too_many(tmp_path: Path):
    assert dropped(tmp_path / "two", 2 * BODIES) == SEGMENTS - 2
    assert dropped(tmp_path / "less", 2 * BODIES - 1) == SEGMENTS - 1
    assert dropped(tmp_path / "all", 5 * BODIES) == 0


def test_without_room_each_goes_when_it_is_full(tmp_path: Path):
    assert dropped(tmp_path, 0) == SEGMENTS


def test_without_a_bound_all_stay(tmp_path: Path):
    assert dropped(tmp_path, None) == 0


def test_what_is_dropped_is_durable_and_holds_no_slot(tmp_path: Path):
    files = WatchedFiles()
    store = begun(files, tmp_path, 0)
    with closing(store.files.handles):
        perform(store, write(ENTRIES[: SEGMENTS * SLOTS + 1], 1))
    heads = {each.path: each.head for each in store.files.segments.items}
    for path, position, _ in files.watch.dropped:
        assert position == heads[path].body_start
    for at, (what, path) in enumerate(files.watch.events):
        if what == "drop":
            before = [what for what, each in files.watch.events[:at] if each == path]
            assert before[-1] == "sync"


def test_those_that_were_trimmed_take_no_room(tmp_path: Path):
    files = WatchedFiles()
    store = begun(files, tmp_path, 2 * BODIES)
    with closing(store.files.handles):
        perform(store, write(ENTRIES[: 2 * SLOTS + 1], ENTRIES[2 * SLOTS].header.base))
        perform(store, trim_before(2 * SLOTS))
        perform(store, write(ENTRIES[2 * SLOTS + 1 : 4 * SLOTS + 1], 1))
        assert not files.watch.dropped
        perform(store, write(ENTRIES[4 * SLOTS + 1 : 5 * SLOTS + 1], 1))
        kept = [each.path for each in store.files.segments.items]
        assert [path for path, *_ in files.watch.dropped] == kept[:1]


def test_a_segment_that_is_filled_again_after_a_cut_counts_once(tmp_path: Path):
    files = WatchedFiles()
    store = begun(files, tmp_path, 2 * BODIES)
    with closing(store.files.handles):
        perform(store, write(ENTRIES[: 2 * SLOTS + 1], 0))
        for _ in range(3):
            perform(store, TruncateLog(ENTRIES[SLOTS].header.base))
            perform(store, write(ENTRIES[SLOTS : 2 * SLOTS + 1], 0))
        assert len(store.files.segments.items) == 3
        assert not files.watch.dropped


def test_all_shards_of_a_volume_share_the_bound(tmp_path: Path):
    files = WatchedFiles()
    handles = Handles(files, recent_bytes_max=2 * BODIES)
    stores = [
        Store.open(handles, str(tmp_path / name), SHARD, NODE, SMALL)[0] for name in ("a", "b")
    ]
    with closing(handles):
        for store in stores:
            perform(store, *BEGIN, write(ENTRIES[: 2 * SLOTS + 1], 1))
    first = stores[0].files.segments.items
    assert [path for path, *_ in files.watch.dropped] == [each.path for each in first[:2]]


def test_what_only_passes_lets_nobody_else_go(tmp_path: Path):
    """It has left memory by itself, as it came."""
    files = WatchedFiles()
    idle = begun(files, tmp_path / "idle", 2 * BODIES)
    handles = idle.files.handles
    with closing(handles):
        perform(idle, write(ENTRIES[: 2 * SLOTS + 1], 1))
        behind, _ = Store.open(handles, str(tmp_path / "behind"), SHARD, NODE, SMALL)
        perform(behind, *BEGIN)
        behind.passing = True
        perform(behind, write(ENTRIES[: 4 * SLOTS + 1], 1))
        mine = {each.path for each in idle.files.segments.items}
        assert not [path for path, *_ in files.watch.dropped if path in mine]
        behind.passing = False
        perform(behind, write(ENTRIES[4 * SLOTS + 1 : 6 * SLOTS + 1], 1))
        assert [path for path, *_ in files.watch.dropped if path in mine]
