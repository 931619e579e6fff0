"""The explorer: it exhausts small worlds, and finds what is wrong in them."""

import pytest

from shardlog.sim.explore import explore
from shardlog.sim.explore_worlds import WORLDS, named, sized
from shardlog.sim.mutants import ALL_MUTANTS


@pytest.mark.parametrize("world", [each.name for each in WORLDS])
def test_a_small_world_is_exhausted_and_nothing_is_wrong_in_it(world):
    report = explore(sized(named(world), epochs=1, writes=1, crashes=0), 50_000)
    assert report.failure is None
    assert report.exhausted
    assert report.states >= 1


@pytest.mark.parametrize(
    ("mutant", "world", "bounds", "text"),
    [
        ("election_resumed", "coordinators", (2, 0, 0), "both lead epoch 2"),
        ("chain_unchecked", "elections", (2, 1, 0), "NoLogDivergence"),
        ("fence_not_persisted", "elections", (2, 0, 1), "forgot epoch 2 in a restart"),
    ],
)
def test_a_rule_taken_away_is_found_with_a_path_to_it(mutant, world, bounds, text):
    epochs, writes, crashes = bounds
    smaller = sized(named(world), epochs=epochs, writes=writes, crashes=crashes)
    with ALL_MUTANTS[mutant].applied():
        report = explore(smaller, 50_000)
    assert text in str(report.failure)
    assert report.transcript


def test_a_world_is_given_up_at_the_bound():
    report = explore(named("elections"), 100)
    assert not report.exhausted
    assert report.failure is None


def test_the_same_world_gives_the_same_figures():
    once, again = (explore(sized(named("elections"), epochs=2, crashes=0)) for _ in range(2))
    assert (once.states, once.transitions, once.depth) == (
        again.states,
        again.transitions,
        again.depth,
    )
