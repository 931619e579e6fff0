"""Reconfigurations, as the leader carries them out."""

import pytest

from protocol.harness import (
    CLIENT,
    LIMITS,
    acked,
    chain,
    fenced_answer,
    lead_of,
    leading,
    only,
    refusal,
    sent,
)
from shardlog.protocol.effects import Barrier, Limits, Send, Sync, WriteEntries, WriteSuperblock
from shardlog.protocol.entry import Kind, Member
from shardlog.protocol.failures import Illegal, NotReady, StaleEpoch, StandbyLagging, WrongRole
from shardlog.protocol.history import Span
from shardlog.protocol.messages import (
    Abort,
    Aborted,
    Ack,
    AddFollower,
    Announce,
    Commit,
    Committed,
    Operation,
    PauseWrites,
    Prepare,
    Prepared,
    Progress,
    Reconfiguration,
    Register,
    Registered,
    WritesPaused,
)
from shardlog.protocol.states import Role

A, B, C, D = (Member(node, 1) for node in "abcd")
ABC = (A, B, C)
LOG = chain([1, 1, 1])
CONTRACT = Reconfiguration(Operation.CONTRACT, ABC, C, None)
SWAP = Reconfiguration(Operation.SWAP, ABC, C, D)
EXPAND = Reconfiguration(Operation.EXPAND, ABC, None, D)


def kinds(effects):
    return [type(each) for each in effects if not isinstance(each, Send)]


def steady(*, holders="bc", standby_at=None, limits=LIMITS):
    """A leads epoch 2 over B and C, all committed up to 4 by `holders`; D may be a standby."""
    leader = leading(LOG, limits=limits)
    for name in "bc":
        acked(leader, name, 4 if name in holders else 3)
    if standby_at is not None:
        leader.receive(AddFollower(2, fenced_answer("d", LOG), standby=True))
        leader.receive(Progress(2, standby_at), D)
    return leader


def covered(leader, change, epoch=3):
    """What it answers when asked (again)."""
    return only(leader.receive(Prepare(epoch, change)), Prepared).covered


def test_the_final_ensemble():
    assert (CONTRACT.after, SWAP.after, EXPAND.after) == ((A, B), (A, B, D), (A, B, C, D))


# --- prepare -----------------------------------------------------------------------------------


def test_O4_prepare_raises_the_epoch_durably_and_opens_it_by_an_entry():
    leader = steady()
    effects = leader.take(Prepare(3, CONTRACT))
    assert kinds(effects) == [Barrier, WriteSuperblock, Barrier, WriteEntries, Sync]
    block = only(effects, WriteSuperblock).superblock
    assert (block.epoch, block.led, block.history[-1]) == (3, 3, Span(3, 4))
    assert only(effects, WriteEntries).entries[0].header.kind is Kind.EPOCH_START
    assert not sent(effects, Prepared)
    after = leader.finish(effects)
    assert only(after, Prepared).epoch == 3
    assert {each.epoch for each in sent(after, Announce)} == {3}


def test_O4_acks_of_the_earlier_epoch_do_not_count_in_the_new_one():
    leader = steady()
    leader.receive(Prepare(3, CONTRACT))
    leader.receive(Ack(2, 5, 5, 0), B)
    assert leader.replica.commit == 4


@pytest.mark.parametrize("epoch", [1, 2])
def test_O4_prepare_needs_a_higher_epoch(epoch):
    assert refusal(steady().receive(Prepare(epoch, CONTRACT))) == StaleEpoch(2)


def test_O4_the_leader_is_never_swapped_out():
    change = Reconfiguration(Operation.CONTRACT, ABC, A, None)
    assert isinstance(refusal(steady().receive(Prepare(3, change))), Illegal)


def test_O6_one_change_at_a_time():
    leader = steady()
    leader.receive(Prepare(3, CONTRACT))
    other = Reconfiguration(Operation.CONTRACT, ABC, B, None)
    assert isinstance(refusal(leader.receive(Prepare(4, other))), NotReady)


def test_O6_a_change_of_another_ensemble_is_refused():
    change = Reconfiguration(Operation.CONTRACT, (A, C), C, None)
    assert isinstance(refusal(steady().receive(Prepare(3, change))), NotReady)


def test_O5_nothing_is_prepared_before_the_tenure_has_committed():
    """Its commit offset may lag behind what an earlier leader acknowledged."""
    leader = leading(LOG)
    acked(leader, "b", 3)
    assert isinstance(refusal(leader.receive(Prepare(3, CONTRACT))), NotReady)


# --- coverage ----------------------------------------------------------------------------------


def test_O5_the_leaving_nodes_acks_stop_counting_past_ones_too():
    leader = steady(holders="c")
    assert leader.replica.commit == 4
    leader.receive(Prepare(3, CONTRACT))
    acked(leader, "c", 5)
    assert leader.replica.commit == 4


def test_O5_covered_only_when_the_final_ensemble_holds_all_that_is_committed():
    """B lags at PREPARE; x is on A and C only."""
    leader = steady(holders="c")
    leader.receive(Prepare(3, CONTRACT))
    assert not covered(leader, CONTRACT)
    acked(leader, "b", 3)
    assert not covered(leader, CONTRACT)
    acked(leader, "b", 4)
    assert covered(leader, CONTRACT)


def test_O5_commit_is_refused_before_coverage():
    leader = steady(holders="c")
    leader.receive(Prepare(3, CONTRACT))
    assert isinstance(refusal(leader.receive(Commit(3, CONTRACT))), NotReady)
    assert lead_of(leader).ensemble == ABC


def test_O5_covered_at_once_if_the_final_ensemble_holds_everything():
    assert only(steady().receive(Prepare(3, CONTRACT)), Prepared).covered


def test_O5_once_covered_always_covered():
    leader = steady()
    leader.receive(Prepare(3, CONTRACT))
    acked(leader, "b", 5)
    assert covered(leader, CONTRACT)
    leader.receive(Register(1), CLIENT)
    assert covered(leader, CONTRACT)


def test_O4_from_covered_on_both_ensembles_must_hold_what_is_committed():
    leader = steady(standby_at=4)
    leader.receive(Prepare(3, EXPAND))
    for name in "bcd":
        acked(leader, name, 5)
    assert covered(leader, EXPAND)
    leader.receive(Register(1), CLIENT)
    acked(leader, "b", 6)
    assert leader.replica.commit == 5, "two of three, but not three of four"
    assert only(acked(leader, "d", 6), Registered)


def test_O4_before_covered_the_old_ensemble_commits_alone():
    leader = steady(holders="b", standby_at=3)
    assert not only(leader.receive(Prepare(3, EXPAND)), Prepared).covered
    acked(leader, "b", 5)
    assert leader.replica.commit == 5


# --- commit and abort --------------------------------------------------------------------------


def test_O4_commit_brings_the_final_ensemble_into_force():
    leader = steady()
    leader.receive(Prepare(3, CONTRACT))
    acked(leader, "b", 5)
    assert covered(leader, CONTRACT)
    assert only(leader.receive(Commit(3, CONTRACT)), Committed).epoch == 3
    assert lead_of(leader).ensemble == (A, B)
    assert C not in lead_of(leader).cursors


def test_O4_commit_is_idempotent():
    leader = steady()
    leader.receive(Prepare(3, CONTRACT))
    acked(leader, "b", 5)
    covered(leader, CONTRACT)
    leader.receive(Commit(3, CONTRACT))
    assert only(leader.receive(Commit(3, CONTRACT)), Committed).epoch == 3


@pytest.mark.parametrize(("epoch", "expected"), [(2, StaleEpoch(3)), (4, WrongRole("LEADER", 3))])
def test_O4_commit_needs_the_same_epoch(epoch, expected):
    leader = steady()
    leader.receive(Prepare(3, CONTRACT))
    assert refusal(leader.receive(Commit(epoch, CONTRACT))) == expected


def test_O4_commit_frees_the_entries_that_waited_for_the_old_ensemble():
    """Swap C for D: B and D hold it, C is silent."""
    leader = steady(standby_at=4)
    leader.receive(Prepare(3, SWAP))
    for name in "bd":
        acked(leader, name, 5)
    assert covered(leader, SWAP)
    leader.receive(Register(1), CLIENT)
    acked(leader, "d", 6)
    assert leader.replica.commit == 5, "of the old ensemble only A holds it"
    assert only(leader.receive(Commit(3, SWAP)), Registered)


def test_O4_abort_takes_the_old_node_back_in_a_new_epoch():
    leader = steady(standby_at=4)
    leader.receive(Prepare(3, SWAP))
    effects = leader.receive(Abort(4, ABC))
    assert only(effects, Aborted).epoch == 4
    assert leader.replica.log.headers[-1].epoch == 4
    assert lead_of(leader).cursors[D].standby
    acked(leader, "c", 6)
    assert leader.replica.commit == 6


def test_O4_abort_is_idempotent():
    leader = steady()
    leader.receive(Prepare(3, CONTRACT))
    leader.receive(Abort(4, ABC))
    end = leader.replica.log.end
    assert only(leader.receive(Abort(4, ABC)), Aborted).epoch == 4
    assert leader.replica.log.end == end


def test_O4_abort_of_what_is_committed_is_refused():
    leader = steady()
    leader.receive(Prepare(3, CONTRACT))
    acked(leader, "b", 5)
    covered(leader, CONTRACT)
    leader.receive(Commit(3, CONTRACT))
    assert isinstance(refusal(leader.receive(Abort(4, ABC))), Illegal)


def test_O4_a_leader_that_restarts_in_a_change_is_fenced_at_its_epoch():
    leader = steady()
    leader.receive(Prepare(3, CONTRACT))
    leader.restart()
    assert (leader.replica.role, leader.replica.epoch, leader.replica.led) == (Role.FENCED, 3, 3)


# --- T12: the new node -------------------------------------------------------------------------


def test_T12_a_node_that_is_no_standby_is_not_promoted():
    assert isinstance(refusal(steady().receive(Prepare(3, SWAP))), NotReady)


def test_T12_a_lagging_standby_is_not_promoted():
    leader = steady(standby_at=1, limits=Limits(standby_lag_entries_max=2))
    assert refusal(leader.receive(Prepare(3, SWAP))) == StandbyLagging(3)


def test_T12_a_standby_counts_only_from_prepare_on_and_in_the_final_ensemble_only():
    leader = steady(holders="b", standby_at=4)
    leader.receive(Register(1), CLIENT)
    acked(leader, "d", 5)
    assert leader.replica.commit == 4
    leader.receive(Prepare(3, SWAP))
    acked(leader, "d", 6)
    assert leader.replica.commit == 4, "D is no member of the ensemble in force"
    assert covered(leader, SWAP)


# --- hand-over ---------------------------------------------------------------------------------


def test_writes_are_paused_until_the_target_has_caught_up():
    leader = steady(holders="b")
    assert only(leader.receive(PauseWrites(2, C)), WritesPaused).caught_up is False
    assert isinstance(refusal(leader.receive(Register(1), CLIENT)), NotReady)
    acked(leader, "c", 4)
    assert only(leader.receive(PauseWrites(2, C)), WritesPaused).caught_up is True


def test_a_pause_is_bounded():
    leader = steady()
    leader.receive(PauseWrites(2, C))
    leader.now_ms += Limits().pause_ms
    assert refusal(leader.receive(Register(1), CLIENT)) is None
