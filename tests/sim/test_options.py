"""Options: a function of the seed, legal, and readable."""

from dataclasses import fields, replace

import pytest

from shardlog.protocol.quorum import is_safe
from shardlog.sim.options import Options
from shardlog.sim.profiles import PROFILES, options_of


def test_options_are_a_function_of_the_seed():
    assert Options.of(7) == Options.of(7)
    assert len({Options.of(seed) for seed in range(50)}) == 50


def test_each_option_is_one_line():
    options = Options.of(3)
    lines = options.lines()
    assert [line.partition(" = ")[0] for line in lines] == [each.name for each in fields(options)]
    assert not any("\n" in line for line in lines)


def test_every_option_can_be_overridden():
    assert replace(Options.of(3), members=5, loss=0.5).members == 5


def test_drawn_quorums_are_legal_and_varied():
    drawn = [Options.of(seed) for seed in range(400)]
    for options in drawn:
        quorum = options.quorum.of(options.members)
        assert is_safe(options.members, quorum.replication, quorum.fencing)
        assert options.pipeline_max <= options.limits.replies_max
    assert any(options.quorum.replication for options in drawn)
    assert {options.members for options in drawn} == {1, 2, 3, 4, 5, 6, 7}
    assert {options.coordinators for options in drawn} == {1, 2, 3}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_is_a_function_of_the_seed_and_named_in_what_replays_it(profile):
    options = options_of(7, profile)
    assert options == options_of(7, profile)
    assert options.profile == profile
    on_engine = options_of(7, profile, engine=True)
    assert (on_engine.engine, on_engine.profile) == (True, profile)
