"""Options: a function of the seed, legal, and readable."""

from dataclasses import fields, replace

from shardlog.protocol.quorum import is_safe
from shardlog.sim.options import Options


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
