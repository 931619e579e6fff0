"""An inspection over the simulated volume: after every crash, and with every sector lost.

It must agree with what a start finds in the same files, change nothing, and never call damage what
a crash has left.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from shardlog.protocol.effects import (
    Disk,
    Format,
    Recovered,
    ResetLog,
    TrimLog,
    TruncateLog,
    WriteEntries,
)
from shardlog.protocol.effects import WriteSuperblock as Promise
from shardlog.protocol.log import Mark
from shardlog.sim.faulty_files import Crashed, FaultyFiles, Keep
from shardlog.storage.failures import StorageFailure
from shardlog.storage.files import SECTOR_BYTES
from shardlog.storage.findings import Consequence
from shardlog.storage.handles import Handles
from shardlog.storage.inspection import Inspection, replica_directories
from shardlog.storage.store import Store
from storage.replicas import BLOCK, ENTRIES, PLAN, SECOND, perform

VOLUME, DIRECTORY = "volume", "volume/orders"
CUT, TRIM = ENTRIES[11].header, ENTRIES[8].header
LIFE: tuple[Disk, ...] = (
    Format(replace(BLOCK, epoch=0, history=())),
    Promise(BLOCK),
    WriteEntries(tuple(ENTRIES[:3]), 0),
    WriteEntries(tuple(ENTRIES[3:14]), ENTRIES[2].header.end),
    TruncateLog(CUT.end),
    TrimLog(TRIM.end, TRIM.checksum),
    WriteEntries(tuple(ENTRIES[12:15]), ENTRIES[9].header.end),
    ResetLog(100, 5),
)


def volume() -> FaultyFiles:
    files = FaultyFiles(Random(1))
    files.make_directory(VOLUME)
    files.sync_directory("")
    return files


def opened(files: FaultyFiles) -> tuple[Store, Recovered | None]:
    return Store.open(Handles(files), DIRECTORY, "orders", "n1", PLAN)


def lived(files: FaultyFiles, effects: tuple[Disk, ...] = LIFE) -> FaultyFiles:
    store = opened(files)[0]
    perform(store, *effects)
    store.files.handles.close()
    return files


Marks = dict[int, Mark]


def inspected(files: FaultyFiles) -> tuple[Inspection, Marks]:
    before = files.snapshot()
    inspection = Inspection(files, DIRECTORY)
    found: Marks = {
        each.header.base: each.mark
        for each in inspection.scan(bodies=True)
        if each.mark is not Mark.BLANK
    }
    inspection.close()
    assert files.snapshot() == before
    return inspection, found


def recovered(files: FaultyFiles) -> Marks:
    found = opened(files)[1]
    assert found is not None
    marks = dict(found.marks)
    return {header.base: marks.get(header.base, Mark.PRESENT) for header in found.headers}


def crashes() -> Iterator[int]:
    files = volume()
    before = files.operations
    lived(files)
    return iter(range(files.operations - before))


@pytest.mark.parametrize("keep", ["none", "all", "random"])
def test_a_crash_leaves_no_damage(keep: Keep):
    seen: set[Consequence] = set()
    for operations in crashes():
        files = volume()
        files.crash_after(operations)
        with pytest.raises(Crashed):
            lived(files)
        files.crash(keep)
        if "superblock" not in files.list(DIRECTORY):
            continue
        inspection, found = inspected(files)
        torn = [each for each in inspection.findings if each.consequence is Consequence.MENDED]
        assert inspection.damage == torn, operations
        assert len(torn) <= 1
        assert found == recovered(files), operations
        assert inspected(files)[0].findings == []
        seen.update(each.consequence for each in inspection.findings)
    assert seen >= {Consequence.FINISHED, Consequence.REMOVED}


def test_every_sector_lost():
    """`REPLACE` is said if and only if a start refuses."""
    whole = lived(volume(), LIFE[:7]).snapshot()
    files = volume()
    files.restore(whole)
    names = files.list(DIRECTORY)
    assert len(names) > 1
    for name in names:
        path = f"{DIRECTORY}/{name}"
        for sector in range(files.open(path, write=False).size() // SECTOR_BYTES):
            files.restore(whole)
            files.unreadable_sector(path, sector)
            inspection, found = inspected(files)
            refused = any(each.consequence is Consequence.REPLACE for each in inspection.findings)
            try:
                assert found == recovered(files), (name, sector)
                assert not refused
            except StorageFailure:
                assert refused, (name, sector)


def test_a_replica_among_others():
    files = lived(volume(), LIFE[:4])
    files.make_directory(f"{VOLUME}/empty")
    assert replica_directories(files, VOLUME) == [DIRECTORY]
    assert replica_directories(files, DIRECTORY) == [DIRECTORY]
    assert replica_directories(files, f"{VOLUME}/empty") == []
    assert SECOND in files.list(DIRECTORY)
