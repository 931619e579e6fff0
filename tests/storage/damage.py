"""A small, complete replica, and the judgement on what is read from a damaged copy of it."""

from __future__ import annotations

from random import Random

from shardlog.protocol.effects import Recovered, TrimLog
from shardlog.protocol.entry import Entry, Kind
from shardlog.protocol.log import Mark
from shardlog.sim.faulty_files import FaultyFiles
from shardlog.storage.failures import Damaged, StorageFailure
from shardlog.storage.handles import Handles
from shardlog.storage.plan import Plan
from shardlog.storage.store import Store
from storage.driver import DIRECTORY, NODE, SHARD, SMALL, Driver
from storage.scripts import ENTRIES, base_of, end_of, epoch_2, parted, twelve
from storage.states import write

Contents = dict[str, bytes]


def small_replica() -> Driver:
    """Three segments, two epochs; trimmed, committed, and a checkpoint was taken."""
    driver = twelve()
    driver.do(epoch_2(12, end_of(8)))
    driver.do(write(parted(12, 7), end_of(10)))
    driver.do(epoch_2(12, end_of(10), sessions_at=end_of(2)))
    driver.do(TrimLog(end_of(0), ENTRIES[0].header.checksum))
    return driver


def contents(driver: Driver) -> Contents:
    """The files of the replica, by name."""
    found: Contents = {}
    for name in driver.files.list(DIRECTORY):
        file = driver.files.open(f"{DIRECTORY}/{name}", write=False)
        found[name] = file.read(0, file.size())
        file.close()
    return found


class Specimen:
    """The replica as it was, and copies of its files for anybody to spoil."""

    def __init__(self) -> None:
        driver = small_replica()
        self.contents = contents(driver)
        self.state = driver.state
        self.commit = max(driver.state.ridden, driver.state.superblock.commit)  # type: ignore[union-attr]
        self.bodies = driver.bodies
        self.truth = {
            header.base: Entry(header, driver.bodies[header.checksum])
            for header in driver.state.headers
        }

    def volume(
        self, contents: Contents, unreadable: dict[str, set[int]] | None = None
    ) -> FaultyFiles:
        files = FaultyFiles(Random(0))
        bad = unreadable or {}
        files.restore(
            {
                "volume": {
                    SHARD: {
                        name: (data, frozenset(bad.get(name, ())))
                        for name, data in contents.items()
                    }
                }
            }
        )
        return files

    def opened(
        self, files: FaultyFiles, shard: str = SHARD, node: str = NODE, plan: Plan = SMALL
    ) -> tuple[Store, Recovered | None]:
        return Store.open(Handles(files), DIRECTORY, shard, node, plan)

    def judge(self, files: FaultyFiles, name: str) -> str:
        """ "right", "marked" or "refused"; an assertion fails for anything else."""
        try:
            store, recovered = self.opened(files)
        except StorageFailure as failure:
            refused = failure
        else:
            assert recovered is not None
            return self.compare(store, recovered)
        assert refused.path == f"{DIRECTORY}/{name}", refused
        assert not isinstance(refused, Damaged) or refused.position >= 0
        return "refused"

    def compare(self, store: Store, recovered: Recovered) -> str:
        block, truth = recovered.superblock, self.state.superblock
        assert truth is not None
        assert (block.epoch, block.led, block.history) == (truth.epoch, truth.led, truth.history)
        assert block.commit <= self.commit
        assert (recovered.first, recovered.boundary) == (self.state.first, self.state.boundary)
        marks = dict(recovered.marks)
        tail = recovered.headers
        assert tail
        below = store.headers(recovered.first, tail[0].base, 1000)
        at, bad = recovered.first, 0
        for header in (*below, *tail):
            assert header.base == at
            if header.kind is Kind.UNKNOWN:
                bad += 1
                assert header in below or marks[header.base] is Mark.FAULT
                at = self.state.end if header.count == 0 else header.end
                continue
            assert header == self.truth[header.base].header
            entry = store.read(header)
            bad += entry is None
            if header.base in marks:
                assert entry is None
            elif header.base >= block.commit:
                assert entry is not None
            assert entry is None or entry == self.truth[header.base]
            at = header.end
        assert at == self.state.end, "an entry is gone"
        return "marked" if bad else "right"


SPECIMEN = Specimen()
LAST = sorted(SPECIMEN.contents)[-2]
assert base_of(1) == SPECIMEN.state.first
