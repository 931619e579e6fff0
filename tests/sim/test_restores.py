"""Restores of the metadata store: the fault, and what is checked after it."""

from dataclasses import replace

import pytest

from shardlog.protocol.entry import Member
from shardlog.protocol.shard import Shard, Status
from shardlog.sim.failures import SafetyFailure
from shardlog.sim.profiles import options_of
from shardlog.sim.restores import RestoreChecker
from shardlog.sim.runner import run_many
from shardlog.sim.world import World

A, B, C, D = (Member(f"n{number}", 7) for number in range(4))
STEADY = Shard("s", Status.STEADY, 5, A, (A, B, C))


def world_after(*records: Shard) -> World:
    world = World(options_of(3, "restores"))
    for record in records:
        world.store.revision += 1
        world.store.record = record
        world.restores.stored(record)
    return world


def test_a_restored_store_goes_on_with_new_revisions():
    world = world_after(STEADY, replace(STEADY, epoch=6))
    revision = world.store.revision
    world.restores.strike()
    assert (world.store.record, world.store.revision) == (STEADY, revision + 1)
    assert world.restores.discarded() == [replace(STEADY, epoch=6)]


def test_what_is_written_on_a_restored_record_descends_from_it():
    world = world_after(STEADY, replace(STEADY, epoch=6))
    world.restores.strike()
    world.restores.stored(replace(STEADY, epoch=9))
    assert world.restores.discarded() == [replace(STEADY, epoch=6)]


def test_rule_21_a_halt_without_a_contradiction_is_a_failure():
    world = world_after(STEADY, replace(STEADY, epoch=6))
    halted = replace(STEADY, halted="because")
    with pytest.raises(SafetyFailure, match="HaltHasReason"):
        RestoreChecker().on_store(world, 3, halted)
    world.restores.strike()
    with pytest.raises(SafetyFailure, match="HaltHasReason"):
        RestoreChecker().on_store(world, 3, halted)


def test_rule_21_another_ensemble_in_what_is_discarded_contradicts():
    world = world_after(STEADY, replace(STEADY, ensemble=(A, B, D)))
    world.restores.strike()
    assert world.restores.contradicted(STEADY)


def test_runs_of_the_profile_restore_halt_and_part():
    summary = run_many(range(10, 26), jobs=1, keep_going=True, profile="restores")
    assert summary.failures == []
    seen = summary.statistics
    assert seen.restores > 30
    assert min(seen.halts, seen.parted, seen.changes_done, seen.elections) > 0
