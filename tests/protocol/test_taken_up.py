"""What a restart takes up again, what rides along with entries, and what a trim keeps first."""

from protocol.harness import CLIENT, LEADER, acked, chain, entries, follower, leading, only
from shardlog.protocol.effects import Barrier, TrimLog, WriteEntries, WriteSuperblock
from shardlog.protocol.messages import Entries, Heartbeat, Register

LOG = chain([1, 1, 1, 1])


def test_V10_uncommitted_entries_come_back_after_a_restart():
    node = follower(LOG, commit=1)
    node.restart()
    assert node.replica.log.headers == LOG
    assert [slot.base for slot in node.answer().slots][-3:] == [1, 2, 3]


def test_V2_rule_17_the_commit_context_that_rides_along_ends_with_what_is_committed():
    node = follower(LOG[:2], commit=2)
    effects = node.take(Entries(1, entries(LOG[2:]), 2, 0), LEADER)
    assert only(effects, WriteEntries).commit == 2
    node.restart()
    assert node.replica.commit == 2


def test_V3_the_table_of_sessions_is_kept_before_anything_is_trimmed():
    node = follower(LOG, commit=4)
    effects = node.take(Heartbeat(1, 4, 2, 1, True), LEADER)
    kinds = [type(effect) for effect in effects]
    at = kinds.index(WriteSuperblock)
    assert kinds[at : at + 3] == [WriteSuperblock, Barrier, TrimLog]
    assert only(effects, WriteSuperblock).superblock.sessions_at == 4


def test_V2_durable_here_is_what_the_commit_context_tells_whatever_others_hold():
    leader = leading(LOG)
    acked(leader, "b", 5)
    leader.take(Register(1), CLIENT)
    acked(leader, "b", 6)
    acked(leader, "c", 6)
    assert (leader.replica.commit, leader.replica.durable_end) == (6, 5)
    assert only(leader.take(Register(2), CLIENT), WriteEntries).commit == 5
