"""`durability: Relaxed` on a volume that forgets what was not synced."""

import pytest

from shardlog.checksum import seal
from shardlog.protocol.effects import Limits, Recovered, WriteSuperblock
from shardlog.protocol.history import Span
from shardlog.protocol.log import Mark
from shardlog.protocol.replica import Replica
from shardlog.sim.faulty_files import Keep
from shardlog.storage.relaxing import IN_DOUBT, MARK, UNSYNCED_MAX, Flush, Relax
from storage.driver import DIRECTORY, Driver, begun
from storage.states import chain, superblock, write

ENTRIES = chain(12)
SYNCED = 4
LIMITS = Limits()


def relaxed(entries: int = 12) -> Driver:
    """So many entries, of which the first four were there before."""
    driver = begun(ENTRIES[:SYNCED])
    driver.store.tend(Relax(True))
    driver.settle()
    if entries > SYNCED:
        driver.do(write(ENTRIES[SYNCED:entries]))
    return driver


def cut_power(driver: Driver, keep: Keep = "none") -> Recovered:
    driver.files.crash(keep)
    recovered = driver.open()
    assert recovered is not None
    return recovered


def test_M9_a_killed_process_loses_nothing() -> None:
    driver = relaxed()
    driver.files.kill()
    recovered = driver.open()
    assert recovered is not None
    assert [header.base for header in recovered.headers][-1] == 11
    assert (recovered.marks, recovered.superblock.in_doubt) == ((), 0)
    assert MARK not in driver.files.list(DIRECTORY)
    driver.files.crash("none")  # a start makes durable what it believes
    again = driver.open()
    assert again is not None
    assert again.headers[-1].base == 11


@pytest.mark.parametrize("keep", ["none", "random", "all"])
def test_M9_after_a_power_cut_the_tail_is_in_doubt(keep: Keep) -> None:
    for seed in range(20):
        driver = relaxed()
        driver.files.random.seed(seed)
        recovered = cut_power(driver, keep)
        known = [header for header in recovered.headers if header.checksum]
        assert [header.base for header in known][:SYNCED] == [0, 1, 2, 3]
        assert recovered.superblock.in_doubt == IN_DOUBT
        replica = Replica.restart(
            "orders", "node-a", LIMITS, seal, recovered, driver.store
        )  # fmt: skip
        answer = replica.fence_answer()
        assert answer.open_tail
        assert answer.tail_slots == IN_DOUBT
        assert answer.slots[-1].mark is Mark.FAULT
        assert MARK not in driver.files.list(DIRECTORY)
        once_more = cut_power(driver)
        assert once_more.superblock.in_doubt == IN_DOUBT
        assert once_more.headers == recovered.headers


def test_M9_what_was_flushed_is_durable() -> None:
    driver = relaxed(8)
    driver.store.tend(Flush())
    driver.settle()
    driver.do(write(ENTRIES[8:]))
    recovered = cut_power(driver)
    assert [header.base for header in recovered.headers if header.checksum][-1] == 7


def test_M9_a_promise_has_the_entries_before_it_synced() -> None:
    driver = relaxed()
    driver.do(WriteSuperblock(superblock(2, history=(Span(1, 0),))))
    recovered = cut_power(driver)
    assert recovered.superblock.epoch == 2
    assert [header.base for header in recovered.headers if header.checksum][-1] == 11


def test_M9_whoever_stops_in_good_order_is_not_in_doubt() -> None:
    driver = relaxed()
    driver.store.tend(Relax(False))
    driver.settle()
    recovered = cut_power(driver)
    assert (recovered.headers[-1].base, recovered.superblock.in_doubt) == (11, 0)


def test_M9_only_so_many_entries_count_before_a_sync() -> None:
    driver = relaxed(SYNCED)
    files = driver.store.files
    files.unsynced_entries = UNSYNCED_MAX - 2
    driver.do(write(ENTRIES[SYNCED:10]))
    assert files.unsynced_entries == 4
    recovered = cut_power(driver)
    assert [header.base for header in recovered.headers if header.checksum][-1] >= 5


def test_M9_a_mark_that_was_not_finished_means_nothing() -> None:
    driver = begun(ENTRIES)
    driver.files.create(f"{DIRECTORY}/{MARK}").close()
    driver.files.sync_directory(DIRECTORY)
    recovered = cut_power(driver)
    assert recovered.superblock.in_doubt == 0
    assert MARK not in driver.files.list(DIRECTORY)
