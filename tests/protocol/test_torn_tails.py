"""Torn is not corrupt (rule 14): after a power cut every member may end in bytes that mean nothing.

They are read back here as a start reads them, by the model of a disk, so that what the members
answer to a fence rests on both copies of an entry.
"""

from random import Random

import pytest

from protocol.harness import LIMITS, SHARD, chain, entries, history_of
from protocol.test_choice import ABC, MAJORITY, B, C, answers, chosen, no_copy
from shardlog.protocol.choice import decide
from shardlog.protocol.effects import Format, Superblock, Sync, WriteEntries
from shardlog.protocol.entry import Member
from shardlog.protocol.messages import FenceAnswer
from shardlog.protocol.replica import Replica
from shardlog.sim.disk import ModelDisk
from shardlog.sim.scheduler import Scheduler
from shardlog.sim.seal import seal
from shardlog.sim.slot import Part

LOG = chain([1, 1, 1])


def told(member: Member, slot: Part, body: Part) -> FenceAnswer:
    """Of a member whose power went while its last entry was written: what is left of its copies."""
    scheduler = Scheduler()
    disk = ModelDisk(scheduler, Random(1), 1000, lambda token: None, lambda: None)
    disk.submit(Format(Superblock(1, 1, 0, history_of(LOG), 0, 0, (), None)))
    disk.submit(WriteEntries(entries(LOG), 0))
    disk.submit(Sync(1))
    scheduler.run()
    disk.stable[2].header, disk.stable[2].body = slot, body
    disk.crash()
    found = disk.recover()
    assert found is not None
    return Replica.restart(SHARD, member.node, LIMITS, seal, found).fence_answer()


@pytest.mark.parametrize("torn", [2, 3])
def test_rule_14_torn_tails_are_nacks_and_halt_nothing(torn):
    members = ABC[-torn:]
    left = {each: told(each, Part.ABSENT, Part.BAD) for each in members}
    decision = chosen(answers(a=[1, 1]) | left)
    assert decision.kept.end == 2
    assert [(each.end, each.open_tail) for each in left.values()] == [(2, False)] * torn


@pytest.mark.parametrize("slot", [Part.OK, Part.BAD])
def test_rule_14_where_an_id_was_written_an_entry_may_have_been(slot):
    """The same bytes behind another copy: that two of three had it cannot be ruled out."""
    left = {each: told(each, slot, Part.BAD) for each in (B, C)}
    assert decide(answers(a=[1, 1]) | left, (ABC,), MAJORITY) == no_copy(1, 2, B, C)


def test_rule_14_a_whole_entry_counts_without_its_id_apart():
    left = {each: told(each, Part.ABSENT, Part.OK) for each in (B, C)}
    assert chosen(answers(a=[1, 1]) | left).kept.end == 3
