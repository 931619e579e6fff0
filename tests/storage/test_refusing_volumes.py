"""A full disk, a read-only one, too few descriptors, syncs that fail: nothing is lost by any."""

from random import Random

import pytest

from shardlog.protocol.effects import Format, Sync, TruncateLog
from shardlog.protocol.failures import ImpossibleState
from shardlog.sim.faulty_files import FaultyFiles
from shardlog.storage.failures import (
    DiskFailed,
    DiskFull,
    ReadOnlyVolume,
    Retriable,
    StorageFailure,
    TooManyOpenFiles,
)
from shardlog.storage.handles import Handles
from shardlog.storage.rounds import Round
from shardlog.storage.segment import GROUP_BYTES_MAX
from shardlog.storage.store import Store
from storage.driver import DIRECTORY, NODE, SHARD, SMALL, Driver, begun
from storage.scripts import ENTRIES, end_of, epoch_2, fenced, many_spans, twelve, unreadable_middle
from storage.states import chain, superblock, write


def perform(driver: Driver) -> Round | None:
    """One round, as a volume performs it: what is retriable is deferred."""
    round_ = driver.store.take()
    if round_ is None:
        return None
    try:
        round_.write()
        round_.sync()
    except Retriable as failure:
        driver.store.defer(round_, failure)
        return round_
    for token in driver.store.finish(round_):
        driver.reported.append(token)
        driver.kept = max(driver.kept, driver.due[token])
    return round_


def stalls(driver: Driver) -> Retriable:
    """Perform until nothing moves any more; why."""
    for _ in range(50):
        perform(driver)
        if driver.store.stalled is not None:
            break
    assert driver.store.stalled is not None
    perform(driver)
    assert driver.store.stalled is not None
    return driver.store.stalled


# --- a full disk ---------------------------------------------------------------------------------


def test_a_full_disk_defers_what_needs_a_segment_and_goes_on_with_room() -> None:
    driver = begun(ENTRIES[:6])
    driver.files.full()
    driver.submit(write(ENTRIES[6:8]), Sync(1), write(ENTRIES[8:12]), Sync(2))
    assert isinstance(stalls(driver), DiskFull)
    assert 1 in driver.reported
    assert 2 not in driver.reported
    assert driver.store.read(ENTRIES[11].header) == ENTRIES[11]
    assert not driver.store.broken
    driver.files.full(None)
    driver.settle()
    assert driver.store.stalled is None
    assert 2 in driver.reported
    driver.crash()
    assert len(driver.state.headers) == 12


def test_a_crash_while_the_disk_is_full_loses_nothing() -> None:
    for keep in ("none", "all", "random"):
        driver = begun(ENTRIES[:8])
        driver.files.full()
        driver.submit(write(ENTRIES[8:10]), Sync(1))
        stalls(driver)
        driver.crash(keep)
        driver.files.full(None)
        driver.do(write(ENTRIES[8:10]))
        driver.crash()
        assert len(driver.state.headers) == 10


def test_a_cut_without_room_is_not_taken_for_done() -> None:
    driver = unreadable_middle()
    segments = driver.store.files.segments
    driver.submit(TruncateLog(end_of(4)), Sync(1))
    used = sum(segment.head.size for segment in segments.items[1:])
    driver.files.full(-used)
    for _ in range(3):
        perform(driver)
        assert isinstance(driver.store.stalled, DiskFull)
    root = driver.store.files.root
    assert root is not None
    assert root.cut_to == end_of(4)
    driver.files.full(None)
    driver.settle()
    assert driver.reported[-1:] == [1]
    driver.crash()
    assert driver.state.end == end_of(4)
    assert driver.state.marks


def test_a_superblock_that_cannot_grow_is_deferred() -> None:
    driver = twelve()
    driver.files.full()
    driver.submit(fenced(2, end_of(5)), Sync(1), many_spans(3000), Sync(2))
    assert isinstance(stalls(driver), DiskFull)
    assert 1 in driver.reported
    assert 2 not in driver.reported
    driver.files.full(None)
    driver.settle()
    driver.crash()
    assert driver.recovered is not None
    assert driver.recovered.superblock.epoch == 3000


def test_formatting_a_full_disk_is_deferred() -> None:
    driver = Driver()
    driver.files.full()
    driver.submit(Format(superblock()), Sync(1))
    assert isinstance(stalls(driver), DiskFull)
    driver.files.full(None)
    driver.settle()
    assert driver.crash() is not None


# --- descriptors ---------------------------------------------------------------------------------


def test_few_descriptors_are_enough() -> None:
    """Idle files are closed for the sake of any other: segments, new ones, the superblock."""
    driver = begun(ENTRIES)
    driver.files.crash("none")
    driver.files.open_files_max = 2
    driver.open()
    last = ENTRIES[-1].header
    for _ in range(2):
        for entry in ENTRIES:
            assert driver.store.read(entry.header) == entry
        driver.do(fenced(2))
        driver.do(epoch_2(23))
        more = chain(9, last.end, last.checksum, epoch=2)
        driver.do(write(more))
        last = more[-1].header
    assert driver.files.open_files <= 2


def test_no_descriptor_at_all_is_deferred() -> None:
    driver = twelve()
    others = 300
    driver.files.open_files = others
    driver.handles.close()
    driver.files.open_files_max = driver.files.open_files
    driver.submit(write(ENTRIES[12:13]), fenced(2, end_of(5)), Sync(1))
    assert isinstance(stalls(driver), TooManyOpenFiles)
    driver.files.open_files_max = None
    driver.settle()
    driver.crash()
    assert driver.recovered is not None
    assert driver.recovered.superblock.epoch == 2


def test_handles_close_the_file_used_longest_ago() -> None:
    driver = begun(ENTRIES)
    handles = Handles(driver.files, open_files_max=2)
    paths = [segment.path for segment in driver.store.files.segments.items]
    before = driver.files.open_files
    pinned = handles.pin(paths[0])
    for path in (*paths, *paths):
        with handles.use(path) as file:
            assert file.read(0, 8) == b"SHARDSEG"
    assert driver.files.open_files - before <= 2
    assert pinned.read(0, 8) == b"SHARDSEG"
    handles.unpin(paths[0])


# --- errors --------------------------------------------------------------------------------------


def test_a_failed_sync_breaks_the_store_for_good() -> None:
    driver = begun(ENTRIES[:3])
    driver.submit(write(ENTRIES[3:5]), Sync(1))
    round_ = driver.store.take()
    assert round_ is not None
    driver.files.fail_next_sync()
    round_.write()
    with pytest.raises(DiskFailed):
        round_.sync()
    driver.store.fail(round_)
    assert driver.store.broken
    for _ in range(2):
        with pytest.raises(ImpossibleState, match="broken"):
            driver.store.take()
    assert 1 not in driver.reported
    driver.crash("random")


def test_a_volume_that_became_read_only_refuses_with_its_name() -> None:
    driver = twelve()
    driver.files.read_only = True
    driver.submit(write(ENTRIES[12:13]), Sync(1))
    round_ = driver.store.take()
    assert round_ is not None
    with pytest.raises(ReadOnlyVolume) as caught:
        round_.write()
    assert not isinstance(caught.value, Retriable)
    assert caught.value.path.startswith(DIRECTORY)


def test_a_read_only_volume_does_not_start() -> None:
    driver = twelve()
    driver.files.crash("none")
    driver.files.read_only = True
    with pytest.raises(StorageFailure) as caught:
        driver.open()
    assert isinstance(caught.value, ReadOnlyVolume)


def test_no_group_is_longer_than_what_a_start_wipes() -> None:
    files = FaultyFiles(Random(1))
    files.make_directory("volume")
    store, _ = Store.open(Handles(files), DIRECTORY, SHARD, NODE, SMALL)
    size = GROUP_BYTES_MAX // 3
    store.submit(Format(superblock()))
    store.submit(write(chain(9, sizes=(size, 100, 3 * size + 400, 2 * size))))
    longest = 0
    while (round_ := store.take()) is not None:
        if round_.group is not None and len(round_.group.slots) > 1:
            longest = max(longest, round_.group.after - round_.group.position)
        round_.write()
        round_.sync()
        store.finish(round_)
    assert longest <= GROUP_BYTES_MAX
