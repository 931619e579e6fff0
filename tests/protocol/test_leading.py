"""Leading: how an epoch begins, what commits, who counts, and how it ends."""

import pytest

from protocol.cluster import Cluster
from protocol.harness import (
    CLIENT,
    acked,
    aftermaths,
    chain,
    fenced,
    fenced_answer,
    history_of,
    lead_of,
    leading,
    only,
    refusal,
    restarted,
    sent,
    session_at,
)
from shardlog.protocol.effects import (
    Barrier,
    Limits,
    Send,
    SendEntries,
    ServeRead,
    Sync,
    TrimLog,
    TruncateLog,
    WriteEntries,
    WriteSuperblock,
)
from shardlog.protocol.entry import Kind, Member
from shardlog.protocol.failures import (
    BelowCommit,
    LostDisk,
    NotLeader,
    OffsetGap,
    SessionUnknown,
    StaleEpoch,
    UnknownMember,
    WrongRole,
)
from shardlog.protocol.history import Span
from shardlog.protocol.messages import (
    Ack,
    AddFollower,
    Announce,
    Append,
    Appended,
    BecameLeader,
    BecomeLeader,
    ClientRefused,
    Entries,
    Fence,
    FenceAnswer,
    FollowerAdded,
    Heartbeat,
    Kept,
    Progress,
    Read,
    Refused,
    Register,
    Registered,
    StatusReport,
    StatusRequest,
    Trim,
)
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.states import Role

A, B, C, D = (Member(node, 1) for node in "abcd")
LOG = chain([1, 1, 1])


def kinds(effects):
    return [type(each) for each in effects if not isinstance(each, Send)]


def to_lead(node, epoch=2, headers=LOG):
    log = node.replica.log
    kept = Kept(history_of(headers), len(headers), headers[-1].checksum if headers else 0)
    assert log.end >= len(headers)
    return BecomeLeader(epoch, (A,), QuorumPolicy(), kept, (), ())


def ready(headers=LOG, epoch=2):
    """A, Fenced at `epoch`."""
    node = restarted("a", headers)
    node.receive(Fence(epoch))
    return node


# --- becoming leader ---------------------------------------------------------------------------


def test_O1_it_is_written_that_we_lead_before_we_say_so():
    node = ready()
    effects = node.take(to_lead(node))
    assert kinds(effects) == [Barrier, WriteSuperblock, Sync]
    block = only(effects, WriteSuperblock).superblock
    assert (block.led, block.history) == (2, (Span(1, 0), Span(2, 3)))
    assert not sent(effects, BecameLeader)


def test_O1_the_epoch_is_opened_by_an_entry_and_then_announced():
    node = ready()
    effects = node.receive(to_lead(node))
    opening = only(effects, WriteEntries).entries[0].header
    assert (opening.epoch, opening.base, opening.kind) == (2, 3, Kind.EPOCH_START)
    assert kinds(effects)[-2:] == [WriteEntries, Sync]
    assert only(effects, BecameLeader).epoch == 2
    assert isinstance(effects[-1], Send), "said only when the entry is durable"


def test_O1_a_crash_before_the_sync_leaves_a_replica_that_may_still_be_asked_or_never_leads():
    node = ready()
    led = {again.replica.led for again in aftermaths(node, to_lead(node))}
    assert led == {0, 2}


@pytest.mark.parametrize("epoch", [1, 3])
def test_O1_only_while_fenced_at_exactly_that_epoch(epoch):
    node = ready()
    expected = StaleEpoch(2) if epoch < 2 else WrongRole(Role.FENCED, 2)
    assert refusal(node.receive(to_lead(node, epoch))) == expected


def test_O1_a_restarted_leader_never_leads_its_epoch_again():
    node = leading(LOG)
    node.restart()
    again = to_lead(node, headers=LOG)
    assert refusal(node.receive(again)) == WrongRole(Role.FENCED, 2)


def test_O1_asked_twice_it_says_again_that_it_leads():
    node = ready()
    node.receive(to_lead(node))
    end = node.replica.log.end
    assert only(node.receive(to_lead(node)), BecameLeader).epoch == 2
    assert node.replica.log.end == end


def test_O1_what_is_not_kept_is_cut_durably_first():
    node = ready()
    effects = node.take(to_lead(node, headers=LOG[:2]))
    assert kinds(effects) == [TruncateLog, Barrier, Barrier, WriteSuperblock, Sync]
    assert only(effects, TruncateLog).end == 2


def test_O1_a_leader_gives_up_nothing_committed():
    node = restarted("a", LOG, commit=3)
    node.receive(Fence(2))
    assert refusal(node.receive(to_lead(node, headers=LOG[:2]))) == BelowCommit(3)


# --- O3, N10: the commit rule ------------------------------------------------------------------


def test_O3_raft_figure_8():
    """An older entry on a quorum is not committed; with the epoch's own entry it is."""
    leader = leading(LOG, names="abcde")
    acked(leader, "b", 3)
    acked(leader, "c", 3)
    assert leader.replica.commit == 0
    acked(leader, "b", 4)
    assert leader.replica.commit == 0
    acked(leader, "c", 4)
    assert leader.replica.commit == 4


def test_N10_older_entries_commit_on_an_idle_shard():
    leader = leading(LOG)
    assert leader.replica.log.headers[-1].epoch == 2
    acked(leader, "b", leader.replica.log.end)
    assert leader.replica.commit == 4 > len(LOG)


def test_O3_older_entries_commit_on_an_idle_shard():
    cluster = Cluster()
    cluster.create()
    cluster.cut = {("b", "a"), ("c", "a")}
    a = cluster.elect(1, "abc")
    assert a.replica.commit == 0
    cluster.cut.clear()
    leader = cluster.elect(2, "abc")
    assert [header.epoch for header in leader.replica.log.headers] == [1, 2]
    assert leader.replica.commit == 2


def test_O3_the_leader_counts_itself_only_after_its_own_sync():
    leader = leading(names="a")
    session = only(leader.receive(Register(1), CLIENT), Registered).session
    effects = leader.take(Append(session, 1, 1, b"x", 1), CLIENT)
    assert not sent(effects, Appended)
    assert only(leader.finish(effects), Appended).base == leader.replica.log.end - 1


def test_O3_followers_may_commit_before_the_leaders_own_sync():
    leader = leading(LOG)
    acked(leader, "b", 4)
    acked(leader, "c", 4)
    effects = leader.take(Register(1), CLIENT)
    assert {each.to for each in sent(effects, SendEntries)} == {B, C}
    assert not acked(leader, "b", 5)
    assert only(acked(leader, "c", 5), Registered).session == session_at(leader, 4)


def test_O3_nobody_is_answered_before_the_commit():
    leader = leading(LOG)
    acked(leader, "b", 4)
    assert not sent(leader.receive(Register(1), CLIENT), Registered)
    assert only(acked(leader, "b", 5), Registered).session == session_at(leader, 4)


def test_an_ack_of_another_epoch_counts_for_nothing():
    leader = leading(LOG)
    leader.receive(Ack(1, 4, 4, 0), B)
    assert leader.replica.commit == 0


# --- O9: apply and read ------------------------------------------------------------------------


def test_O9_what_is_not_committed_is_not_applied():
    leader = leading(LOG)
    acked(leader, "b", 4)
    leader.receive(Register(1), CLIENT)
    assert leader.replica.sessions.applied == leader.replica.commit == 4
    assert not leader.replica.sessions.sessions
    assert lead_of(leader).tip.applied == 5, "but it admits by the whole log"


def test_O9_a_restart_applies_up_to_the_commit_offset():
    node = restarted("b", chain([1, 1, 1], kind=Kind.REGISTER), commit=2)
    assert node.replica.sessions.applied == 2
    assert set(node.replica.sessions.sessions) == {0, 1}


def test_O9_a_read_waits_until_a_quorum_has_echoed_a_later_heartbeat():
    leader = leading(LOG)
    acked(leader, "b", 4)
    effects = leader.receive(Read(7, 0, 9), CLIENT)
    beat = sent(effects, Heartbeat)[-1].beat
    assert not sent(effects, ServeRead)
    assert not sent(acked(leader, "b", 4, beat - 1), ServeRead)
    served = only(acked(leader, "b", 4, beat), ServeRead)
    assert [each.base for each in served.headers] == [0, 1, 2]
    assert served.commit == 4


def test_O9_nothing_beyond_the_commit_offset_is_read():
    leader = leading(LOG)
    acked(leader, "b", 4)
    leader.receive(Register(1), CLIENT)
    leader.receive(Append(session_at(leader, 4), 1, 1, b"x", 1), CLIENT)
    beat = sent(leader.receive(Read(7, 3, 9), CLIENT), Heartbeat)[-1].beat
    assert only(acked(leader, "b", 4, beat), ServeRead).headers == ()


def test_O9_a_new_leader_reads_nothing_before_it_has_committed_in_its_tenure():
    """It may not know yet what its predecessor had committed."""
    leader = leading(LOG)
    acked(leader, "b", 3)
    beat = sent(leader.receive(Read(7, 0, 9), CLIENT), Heartbeat)[-1].beat
    assert not sent(acked(leader, "b", 3, beat), ServeRead)
    assert sent(acked(leader, "b", 4, beat), ServeRead)


# --- N5, N7, N8: followers ---------------------------------------------------------------------


def test_N5_nothing_is_sent_to_a_follower_that_has_not_accepted_the_announcement():
    leader = leading(LOG)
    acked(leader, "b", 4)
    effects = leader.receive(Register(1), CLIENT)
    assert [each.to for each in sent(effects, SendEntries)] == [B]


def test_N5_an_announcement_that_gets_no_answer_is_repeated():
    leader = leading(LOG)
    assert {each.epoch for each in sent(leader.tick(200), Announce)} == {2}


def test_N5_the_announced_cut_is_where_the_logs_part():
    leader = ready()
    told = fenced_answer("b", chain([0, 0]))
    lead = to_lead(leader)
    message = BecomeLeader(2, (A, B, C), lead.quorum, lead.kept, (), (told,))
    assert only(leader.receive(message), Announce).cut == 0


def test_N7_only_what_is_missing_is_streamed():
    cluster = Cluster(limits=Limits(batch_entries_max=2, inflight_entries_max=4))
    cluster.create()
    cluster.elect(1, "abc")
    session = cluster.register()
    cluster.append(session, 1, b"x" * 10)
    cluster.kill("c")
    for request in range(2, 12):
        cluster.append(session, request, b"x" * request)
    cluster.revive("c")
    before = len(cluster.delivered)
    cluster.run(500)
    fed = [
        entry
        for each in cluster.delivered[before:]
        if each.dst == "c" and isinstance(each.message, Entries)
        for entry in each.message.entries
    ]
    assert cluster.nodes["c"].replica.log.headers == cluster.leader().replica.log.headers
    assert sum(len(entry.body) for entry in fed) == sum(range(2, 12))


def test_N8_a_leader_that_is_told_of_a_higher_epoch_steps_down():
    leader = leading(LOG)
    acked(leader, "b", 4)
    leader.receive(Register(7), CLIENT)
    effects = leader.receive(Refused("Heartbeat", 3, StaleEpoch(3)), B)
    assert leader.replica.role is Role.FENCED
    assert only(effects, ClientRefused).refusal == NotLeader(None)


def test_N8_a_leader_that_is_fenced_dismisses_its_clients():
    leader = leading(LOG)
    acked(leader, "b", 4)
    leader.receive(Register(7), CLIENT)
    effects = leader.receive(Fence(3))
    assert only(effects, ClientRefused).refusal == NotLeader(None)
    assert only(effects, FenceAnswer).end == 5


def test_N8_a_gap_moves_the_cursor_back():
    leader = leading(LOG, limits=Limits(batch_entries_max=1))
    acked(leader, "b", 2)
    effects = leader.receive(Refused("Entries", 2, OffsetGap(3)), B)
    assert [each.headers[0].base for each in sent(effects, SendEntries)] == [3]


def test_M7_a_stepped_down_leader_answers_a_fence_as_it_will_after_a_restart():
    leader = leading(LOG)
    acked(leader, "b", 4)
    leader.receive(Refused("Heartbeat", 3, StaleEpoch(3)), B)
    before = leader.answer()
    leader.restart()
    assert leader.answer() == before


# --- O2, T12: cursors --------------------------------------------------------------------------


def test_O2_a_late_fencer_is_added_and_announced_to():
    leader = leading(LOG, silent="c")
    effects = leader.receive(AddFollower(2, fenced_answer("c", LOG), standby=False))
    assert only(effects, FollowerAdded).member == C
    assert only(effects, Announce).epoch == 2


def test_O2_a_stranger_is_not_added():
    leader = leading(LOG)
    assert refusal(leader.receive(AddFollower(2, fenced_answer("d", LOG), False))) == UnknownMember(
        D
    )


def test_T12_a_standby_is_fed_and_never_counted():
    leader = leading(LOG)
    leader.receive(AddFollower(2, fenced_answer("d", LOG), standby=True))
    effects = leader.receive(Progress(2, 3), D)
    assert [each.to for each in sent(effects, SendEntries)] == [D]
    leader.receive(Progress(2, 4), D)
    acked(leader, "d", 4)
    assert leader.replica.commit == 0


def test_V9_progress_of_a_follower_is_not_counted():
    leader = leading(LOG)
    leader.receive(Progress(2, 4), B)
    leader.receive(Progress(2, 4), C)
    assert leader.replica.commit == 0


# --- T5: rule 15 -------------------------------------------------------------------------------


def beaten(leader):
    """A heartbeat: its number."""
    return max(each.beat for each in sent(leader.tick(60), Heartbeat))


def test_T5_rule_15_a_follower_that_comes_back_below_its_last_ack_has_lost_its_disk():
    leader = leading(LOG)
    acked(leader, "b", 4)
    acked(leader, "b", 3, beaten(leader))
    report = only(leader.receive(StatusRequest(2)), StatusReport)
    assert [each.lost for each in report.cursors if each.member == B] == [True]
    assert refusal(leader.receive(AddFollower(2, fenced_answer("b", LOG), False))) == LostDisk(B, 4)


def test_T5_rule_15_a_late_ack_is_not_a_lost_disk():
    leader = leading(LOG)
    acked(leader, "b", 4)
    acked(leader, "b", 3)
    report = only(leader.receive(StatusRequest(2)), StatusReport)
    assert [each.lost for each in report.cursors if each.member == B] == [False]


def test_T5_rule_15_a_lost_disk_is_no_longer_counted():
    leader = leading(LOG)
    acked(leader, "b", 4)
    leader.receive(Register(1), CLIENT)
    acked(leader, "b", 3, beaten(leader))
    acked(leader, "b", 5)
    assert leader.replica.commit == 4


# --- T6: exactly once --------------------------------------------------------------------------


def test_T6_a_retry_gets_the_same_offset_and_adds_nothing():
    cluster = Cluster()
    cluster.create()
    cluster.elect(1, "abc")
    session = cluster.register()
    first = cluster.append(session, 1)
    assert cluster.append(session, 1) == first
    assert cluster.leader().replica.log.end == first.base + 1


def test_T6_a_retry_after_a_failover_gets_the_same_offset():
    """The reply is dropped, the leader dies, the client asks the next one."""
    cluster = Cluster()
    cluster.create()
    cluster.elect(1, "abc")
    session = cluster.register()
    cluster.cut.add(("a", CLIENT))
    assert cluster.append(session, 1, b"once") is None
    cluster.kill("a")
    leader = cluster.elect(2, "bc")
    again = cluster.append(session, 1, b"once")
    bodies = [entry.body for entry in leader.disk.entries.values()]
    assert bodies.count(b"once") == 1
    assert leader.disk.entries[again.base].body == b"once"


def test_T6_a_retry_of_what_is_not_committed_yet_waits_with_the_first_try():
    leader = leading(LOG)
    acked(leader, "b", 4)
    leader.receive(Register(1), CLIENT)
    acked(leader, "b", 5)
    ask = Append(session_at(leader, 4), 1, 1, b"x", 1)
    leader.receive(ask, CLIENT)
    assert not sent(leader.receive(ask, CLIENT), Appended)
    assert leader.replica.log.end == 6
    assert only(acked(leader, "b", 6), Appended).base == 5


def test_T7_eviction_is_told_to_the_client():
    cluster = Cluster(limits=Limits(sessions_max=1))
    cluster.create()
    cluster.elect(1, "abc")
    old = cluster.register()
    cluster.register()
    answer = cluster.append(old, 1)
    assert answer.refusal == SessionUnknown(old)
    cluster.run(100)
    tables = {node.replica.sessions.at_rest() for node in cluster.nodes.values()}
    assert len(tables) == 1


# --- M5: trimming ------------------------------------------------------------------------------


def test_M5_a_leader_trims_at_an_entry_and_never_above_what_is_committed():
    leader = leading(LOG)
    acked(leader, "b", 4)
    leader.receive(Register(1), CLIENT)
    effects = leader.receive(Trim(2, 99))
    assert only(effects, TrimLog).first == leader.replica.log.first == 3
    assert leader.replica.log.end == 5


def test_M5_a_leader_trims_nothing_uncommitted():
    leader = leading(LOG)
    assert not sent(leader.receive(Trim(2, 99)), TrimLog)


def test_M5_what_cannot_be_trimmed_yet_is_trimmed_when_it_can():
    leader = leading(LOG)
    assert not sent(leader.receive(Trim(2, 3)), TrimLog)
    effects = acked(leader, "b", 4)
    assert only(effects, TrimLog).first == leader.replica.log.first == 3
    assert leader.replica.lead is not None
    assert leader.replica.lead.trimmed == 0


def test_a_fenced_replica_hands_clients_on_to_nobody():
    assert refusal(fenced().receive(Register(1), CLIENT)) == NotLeader(None)
