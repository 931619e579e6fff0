"""Entries that were given up must not be found again; a log that is new is new as a whole."""

from __future__ import annotations

from contextlib import suppress

from shardlog.protocol.effects import Barrier, ResetLog, RewriteEntry, WriteSuperblock
from shardlog.protocol.entry import Member
from shardlog.protocol.history import Span
from shardlog.protocol.messages import Snapshot
from shardlog.sim.faulty_files import Crashed
from storage.driver import Driver
from storage.scripts import ENTRIES, base_of, end_of, epoch_2, twelve
from storage.states import superblock, write


def test_an_entry_behind_a_repaired_tail_does_not_come_back() -> None:
    driver = twelve()
    driver.submit(write(ENTRIES[12:13]))
    assert driver.step()
    driver.rot_both(base_of(11))
    driver.files.crash("none")
    driver.open()
    driver.store.submit(RewriteEntry(ENTRIES[11]))
    driver.store.submit(epoch_2(12, end_of(5)))
    while (round_ := driver.store.take()) is not None:
        round_.write()
        round_.sync()
        driver.store.finish(round_)
    driver.files.crash("none")
    recovered = driver.open()
    assert recovered is not None
    assert recovered.headers[-1] == ENTRIES[11].header


def test_an_entry_of_an_epoch_that_the_history_does_not_know_there_is_not_found() -> None:
    driver = twelve()
    driver.do(epoch_2(12, end_of(5)))
    driver.store.submit(write(ENTRIES[12:13]))
    round_ = driver.store.take()
    assert round_ is not None
    round_.write()
    round_.sync()
    driver.files.crash("none")
    recovered = driver.open()
    assert recovered is not None
    assert recovered.headers[-1] == ENTRIES[11].header


SNAPSHOT = Snapshot(Member("b", 2), (Span(1, 0), Span(2, 40)), 50, 77, 60, 78, ())
PROMISE = superblock(3, history=SNAPSHOT.history, commit=50, syncing=SNAPSHOT, in_doubt=1)


def start_over(driver: Driver) -> None:
    driver.do(ResetLog(50, 77), Barrier(), Barrier(), WriteSuperblock(PROMISE))


def test_V8_a_log_is_started_over_together_with_what_explains_it() -> None:
    whole = twelve()
    begun = whole.files.operations
    start_over(whole)
    for operations in range(whole.files.operations - begun + 1):
        for keep in ("none", "all", "random"):
            driver = twelve()
            driver.files.crash_after(operations)
            with suppress(Crashed):
                start_over(driver)
            driver.files.crash(keep)
            recovered = driver.open()
            assert recovered is not None
            if recovered.first == 50:
                assert recovered.superblock == PROMISE, operations
            else:
                assert recovered.headers[-1] == ENTRIES[11].header, operations


def test_a_reader_by_time_misses_no_entry_whose_slot_is_lost() -> None:
    driver = twelve()
    times = [entry.header.timestamp_ms for entry in ENTRIES[:12]]
    assert times[2] < times[3] < times[4]
    place = driver.store.files.segments.covering(base_of(3))
    assert place is not None
    driver.files.rot(place.segment.path, place.segment.slot_position(place.number))
    assert driver.store.at_time(times[3]) == base_of(3)
    assert driver.store.at_time(times[4]) == base_of(4)
