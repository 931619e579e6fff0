"""The disk model: each fault yields the mark that the table in `shardlog.sim.disk` says."""

from random import Random

import pytest

from shardlog.protocol.effects import (
    Barrier,
    Erase,
    Format,
    Recovered,
    ResetLog,
    RewriteEntry,
    Superblock,
    Sync,
    TrimLog,
    TruncateLog,
    WriteEntries,
    WriteSuperblock,
)
from shardlog.protocol.entry import GENESIS_CHECKSUM, Entry, Kind, sealed, unreadable
from shardlog.protocol.failures import ImpossibleState
from shardlog.protocol.history import Span
from shardlog.protocol.log import Mark
from shardlog.sim.disk import ModelDisk
from shardlog.sim.failures import SafetyFailure
from shardlog.sim.scheduler import Scheduler
from shardlog.sim.seal import seal, seal_body
from shardlog.sim.slot import Part

HISTORY = (Span(1, 0), Span(2, 6))


def superblock(epoch: int = 2, commit: int = 0) -> Superblock:
    return Superblock(7, epoch, 0, HISTORY, commit, 0, (), None)


def chain(*counts: int, first: int = 0, parent: int = GENESIS_CHECKSUM) -> list[Entry]:
    """Entries of these counts, one after the other."""
    entries = []
    base = first
    for count in counts:
        body = base.to_bytes(8, "little")
        epoch = 2 if base >= 6 else 1
        header = sealed(seal, epoch, base, count, Kind.DATA, 1, 1, 0, parent, seal_body(body))
        entries.append(Entry(header, body))
        base, parent = header.end, header.checksum
    return entries


class Bench:
    """A disk alone with a clock."""

    def __init__(self, seed: int = 1, headers_last: bool = False) -> None:
        self.scheduler = Scheduler()
        self.synced: list[int] = []
        self.errors = 0
        self.disk = ModelDisk(
            self.scheduler, Random(seed), 1000, self.synced.append, self._error, headers_last
        )

    def _error(self) -> None:
        self.errors += 1

    def formatted(self, *entries: Entry, commit: int = 0) -> "Bench":
        self.disk.submit(Format(superblock(commit=commit)))
        self.disk.submit(WriteEntries(tuple(entries), 0))
        return self.sync(1)

    def sync(self, token: int) -> "Bench":
        self.disk.submit(Sync(token))
        self.scheduler.run()
        return self

    def restart(self) -> Recovered:
        self.disk.crash()
        recovered = self.disk.recover()
        assert recovered is not None
        return recovered


def marks(recovered: Recovered) -> list[tuple[int, Mark]]:
    return list(recovered.marks)


ENTRIES = chain(2, 1, 3, 2)  # bases 0, 2, 3, 6


def test_whole_log_comes_back():
    recovered = Bench().formatted(*ENTRIES).restart()
    assert recovered.headers == tuple(entry.header for entry in ENTRIES)
    assert recovered.marks == ()


def test_no_replica():
    bench = Bench()
    assert bench.disk.recover() is None
    bench.formatted(*ENTRIES)
    bench.disk.submit(Erase())
    bench.sync(2)
    bench.disk.crash()
    assert bench.disk.recover() is None


def test_rotten_body_is_corrupt():
    bench = Bench().formatted(*ENTRIES)
    bench.disk.rot_body(2)
    assert bench.disk.read(ENTRIES[1].header) is None
    recovered = bench.restart()
    assert marks(recovered) == [(2, Mark.CORRUPT)]
    assert recovered.headers[1] == ENTRIES[1].header


def test_rotten_header_copy_alone_is_no_loss_and_is_mended():
    bench = Bench().formatted(*ENTRIES)
    bench.disk.rot_header(2)
    assert marks(bench.restart()) == []
    assert bench.disk.stable[2].header is Part.OK


def test_both_copies_bad_is_a_fault_with_the_epoch_of_the_history():
    bench = Bench().formatted(*ENTRIES)
    bench.disk.rot_body(2)
    bench.disk.rot_header(2)
    recovered = bench.restart()
    assert marks(recovered) == [(2, Mark.FAULT)]
    assert recovered.headers[1] == unreadable(1, 2, 1)


def test_neighbouring_faults_merge_but_not_across_epochs():
    bench = Bench().formatted(*chain(2, 1, 3, 2, 1))
    for base in (2, 3, 6):
        bench.disk.rot_body(base)
        bench.disk.rot_header(base)
    recovered = bench.restart()
    assert marks(recovered) == [(2, Mark.FAULT), (6, Mark.FAULT)]
    assert recovered.headers[1] == unreadable(1, 2, 4)
    assert recovered.headers[2] == unreadable(2, 6, 2)


def test_unreadable_tail_is_open():
    bench = Bench().formatted(*ENTRIES)
    bench.disk.rot_body(6)
    bench.disk.rot_header(6)
    recovered = bench.restart()
    assert recovered.headers[-1] == unreadable(2, 6, 0)


def test_never_landed_is_blank_and_what_follows_is_dropped():
    bench = Bench().formatted(*ENTRIES)
    del bench.disk.stable[3]
    recovered = bench.restart()
    assert [header.base for header in recovered.headers] == [0, 2]
    assert marks(recovered) == []
    assert list(bench.disk.stable) == [0, 2]


def test_rule_14_torn_is_blank_if_the_header_copy_is_cleanly_absent():
    bench = Bench().formatted(*ENTRIES)
    bench.disk.stable[6].header = Part.ABSENT
    bench.disk.stable[6].body = Part.BAD
    assert [header.base for header in bench.restart().headers] == [0, 2, 3]


def test_blank_below_the_commit_offset_is_a_fault_and_stays_one():
    bench = Bench().formatted(*ENTRIES, commit=6)
    del bench.disk.stable[2]
    assert marks(bench.restart()) == [(2, Mark.FAULT)]
    assert marks(bench.restart()) == [(2, Mark.FAULT)]


def test_commit_rides_with_durable_entries_and_never_beyond_the_log():
    bench = Bench().formatted(*ENTRIES[:3])
    bench.disk.submit(WriteEntries((ENTRIES[3],), 3))
    bench.sync(2)
    assert bench.restart().superblock.commit == 3
    bench.disk.submit(TruncateLog(2))
    bench.sync(3)
    with pytest.raises(SafetyFailure, match="a commit context of 3 in a log that ends at 2"):
        bench.restart()


@pytest.mark.parametrize("seed", range(40))
def test_unsynced_writes_land_or_not_and_synced_ones_stay(seed: int):
    bench = Bench(seed).formatted(*ENTRIES[:2])
    bench.disk.submit(WriteEntries(tuple(ENTRIES[2:]), 0))
    bench.disk.submit(WriteSuperblock(superblock(epoch=9)))
    assert bench.disk.read(ENTRIES[3].header) == ENTRIES[3]
    recovered = bench.restart()
    assert recovered.superblock.epoch in (2, 9)
    assert [header.base for header in recovered.headers][:2] == [0, 2]
    assert all(mark is Mark.CORRUPT and base >= 3 for base, mark in recovered.marks)


def test_crashes_are_of_all_kinds():
    ends = set()
    for seed in range(200):
        bench = Bench(seed).formatted(*ENTRIES[:2])
        bench.disk.submit(WriteEntries(tuple(ENTRIES[2:]), 0))
        recovered = bench.restart()
        ends.add((recovered.headers[-1].end, recovered.marks))
    assert len(ends) >= 5


@pytest.mark.parametrize("seed", range(40))
def test_header_copies_written_last_never_leave_a_corrupt_tail(seed: int):
    bench = Bench(seed, headers_last=True).formatted(*ENTRIES[:2])
    bench.disk.submit(WriteEntries(tuple(ENTRIES[2:]), 0))
    assert bench.restart().marks == ()


@pytest.mark.parametrize("seed", range(20))
def test_nothing_behind_a_barrier_lands_before_it(seed: int):
    bench = Bench(seed).formatted(*ENTRIES)
    bench.disk.submit(TruncateLog(3))
    bench.disk.submit(Barrier())
    bench.disk.submit(WriteSuperblock(superblock(epoch=9)))
    assert bench.restart().superblock.epoch == 2


def test_sync_covers_only_what_came_before_it():
    bench = Bench().formatted()
    bench.disk.submit(WriteEntries((ENTRIES[0],), 0))
    bench.disk.submit(Sync(2))
    bench.disk.submit(WriteEntries((ENTRIES[1],), 0))
    bench.scheduler.run()
    assert bench.synced == [1, 2]
    assert list(bench.disk.stable) == [0]


def test_tokens_come_back_in_order_across_barriers():
    bench = Bench().formatted()
    for token in range(2, 8):
        bench.disk.submit(WriteSuperblock(superblock(epoch=token)))
        bench.disk.submit(Sync(token))
        bench.disk.submit(Barrier())
    bench.scheduler.run()
    assert bench.synced == list(range(1, 8))
    assert bench.restart().superblock.epoch == 7


def test_misdirected_write_spoils_two():
    bench = Bench().formatted(*ENTRIES[:3])
    bench.disk.misdirect_next_write(2)
    bench.disk.submit(WriteEntries((ENTRIES[3],), 0))
    bench.sync(2)
    assert marks(bench.restart()) == [(2, Mark.CORRUPT), (6, Mark.CORRUPT)]


def test_repair_in_place():
    bench = Bench().formatted(*ENTRIES)
    bench.disk.rot_body(2)
    bench.disk.rot_header(2)
    bench.restart()
    bench.disk.submit(RewriteEntry(ENTRIES[1]))
    bench.sync(2)
    assert marks(bench.restart()) == []


def test_trim_keeps_the_boundary():
    bench = Bench().formatted(*ENTRIES)
    bench.disk.submit(TrimLog(3, 0))
    bench.sync(2)
    recovered = bench.restart()
    assert (recovered.first, recovered.boundary) == (3, ENTRIES[1].header.checksum)
    assert recovered.superblock.commit == 3


def test_trim_of_everything_keeps_the_boundary():
    bench = Bench().formatted(*ENTRIES)
    bench.disk.submit(TrimLog(8, 0))
    bench.sync(2)
    recovered = bench.restart()
    assert (recovered.first, recovered.boundary) == (8, ENTRIES[3].header.checksum)
    assert recovered.headers == ()


def test_reset_starts_an_empty_log():
    bench = Bench().formatted(*ENTRIES)
    bench.disk.submit(ResetLog(20, 99))
    bench.sync(2)
    recovered = bench.restart()
    assert (recovered.first, recovered.boundary, recovered.headers) == (20, 99, ())


def test_io_error_on_write_and_on_sync():
    bench = Bench().formatted()
    bench.disk.fail_next()
    bench.disk.submit(WriteEntries((ENTRIES[0],), 0))
    assert bench.errors == 1
    bench.disk.submit(Sync(2))
    bench.disk.fail_next()
    bench.scheduler.run()
    assert bench.errors == 2
    assert bench.synced == [1]


def test_wipe():
    bench = Bench().formatted(*ENTRIES)
    bench.disk.wipe()
    assert bench.disk.recover() is None


def test_writing_before_a_cut_is_durable_is_noticed():
    """A replica that forgets the barrier leaves a mixture behind, and the model says so."""
    other = chain(2, 1, 4, first=0, parent=5)
    noticed = 0
    for seed in range(50):
        bench = Bench(seed).formatted(*ENTRIES)
        bench.disk.submit(TruncateLog(0))
        bench.disk.submit(WriteEntries(tuple(other), 0))
        try:
            bench.restart()
        except ImpossibleState:
            noticed += 1
    assert noticed > 10


def test_reading_what_was_never_written_is_a_mistake():
    bench = Bench().formatted(*ENTRIES[:1])
    with pytest.raises(ImpossibleState):
        bench.disk.read(ENTRIES[1].header)
