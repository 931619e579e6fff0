"""How much of a log may go: by bytes, by time, in whole segments."""

import pytest

from shardlog.protocol.effects import TrimLog
from shardlog.storage.retention import trim_to
from shardlog.storage.segments import Segments
from storage.driver import SLOTS, SMALL, Driver, begun
from storage.states import chain, write

ENTRIES = chain(3 * SLOTS + 2, sizes=(10,))
SIZE = SMALL.size_max


def four_segments() -> Driver:
    """The entry at offset n has the time 1000 + n; eight of them stand in a segment."""
    driver = begun(ENTRIES[:24])
    driver.do(write(ENTRIES[24:], 24))
    assert [segment.first for segment in driver.store.files.segments.items] == [0, 8, 16, 24]
    return driver


def segments_of(driver: Driver) -> Segments:
    return driver.store.files.segments


@pytest.mark.parametrize(
    ("bytes_max", "first"),
    [
        (None, 0), (5 * SIZE, 0), (4 * SIZE, 0), (3 * SIZE + 1, 0), (3 * SIZE, 8),
        (2 * SIZE + 1, 8), (2 * SIZE, 16), (SIZE, 24), (1, 24), (0, 24),
    ],
)  # fmt: skip
def test_by_bytes(bytes_max: int | None, first: int) -> None:
    assert trim_to(segments_of(four_segments()), bytes_max, None) == first


@pytest.mark.parametrize(
    ("oldest_ms", "first"),
    [
        (None, 0), (0, 0), (1000, 0), (1007, 0), (1008, 8), (1015, 8), (1016, 16), (1024, 24),
        (1026, 24), (9999, 24),
    ],
)  # fmt: skip
def test_by_time(oldest_ms: int | None, first: int) -> None:
    assert trim_to(segments_of(four_segments()), None, oldest_ms) == first


@pytest.mark.parametrize(
    ("bytes_max", "oldest_ms", "first"),
    [(3 * SIZE, 1000, 8), (4 * SIZE, 1016, 16), (2 * SIZE, 1008, 16), (SIZE, 9999, 24)],
)
def test_either_is_enough(bytes_max: int, oldest_ms: int, first: int) -> None:
    assert trim_to(segments_of(four_segments()), bytes_max, oldest_ms) == first


def test_an_empty_log_stays_as_it_is() -> None:
    assert trim_to(segments_of(begun()), 0, 9999) == 0


def test_the_only_segment_stays() -> None:
    assert trim_to(segments_of(begun(ENTRIES[:3])), 0, 9999) == 0


def test_after_a_restart_and_after_a_trim() -> None:
    driver = four_segments()
    driver.crash()
    assert trim_to(segments_of(driver), None, 1008) == 8
    driver.do(TrimLog(8, ENTRIES[7].header.checksum))
    assert trim_to(segments_of(driver), None, 1008) == 8
    assert trim_to(segments_of(driver), 2 * SIZE, None) == 16
    driver.do(TrimLog(24, ENTRIES[23].header.checksum))
    assert trim_to(segments_of(driver), 0, 9999) == 24
    assert len(segments_of(driver).items) == 1
    driver.crash()
    assert driver.state.first == 24
    assert len(driver.state.headers) == len(ENTRIES) - 24


def test_a_segment_whose_end_is_unreadable_is_as_young_as_what_follows() -> None:
    driver = four_segments()
    driver.rot_slot(7)
    assert trim_to(segments_of(driver), None, 1008) == 0
    assert trim_to(segments_of(driver), None, 1009) == 8
    for base in range(8, 16):
        driver.rot_slot(base)
    assert trim_to(segments_of(driver), None, 1016) == 0
    assert trim_to(segments_of(driver), None, 1017) == 16
    for base in range(16, 26):
        driver.rot_slot(base)
    assert trim_to(segments_of(driver), None, 9999) == 0
    assert trim_to(segments_of(driver), SIZE, None) == 24


def test_a_segment_that_was_too_small_for_its_first_entry_is_no_obstacle() -> None:
    """An entry that does not fit into the empty last segment goes to one of its own."""
    driver = four_segments()
    items = segments_of(driver).items
    last = ENTRIES[-1].header
    for size in (3000, 5000, 10):
        entries = chain(1, last.end, last.checksum, sizes=(size,))
        driver.do(write(entries))
        last = entries[-1].header
    assert len(segments_of(driver).items) > len(items)
    assert trim_to(segments_of(driver), None, 9999) == segments_of(driver).items[-1].first
