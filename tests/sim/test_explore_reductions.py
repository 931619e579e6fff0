"""Each reduction of the explorer, held against an exploration without it.

Everything that is seen without a reduction is seen with it, and with at least as much committed;
and a rule that is taken away is found with and without it.
"""

from functools import cache

import pytest
from explore_views import Seen, uncovered

from shardlog.sim.explore import Explorer
from shardlog.sim.explore_messages import Reduction
from shardlog.sim.explore_worlds import named, sized
from shardlog.sim.mutants import ALL_MUTANTS

EACH = [each for each in Reduction if each.value and each.value & (each.value - 1) == 0]
SMALL = [
    ("elections", 2, 1, 0),
    ("elections", 2, 0, 1),
    ("coordinators", 2, 0, 0),
    ("contract", 1, 0, 0),
    ("contract", 1, 0, 1),
    ("expand", 1, 0, 0),
    ("swap", 1, 0, 0),
]
SMALL_WITHOUT = [
    (reduction, bounds)
    for reduction in EACH
    for bounds in SMALL
    if reduction is not Reduction.FENCES
    and not (reduction is Reduction.LEFTOVERS and bounds in SMALL[4:] and bounds[0] != "expand")
]
"""The others are too large to be exhausted without that reduction."""


@cache
def seen(bounds, reduction):
    world, epochs, writes, crashes = bounds
    return Seen(sized(named(world), epochs=epochs, writes=writes, crashes=crashes), reduction)


@pytest.mark.parametrize(("reduction", "bounds"), SMALL_WITHOUT, ids=str)
def test_all_that_is_seen_without_a_reduction_is_seen_with_it(reduction, bounds):
    without = seen(bounds, Reduction.ALL & ~reduction)
    assert without.states >= seen(bounds, Reduction.ALL).states
    assert not uncovered(without.views, seen(bounds, Reduction.ALL).views)


@pytest.mark.parametrize("bounds", [("contract", 1, 0, 0), ("expand", 1, 0, 0)], ids=str)
def test_the_same_logs_come_about_when_members_are_fenced_again(bounds):
    without = seen(bounds, Reduction.ALL & ~Reduction.FENCES)
    assert not uncovered(without.logs, seen(bounds, Reduction.ALL).logs)


@pytest.mark.parametrize("bounds", SMALL[:2], ids=str)
def test_all_that_is_seen_without_any_reduction_is_seen_with_all_of_them(bounds):
    reduced, whole = seen(bounds, Reduction.ALL), seen(bounds, Reduction.NONE)
    assert not uncovered(whole.views, reduced.views)
    assert not uncovered(reduced.views, whole.views)


@pytest.mark.parametrize("without", [Reduction.NONE, *EACH], ids=lambda each: each.name)
@pytest.mark.parametrize(
    ("mutant", "world", "bounds"),
    [
        ("election_resumed", "coordinators", (2, 0, 0)),
        ("chain_unchecked", "elections", (2, 1, 0)),
        ("fence_not_persisted", "elections", (2, 0, 1)),
    ],
)
def test_a_rule_taken_away_is_found_without_each_reduction(mutant, world, bounds, without):
    epochs, writes, crashes = bounds
    smaller = sized(named(world), epochs=epochs, writes=writes, crashes=crashes)
    with ALL_MUTANTS[mutant].applied():
        world, start = smaller.begin(Reduction.ALL & ~without)
        report = Explorer(mutant, world, start, 50_000).run()
    assert report.failure is not None
