"""Identity, fences, and what survives a crash in the middle of them."""

import pickle
from dataclasses import replace

import pytest

from protocol.harness import (
    LEADER,
    Node,
    aftermaths,
    chain,
    crashes,
    entries,
    fenced,
    fenced_answer,
    follower,
    history_of,
    leading,
    only,
    refusal,
    restarted,
    sent,
)
from shardlog.protocol.effects import (
    Barrier,
    Format,
    Received,
    Send,
    Sync,
    Synced,
    TrimLog,
    TruncateLog,
    WriteSuperblock,
)
from shardlog.protocol.entry import Member
from shardlog.protocol.failures import NO_SPACE, NoReplica, NotReady, StaleEpoch, WrongRole
from shardlog.protocol.history import OPEN_END, Span
from shardlog.protocol.log import Mark
from shardlog.protocol.messages import (
    Ack,
    AddFollower,
    Announce,
    Create,
    Created,
    Destroy,
    Destroyed,
    Entries,
    Fence,
    FenceAnswer,
    Fetched,
    Heartbeat,
    InstallSnapshot,
    Progress,
    Snapshot,
    StatusReport,
    StatusRequest,
    Trim,
)
from shardlog.protocol.states import Role

LOG = chain([1, 1, 1])


def kinds(effects):
    return [type(each) for each in effects if not isinstance(each, Send)]


# --- N9: flush, persist, then answer -----------------------------------------------------------


def test_N9_a_fence_is_answered_only_after_its_sync():
    node = follower(LOG)
    effects = node.take(Fence(2))
    assert kinds(effects) == [Barrier, WriteSuperblock, Sync]
    assert only(effects, WriteSuperblock).superblock.epoch == 2
    assert not sent(effects, FenceAnswer)
    assert only(node.finish(effects), FenceAnswer).epoch == 2


def test_N9_an_answered_fence_survives_a_crash():
    node = follower(LOG)
    node.receive(Fence(2))
    node.restart()
    assert (node.replica.role, node.replica.epoch) == (Role.FENCED, 2)


def test_N9_a_crash_before_the_sync_leaves_the_old_epoch_or_the_new_and_no_answer():
    node = follower(LOG)
    epochs = {again.replica.epoch for again in aftermaths(node, Fence(2))}
    assert epochs == {1, 2}


def test_N9_entries_are_flushed_before_the_fence_is_written():
    node = follower(LOG[:1])
    late = node.step(Received(node.envelope(Entries(1, entries(LOG[1:]), 0, 0), LEADER)))
    fence = node.step(Received(node.envelope(Fence(2))))
    for landed in crashes([*late, *fence]):
        if sent(landed, WriteSuperblock):
            assert len(sent(landed, type(late[0]))) == 1, "a fence without what was before it"


def test_N9_entries_are_acked_only_after_their_sync():
    node = follower(LOG[:1])
    effects = node.take(Entries(1, entries(LOG[1:]), 0, 0), LEADER)
    meanwhile = node.take(Heartbeat(1, 0, 0, 1, True), LEADER)
    assert only([*effects, *meanwhile], Ack).end == 1
    assert only(node.finish(effects), Ack).end == 3


def test_N9_a_sync_of_an_earlier_epoch_acks_nothing():
    node = follower(LOG[:1])
    effects = node.take(Entries(1, entries(LOG[1:]), 0, 0), LEADER)
    node.receive(Fence(2))
    assert not sent(node.finish(effects), Ack)


def test_O1_a_fence_is_answered_again_only_while_still_fenced():
    node = fenced(epoch=2)
    assert only(node.receive(Fence(2)), FenceAnswer).epoch == 2
    node.receive(Announce(2, (Span(2, 0),), 0, OPEN_END, 0, False, None), LEADER)
    assert refusal(node.receive(Fence(2))) == WrongRole(Role.FOLLOWER, 2)


def test_O1_a_lower_epoch_is_told_the_higher_one():
    assert refusal(fenced(epoch=3).receive(Fence(2))) == StaleEpoch(3)


@pytest.mark.parametrize("standby", [False, True])
def test_O1_every_replica_restarts_fenced(standby):
    node = follower(LOG, standby=standby)
    node.restart()
    assert (node.replica.role, node.replica.epoch, node.replica.leader) == (Role.FENCED, 1, None)


# --- N1, N2: histories -------------------------------------------------------------------------


def test_N1_the_history_is_replaced_whole():
    node = follower(LOG)
    node.receive(Fence(4))
    new = (Span(1, 0), Span(2, 2), Span(4, 5))
    announce = Announce(4, new, 0, 2, 0, False, None)
    found = {again.replica.history for again in aftermaths(node, announce, LEADER)}
    assert found == {history_of(LOG), new}


def test_N2_the_reported_history_is_clipped_to_what_may_be_held():
    """Adopt, crash before any entry arrives."""
    node = follower(LOG)
    node.receive(Fence(2))
    node.receive(Announce(2, (Span(1, 0), Span(2, 5)), 0, 3, 0, False, None), LEADER)
    node.restart()
    assert node.replica.history == (Span(1, 0), Span(2, 5))
    assert node.answer().history == (Span(1, 0),)


@pytest.mark.parametrize("mark", [Mark.CORRUPT, Mark.FAULT])
def test_N2_what_cannot_be_read_is_reported(mark):
    told = restarted("b", chain([1, 2]), bad={1: mark}).answer()
    assert told.history == (Span(1, 0), Span(2, 1))
    assert told.may_end == 2
    assert told.slots[-1].mark is mark


# --- N11 ---------------------------------------------------------------------------------------


def test_N11_the_history_is_in_the_status_report():
    node = follower(chain([1, 2, 2]))
    report = only(node.receive(StatusRequest(1)), StatusReport)
    assert getattr(report, "history", None) == (Span(1, 0), Span(2, 1))


# --- M7, M5 ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {1: Mark.CORRUPT},
        {1: Mark.FAULT},
        {3: Mark.FAULT},
        {0: Mark.CORRUPT, 2: Mark.FAULT, 3: Mark.FAULT},
    ],
)
def test_M7_the_fence_answer_is_the_same_after_any_number_of_restarts(bad):
    node = restarted("b", chain([1, 1, 2, 2]), commit=2, bad=bad)
    told = {pickle.dumps(node.answer())}
    for _ in range(3):
        node.restart()
        told.add(pickle.dumps(node.answer()))
    assert len(told) == 1


def test_M7_a_restart_changes_nothing_in_a_fence_answer():
    node = follower(LOG, commit=2)
    before = only(node.receive(Fence(2)), FenceAnswer)
    node.restart()
    assert node.answer() == before


def test_M7_only_what_is_durable_is_told():
    """Fetched entries of a snapshot that come in behind a fence wait for a sync of their own."""
    node = fenced()
    wanted = Snapshot(LEADER, history_of(LOG), 0, 0, 3, LOG[-1].checksum, ())
    node.receive(InstallSnapshot(1, wanted))
    fence = node.take(Fence(1))
    fetched = node.take(Fetched(1, entries(LOG)), LEADER)
    token = next(effect.token for effect in fence if isinstance(effect, Sync))
    told = node.step(Synced(token))
    assert not sent(told, FenceAnswer)
    node.perform(told)
    answer = only(node.finish([*fetched, *told]), FenceAnswer)
    node.restart()
    assert answer.end <= node.replica.log.end


ORDERS = [
    Trim(2, 2),
    Heartbeat(2, 3, 2, 1, True),
    Entries(2, entries(LOG), 3, 2),
    Fence(2),
    Fence(3),
]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: f"{order}"[:12])
def test_M5_rule_19_nothing_is_cut_or_trimmed_while_fenced(order):
    node = follower(LOG, commit=2)
    effects = node.receive(Fence(2))
    effects += node.receive(order, LEADER)
    assert not sent(effects, TrimLog)
    assert not sent(effects, TruncateLog)
    assert node.replica.log.headers == LOG


def test_M5_but_for_what_an_announcement_orders():
    node = follower(LOG)
    node.receive(Fence(2))
    effects = node.receive(Announce(2, (Span(1, 0), Span(2, 1)), 0, 1, 0, False, None), LEADER)
    assert only(effects, TruncateLog).end == 1


def test_M5_a_follower_trims_what_its_leader_has_trimmed_once_the_table_is_kept():
    node = follower(LOG, commit=3)
    effects = node.receive(Heartbeat(1, 3, 2, 1, True), LEADER)
    assert kinds(effects) == [Barrier, WriteSuperblock, Barrier, TrimLog]
    assert only(effects, WriteSuperblock).superblock.sessions_at == 3
    assert node.replica.log.first == 2


def test_M5_nothing_is_trimmed_above_the_commit_offset():
    node = follower(LOG, commit=1)
    assert not sent(node.receive(Heartbeat(1, 1, 2, 1, True), LEADER), TrimLog)


# --- T5: identity ------------------------------------------------------------------------------


def test_T5_only_create_formats_a_replica():
    node = Node("b")
    effects = node.receive(Fence(1))
    assert refusal(effects) == NoReplica(0)
    assert not sent(effects, Format)
    assert node.replica.role is Role.NOT_MEMBER


def test_T5_a_wiped_volume_under_its_old_name_has_no_vote():
    node = Node("b")
    meant = replace(node.envelope(Fence(1)), dst_incarnation=7)
    effects = node.step(Received(meant))
    assert refusal(effects) == NoReplica(0, asked=7)
    assert node.replica.role is Role.NOT_MEMBER


def test_T5_another_incarnation_is_not_the_one_that_was_meant():
    node = fenced()
    meant = replace(node.envelope(Fence(2)), dst_incarnation=7)
    assert refusal(node.step(Received(meant))) == NoReplica(1, asked=7)
    assert node.replica.epoch == 1


def test_T5_a_replica_is_formatted_once():
    node = Node("b")
    assert only(node.receive(Create(), draw=5), Created) == Created(5)
    again = node.receive(Create(), draw=6)
    assert only(again, Created) == Created(5)
    assert not sent(again, Format)


def test_T5_a_replica_that_waits_for_room_says_so_when_it_is_asked_for_again():
    node = Node("b")
    effects = node.take(Create(), draw=5)
    node.replica.full = True
    again = node.take(Create(), draw=6)
    assert refusal(again) == NotReady(NO_SPACE)
    assert kinds(again) == []
    assert only(node.receive(StatusRequest(0)), StatusReport).full
    node.replica.full = False
    assert only(node.finish(effects), Created) == Created(5)
    assert only(node.receive(Create(), draw=7), Created) == Created(5)


def test_T5_one_that_was_destroyed_without_room_is_made_anew():
    node = follower(LOG)
    node.replica.full = True
    node.receive(Destroy())
    assert only(node.receive(Create(), draw=5), Created) == Created(5)


def test_T5_create_is_answered_only_after_its_sync():
    node = Node("b")
    effects = node.take(Create(), draw=5)
    assert kinds(effects) == [Format, Sync]
    assert not sent(effects, Created)


def test_T5_a_destroyed_replica_is_gone_and_may_be_created_anew():
    node = follower(LOG)
    effects = node.take(Destroy())
    assert not sent(effects, Destroyed)
    assert only(node.finish(effects), Destroyed) == Destroyed(1)
    node.restart()
    assert node.replica.role is Role.NOT_MEMBER
    node.receive(Create(), draw=2)
    assert (node.member, node.replica.log.end) == (Member("b", 2), 0)


def test_V9_a_report_tells_what_is_durable_at_a_follower_and_where_a_standby_is():
    leader = leading(LOG)
    leader.receive(AddFollower(2, fenced_answer("d", LOG), standby=True))
    leader.receive(Ack(2, 3, 4, 0), Member("b", 1))
    leader.receive(Ack(2, 0, 4, 0), Member("c", 1))
    leader.receive(Progress(2, 4), Member("d", 1))
    report = only(leader.receive(StatusRequest(2)), StatusReport)
    assert {each.member.node: each.acked for each in report.cursors} == {"b": 3, "c": 0, "d": 4}
