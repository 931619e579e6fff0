"""Files of trimmed segments are written again, and what they held never comes back.

Power cuts at every operation of such a life are in `test_crashes`.
"""

from pathlib import Path

from shardlog.protocol.effects import Format, ResetLog, TrimLog, WriteSuperblock
from shardlog.protocol.entry import GENESIS_CHECKSUM
from shardlog.protocol.history import Span
from shardlog.storage.handles import Handles
from shardlog.storage.inspection import Inspection
from shardlog.storage.real_files import RealFiles
from shardlog.storage.spares import PREFIX, SPARES_MAX
from shardlog.storage.store import Store
from storage.driver import DIRECTORY, NODE, SHARD, SLOTS, SMALL, Driver, begun
from storage.replicas import perform
from storage.states import chain, superblock, write

ENTRIES = chain(12 * SLOTS, sizes=(40, 90))


def trim_before(number: int) -> TrimLog:
    return TrimLog(ENTRIES[number].header.base, ENTRIES[number].header.parent)


def spares(driver: Driver) -> list[str]:
    return [name for name in driver.files.list(DIRECTORY) if name.startswith(PREFIX)]


def filled(segments: int) -> Driver:
    """So many and one entry more; all but the last segment are trimmed."""
    driver = begun()
    last = segments * SLOTS
    driver.do(write(ENTRIES[: last + 1], ENTRIES[last].header.base), trim_before(last))
    return driver


def test_the_next_segment_is_made_of_a_trimmed_one() -> None:
    driver = filled(1)
    assert spares(driver) == ["spare-1"]
    driver.do(write(ENTRIES[SLOTS + 1 : 2 * SLOTS + 1]))
    assert spares(driver) == []
    assert [each.first for each in driver.store.files.segments.items] == [
        ENTRIES[SLOTS].header.base, ENTRIES[2 * SLOTS].header.base,
    ]  # fmt: skip
    driver.crash("all")


def test_a_real_file_is_written_again(tmp_path: Path) -> None:
    handles = Handles(RealFiles())
    store, _ = Store.open(handles, str(tmp_path / SHARD), SHARD, NODE, SMALL)
    begin = WriteSuperblock(superblock(1, history=(Span(1, 0),)))
    perform(store, Format(superblock()), begin, write(ENTRIES[: SLOTS + 1], 1))
    (first, _) = sorted((tmp_path / SHARD).glob("*.segment"))
    inode = first.stat().st_ino
    perform(store, trim_before(SLOTS), write(ENTRIES[SLOTS + 1 : 2 * SLOTS + 1]))
    (_, again) = sorted((tmp_path / SHARD).glob("*.segment"))
    assert again.stat().st_ino == inode
    handles.close()
    _, recovered = Store.open(handles, str(tmp_path / SHARD), SHARD, NODE, SMALL)
    assert recovered is not None
    assert recovered.headers[-1] == ENTRIES[2 * SLOTS].header
    handles.close()


def test_who_reads_a_trimmed_file_goes_on_reading_it() -> None:
    driver = begun()
    driver.do(write(ENTRIES[: SLOTS + 1], 1))
    segment, _, position = driver.place(0)
    with driver.handles.use(segment.path) as file:
        before = file.read(position, 100)
        driver.do(trim_before(SLOTS), write(ENTRIES[SLOTS + 1 : 3 * SLOTS]))
        assert file.read(position, 100) == before
    assert spares(driver) == []


def test_no_more_are_kept_than_were_used_since_the_last_trim() -> None:
    driver = filled(SPARES_MAX + 2)
    assert len(spares(driver)) == SPARES_MAX
    at = (SPARES_MAX + 2) * SLOTS
    driver.do(write(ENTRIES[at + 1 : at + 1 + SLOTS]), trim_before(at + SLOTS))
    assert len(spares(driver)) == 1
    driver.do(write(ENTRIES[at + 1 + SLOTS : at + 3 + SLOTS]), trim_before(at + 1 + SLOTS))
    assert spares(driver) == []


def test_a_log_that_starts_over_keeps_none() -> None:
    driver = filled(2)
    assert len(spares(driver)) == 2
    driver.do(ResetLog(0, GENESIS_CHECKSUM))
    assert spares(driver) == []


def test_a_start_removes_them() -> None:
    driver = filled(2)
    driver.crash("all")
    assert spares(driver) == []


def test_an_inspection_finds_nothing_in_what_a_file_held_before() -> None:
    driver = filled(1)
    driver.do(write(ENTRIES[SLOTS + 1 : 2 * SLOTS + 1]))
    last = driver.store.files.segments.items[-1]
    with driver.handles.use(last.path) as file:
        behind = file.read(last.position, 100)
    assert any(behind)
    inspection = Inspection(driver.files, DIRECTORY)
    list(inspection.scan(bodies=True))
    assert inspection.findings == []
