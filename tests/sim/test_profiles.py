"""Each profile meets the faults that it is made for, and the new faults do what they say."""

from dataclasses import replace
from random import Random

import pytest

from shardlog.protocol.effects import Format, Recovered, Superblock, Sync, WriteEntries
from shardlog.protocol.entry import GENESIS_CHECKSUM, Entry, Kind, sealed
from shardlog.sim.disk import FLUSH_US, ModelDisk
from shardlog.sim.linearizability import Operation, check
from shardlog.sim.losses import eras
from shardlog.sim.profiles import PROFILES
from shardlog.sim.runner import run_many
from shardlog.sim.scheduler import Scheduler
from shardlog.sim.seal import seal, seal_body


@pytest.mark.parametrize("profile", sorted(set(PROFILES) - {"default", "restores"}))
def test_a_few_seeds_of_each_profile_pass(profile: str):
    summary = run_many(range(1, 6), jobs=1, keep_going=True, profile=profile)
    assert summary.failures == []


def run_until(scheduler: Scheduler, time_us: int) -> None:
    scheduler.at(time_us, lambda _: scheduler.stop(), None)
    scheduler.run()


def relaxed_disk() -> tuple[ModelDisk, Scheduler, list[int]]:
    synced: list[int] = []
    scheduler = Scheduler()
    disk = ModelDisk(scheduler, Random(1), 100, synced.append, lambda: None, relaxed=True)
    disk.submit(Format(Superblock(7, 0, 0, (), 0, 0, (), None)))
    disk.submit(Sync(1))
    run_until(scheduler, 1000)
    body = b"body"
    header = sealed(seal, 1, 0, 1, Kind.DATA, 0, 1, 0, GENESIS_CHECKSUM, seal_body(body))
    disk.submit(WriteEntries((Entry(header, body),), 0))
    disk.submit(Sync(2))
    run_until(scheduler, 2000)
    assert synced == [1, 2]
    return disk, scheduler, synced


def found(disk: ModelDisk) -> Recovered:
    recovered = disk.recover()
    assert recovered is not None
    return recovered


def test_M9_a_relaxed_disk_keeps_what_counts_when_the_process_ends():
    disk, _, _ = relaxed_disk()
    disk.crash()
    assert (len(found(disk).headers), found(disk).superblock.in_doubt) == (1, 0)


def test_M9_a_power_cut_may_take_what_is_not_synced_and_leaves_a_doubt():
    lost = 0
    for luck in range(20):
        disk, _, _ = relaxed_disk()
        disk.random = Random(luck)
        disk.crash(power=True)
        lost += not found(disk).headers
        assert found(disk).superblock.in_doubt > 0
    assert 0 < lost < 20


def test_M9_what_was_synced_meanwhile_stays():
    disk, scheduler, _ = relaxed_disk()
    run_until(scheduler, 3000 + FLUSH_US)
    for _ in range(5):
        disk.crash(power=True)
        assert len(found(disk).headers) == 1


FIRST = Operation(1, 0, 10, "append", value=1, offset=5)
SECOND = Operation(2, 30, 40, "append", value=2, offset=5)


def test_an_offset_may_be_given_again_once_people_have_given_up_what_stood_there():
    assert check([FIRST, SECOND]) is not None
    assert all(check(history) is None for history in eras([FIRST, SECOND], [(20, 5)]))


def test_what_stands_below_a_cut_binds_for_ever():
    kept = replace(FIRST, offset=4)
    again = replace(SECOND, offset=4)
    assert any(check(history) for history in eras([kept, again], [(20, 5)]))
