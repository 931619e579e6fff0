"""The world as a whole: quiet and stormy runs, failures, and the limits of the adversary."""

import random
from dataclasses import replace
from typing import Any

import pytest

from shardlog.protocol.shard import Status
from shardlog.protocol.states import Role
from shardlog.sim.failures import CrashFailure, LivenessFailure, SafetyFailure
from shardlog.sim.healing import GAIN_US_MAX, Pace
from shardlog.sim.observer import Observer
from shardlog.sim.options import Options
from shardlog.sim.runner import run_many, run_options
from shardlog.sim.world import World

QUIET = Options(seed=1, command_every_ms=0, elections_min=1, changes_min=0, messages_min=1000)


def test_a_quiet_run_elects_once_and_comes_to_rest():
    world = World(QUIET)
    statistics = world.run()
    record = world.store.record
    assert world.settled
    assert record is not None
    assert record.status is Status.STEADY
    assert statistics.elections == 1
    assert statistics.crashes == statistics.faults == statistics.sessions_lost == 0
    assert statistics.operations > 50


@pytest.mark.parametrize("members", range(1, 8))
def test_every_size_serves(members: int):
    assert not run_options(replace(QUIET, members=members)).kind


def test_a_run_is_stormy_enough():
    summary = run_many(range(1, 31), keep_going=True)
    seen = summary.statistics
    assert seen.elections > 60
    assert seen.changes_done > 20
    assert min(seen.crashes, seen.disk_faults, seen.conflicts, seen.coordinator_crashes) > 20
    assert min(seen.clock_steps, seen.store_unanswered, seen.store_late) > 5


def test_every_seed_is_large_enough():
    """Unless the data really is out of reach, by the oracle's own proof."""
    summary = run_many(range(1, 41), keep_going=True)
    assert summary.failures == []
    assert summary.statistics.out_of_reach <= 2
    assert summary.smallest is not None
    messages, elections, changes = summary.smallest
    assert (messages >= 5000, elections >= 3, changes >= 1) == (True, True, True), summary.smallest


class Saboteur(Observer):
    """Raises the given failure at the hundredth step."""

    def __init__(self, failure: Exception) -> None:
        self.failure = failure
        self.steps = 0

    def on_step(self, world, node, replica, event, effects) -> None:
        self.steps += 1
        if self.steps == 100:
            raise self.failure


def test_a_failure_becomes_an_outcome_with_its_replay():
    outcome = run_options(QUIET, [Saboteur(SafetyFailure("Checker", "lost"))])
    assert (outcome.kind, outcome.text) == ("SafetyFailure", "Checker: lost")
    assert outcome.replay == "replay: shardlog sim replay --seed 1"


def test_an_exception_in_a_machine_is_a_crash_failure():
    world = World(QUIET)

    def broken(now_ms: int, event: object) -> list:
        raise KeyError("gone")

    class Broken:
        role = Role.FENCED
        step = staticmethod(broken)
        needs_tick = staticmethod(lambda now_ms: True)

    replica: Any = Broken()
    world.nodes["n1"].driver.replica = replica
    with pytest.raises(CrashFailure, match="n1"):
        world.run()


def test_a_shard_that_cannot_move_is_a_liveness_failure():
    class Muzzle(Observer):
        def on_step(self, world, node, replica, event, effects) -> None:
            if world.healed:
                effects.clear()

    world = World(replace(QUIET, liveness_ms_max=3000), [Muzzle()])
    with pytest.raises(LivenessFailure):
        world.run()


class Auditor(Observer):
    """After each fault: every committed, untrimmed entry keeps a good copy on a member."""

    def __init__(self) -> None:
        self.faults = 0

    def on_fault(self, world, text) -> None:
        world.scheduler.after(0, self.audit, world)

    def audit(self, world) -> None:
        atlas, record = world.atlas, world.store.record
        if record is None:
            return
        self.faults += 1
        members = {member for ensemble in record.ensembles for member in ensemble}
        disks = [world.nodes[m.node].disk for m in members if not atlas.lost(m)]
        trimmed = atlas.trimmed()
        for base, checksum in atlas.chain.items():
            if base >= trimmed:
                assert any(disk.holds(base, checksum) for disk in disks), base


def test_the_adversary_spares_the_last_good_copy():
    auditor = Auditor()
    for seed in range(1, 40):
        drawn = random.Random(seed)
        options = replace(
            Options.of(seed),
            rot_every_ms=drawn.choice((50, 200)),
            misdirect_every_ms=300,
            wipe_every_ms=1500,
            destroy_every_ms=0,
        )
        outcome = run_options(options, [auditor])
        assert outcome.kind != "CrashFailure", outcome.text
    assert auditor.faults > 500


def test_who_still_gains_on_the_log_has_time_beyond_the_bound():
    pace = Pace(goal=100, now_us=0)
    for now_us in range(0, 20 * GAIN_US_MAX, GAIN_US_MAX):
        pace.note(now_us // GAIN_US_MAX * 5, now_us)
        assert pace.gains(now_us)
    assert not pace.gains(21 * GAIN_US_MAX)


def test_to_start_over_gains_nothing_and_neither_do_epochs_without_end():
    pace = Pace(goal=100, now_us=0)
    pace.note(60, 0)
    pace.note(0, GAIN_US_MAX)
    pace.note(60, 2 * GAIN_US_MAX)
    assert not pace.gains(2 * GAIN_US_MAX)
    pace.note(100, 3 * GAIN_US_MAX)
    assert pace.gains(3 * GAIN_US_MAX)
    for end in range(101, 110):
        pace.note(end, 5 * GAIN_US_MAX)
    assert not pace.gains(5 * GAIN_US_MAX)
