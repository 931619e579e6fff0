"""The commit context: the latest only, never beyond the log, and an older one is safe."""

import pytest

from shardlog.protocol.effects import (
    TrimLog,
    WriteEntries,
)
from shardlog.storage.inspection import Inspection
from shardlog.storage.layout import (
    Context,
)
from shardlog.storage.superblock import COPIES, STRIDE_BYTES
from storage.driver import DIRECTORY, begun
from storage.scripts import ENTRIES, base_of, end_of, epoch_1, twelve
from storage.states import write
from storage.tampering import refused, tamper

SUPERBLOCK = f"{DIRECTORY}/superblock"


def test_V1_rule_17_a_million_empty_commits_take_no_disk() -> None:
    driver = twelve()
    before = driver.files.operations, driver.files.snapshot()
    for commit in range(1_000_000):
        driver.store.submit(WriteEntries((), commit))
    assert driver.store.take() is None
    assert (driver.files.operations, driver.files.snapshot()) == before


def test_V1_rule_17_checkpoints_overwrite_each_other() -> None:
    driver = begun(ENTRIES)
    sizes = set()
    for number in range(20):
        driver.do(epoch_1(end_of(number)))
        sizes.add(len(driver.files.open(SUPERBLOCK).read(0, 1 << 20)))
        assert driver.store.files.root is not None
        assert len(driver.store.files.root.records) < 8
    assert sizes == {COPIES * STRIDE_BYTES}


def test_V1_rule_17_the_latest_context_is_found() -> None:
    driver = begun(ENTRIES[:4])
    driver.do(write(ENTRIES[4:6], end_of(1)))
    driver.do(write(ENTRIES[6:7], end_of(4)))
    recovered = driver.crash()
    assert recovered is not None
    assert recovered.superblock.commit == end_of(4)


def test_V2_rule_17_a_context_beyond_the_log_is_damage() -> None:
    driver = twelve()
    where = tamper(driver, base_of(11), context=Context(end_of(11) + 1, 77))
    failure = refused(driver)
    assert (failure.path, failure.position) == where
    assert "beyond" in failure.why


@pytest.mark.parametrize("number", [7, 3])
def test_V2_rule_17_a_context_with_a_false_checksum_is_damage(number: int) -> None:
    """Higher than the true one or, in every slot that has one, lower."""
    driver = twelve()
    for each in range(8, 12):
        tamper(driver, base_of(each), context=Context(end_of(number), 77))
    assert "does not match" in refused(driver).why


def test_V2_rule_17_a_context_inside_an_entry_is_damage() -> None:
    driver = twelve()
    tamper(driver, base_of(11), context=Context(end_of(6) + 1, 77))
    assert "does not match" in refused(driver).why


def test_V2_rule_17_an_older_or_missing_context_is_safe() -> None:
    driver = twelve()
    for each in range(8, 12):
        older = Context(end_of(2), ENTRIES[2].header.checksum)
        tamper(driver, base_of(each), context=older if each == 9 else Context(0, 0))
    driver.files.crash("none")
    recovered = driver.open()
    assert recovered is not None
    assert recovered.superblock.commit == end_of(2)
    assert recovered.headers == tuple(entry.header for entry in ENTRIES[:12])


def test_V2_rule_17_a_context_whose_entry_could_not_be_read_when_it_was_written_is_no_damage() -> (
    None
):
    """A repaired slot takes it along; start and inspection agree about it."""
    driver = twelve()
    tamper(driver, base_of(11), context=Context(end_of(9), 0))
    driver.files.crash("none")
    recovered = driver.open()
    assert recovered is not None
    assert recovered.superblock.commit == end_of(9)
    inspection = Inspection(driver.files, DIRECTORY)
    assert [found.header for found in inspection.scan(bodies=True)] == [*recovered.headers]
    assert inspection.context.end == end_of(9)
    assert not inspection.damage


def test_V3_rule_17_trimming_everything_keeps_the_next_offset_and_the_context() -> None:
    driver = twelve()
    driver.do(epoch_1(end_of(11)))
    driver.do(TrimLog(end_of(11), ENTRIES[11].header.checksum))
    for keep in ("none", "all"):
        recovered = driver.crash(keep)
        assert recovered is not None
        assert recovered.headers == ()
        assert (recovered.first, recovered.boundary) == (end_of(11), ENTRIES[11].header.checksum)
        assert recovered.superblock.commit == end_of(11)
    driver.do(write(ENTRIES[12:14], end_of(11)))
    driver.crash()
    assert [header.base for header in driver.state.headers] == [base_of(12), base_of(13)]
