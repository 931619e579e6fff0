"""Following: announced first, cut, adopted, fed in order; standbys and syncs."""

from contextlib import suppress

import pytest

from protocol.cluster import Cluster
from protocol.harness import (
    LEADER,
    LIMITS,
    aftermaths,
    chain,
    entries,
    fenced,
    follower,
    history_of,
    only,
    refusal,
    sent,
    snapshot,
)
from shardlog.protocol.choice import Possible
from shardlog.protocol.effects import (
    Barrier,
    Limits,
    ResetLog,
    Send,
    Sync,
    TruncateLog,
    WriteEntries,
    WriteSuperblock,
)
from shardlog.protocol.entry import EntryId, Member
from shardlog.protocol.failures import (
    BelowCommit,
    DifferentEntry,
    DivergenceMismatch,
    Illegal,
    ImpossibleState,
    NotReady,
    OffsetGap,
    StaleEpoch,
    WrongParent,
    WrongRole,
)
from shardlog.protocol.history import OPEN_END, Span, epoch_at
from shardlog.protocol.messages import (
    Ack,
    Announce,
    Entries,
    Fence,
    FenceAnswer,
    Fetch,
    Fetched,
    Heartbeat,
    InstallSnapshot,
    Progress,
    Snapshot,
    SnapshotInstalled,
    SnapshotOffer,
    SnapshotRequest,
    Trim,
)
from shardlog.protocol.sessions import Session
from shardlog.protocol.states import Role

LOG = chain([1, 1, 1, 1])
STRANGER = Member("x", 1)


def kinds(effects):
    return [type(each) for each in effects if not isinstance(each, Send)]


NEXT = (Span(1, 0), Span(2, 2))


def announcement(epoch=2, history=NEXT, cut=2, **fields):
    message = {"commit": 0, "standby": False, "snapshot": None} | fields
    return Announce(epoch, history, 0, cut, **message)


def fed(headers, commit=0, first=0, epoch=1):
    return Entries(epoch, entries(headers), commit, first)


# --- N5: announce before append ----------------------------------------------------------------


def test_N5_nothing_is_taken_before_the_announcement():
    node = fenced()
    effects = node.receive(fed(LOG), LEADER)
    assert node.replica.log.end == 0
    assert not sent(effects, Ack)
    assert only(effects, FenceAnswer).end == 0, "it tells what it holds instead"


def test_N5_nothing_is_taken_of_an_epoch_that_was_not_announced():
    node = follower(LOG[:2])
    assert refusal(node.receive(fed(LOG[2:], epoch=2), LEADER)) == WrongRole(Role.FOLLOWER, 1)
    assert node.replica.log.end == 2


def test_N5_nothing_is_taken_from_another_than_the_announced_leader():
    node = follower(LOG[:2])
    assert isinstance(refusal(node.receive(fed(LOG[2:]), STRANGER)), Illegal)
    assert node.replica.log.end == 2


def test_N5_a_mismatch_is_refused():
    node = follower(LOG)
    node.receive(Fence(2))
    assert refusal(node.receive(announcement(cut=3), LEADER)) == DivergenceMismatch(3, 2)
    assert (node.replica.role, node.replica.log.end) == (Role.FENCED, 4)


def test_N5_below_commit_is_refused():
    node = follower(LOG, commit=3)
    node.receive(Fence(2))
    assert refusal(node.receive(announcement(), LEADER)) == BelowCommit(3)
    assert node.replica.log.end == 4


def test_N5_a_late_announcement_is_told_the_epoch():
    node = follower(LOG)
    node.receive(Fence(3))
    assert refusal(node.receive(announcement(), LEADER)) == StaleEpoch(3)


def test_N5_a_duplicate_announcement_cuts_nothing():
    node = follower(LOG)
    node.receive(Fence(2))
    node.receive(announcement(), LEADER)
    new = chain([2, 2], start=2, parent=LOG[1].checksum)
    node.receive(fed(new, epoch=2), LEADER)
    effects = node.receive(announcement(), LEADER)
    assert not sent(effects, TruncateLog)
    assert only(effects, Ack).end == node.replica.log.end == 4


def test_N5_two_voices_in_one_epoch_are_not_both_followed():
    node = follower(LOG)
    again = announcement(epoch=1, history=history_of(LOG), cut=4)
    assert refusal(node.receive(again, STRANGER)) == WrongRole(Role.FOLLOWER, 1)
    assert node.replica.leader == LEADER


# --- N6: truncate, adopt, stream ---------------------------------------------------------------


def test_N6_truncate_then_adopt_then_ack():
    node = follower(LOG)
    node.receive(Fence(2))
    effects = node.take(announcement(), LEADER)
    assert kinds(effects) == [TruncateLog, Barrier, Barrier, WriteSuperblock, Sync]
    assert only(effects, TruncateLog).end == 2
    assert only(effects, WriteSuperblock).superblock.history == (Span(1, 0), Span(2, 2))
    assert not sent(effects, Ack), "nothing is said on faith"
    assert only(node.finish(effects), Ack) == Ack(2, 2, 2, 0)


def test_N6_a_crash_in_any_gap_leaves_a_log_that_fits_its_history():
    node = follower(LOG)
    node.receive(Fence(2))
    ends = set()
    for again in aftermaths(node, announcement(), LEADER):
        r = again.replica
        assert all(epoch_at(r.history, header.base) == header.epoch for header in r.log.headers)
        assert (r.epoch, r.role) == (2, Role.FENCED)
        ends.add((r.log.end, r.history))
    old, new = history_of(LOG), (Span(1, 0), Span(2, 2))
    assert ends == {(4, old), (2, old), (2, new)}


def test_N6_the_announcement_is_taken_up_again_after_a_crash_in_any_gap():
    node = follower(LOG)
    node.receive(Fence(2))
    for again in aftermaths(node, announcement(), LEADER):
        if again.replica.log.end == 4:
            assert only(again.receive(announcement(), LEADER), Ack).end == 2
        else:
            assert again.answer().end == 2, "the leader computes the cut anew"


def test_N6_nothing_is_cut_when_nothing_parts():
    node = follower(LOG)
    node.receive(Fence(2))
    effects = node.receive(announcement(history=(Span(1, 0), Span(2, 6)), cut=4), LEADER)
    assert not sent(effects, TruncateLog)
    assert only(effects, Ack).end == 4


# --- N8, T1: no gaps, no overwrites, the right parent ------------------------------------------


def test_N8_a_gap_is_refused():
    node = follower(LOG[:1])
    assert refusal(node.receive(fed(LOG[2:]), LEADER)) == OffsetGap(1)
    assert node.replica.log.end == 1


def test_N8_nothing_is_overwritten():
    node = follower(LOG)
    other = chain([1, 2])
    assert refusal(node.receive(fed(other[1:]), LEADER)) == DifferentEntry(EntryId(1, 1))
    assert node.replica.log.headers == LOG


def test_N8_a_stale_leader_is_told_the_epoch():
    node = follower(LOG[:1])
    node.receive(Fence(2))
    assert refusal(node.receive(fed(LOG[1:]), LEADER)) == StaleEpoch(2)
    assert refusal(node.receive(Heartbeat(1, 0, 0, 1, True), LEADER)) == StaleEpoch(2)


def test_T1_the_wrong_parent_is_refused():
    node = follower(LOG[:2])
    other = chain([1, 2, 2])
    effects = node.receive(fed(other[2:]), LEADER)
    assert refusal(effects) == WrongParent(EntryId(2, 2))
    assert not sent(effects, WriteEntries)


def test_T1_a_duplicate_with_the_same_checksum_is_acked():
    node = follower(LOG)
    effects = node.receive(fed(LOG), LEADER)
    assert refusal(effects) is None
    assert not sent(effects, WriteEntries)
    assert only(node.receive(Heartbeat(1, 0, 0, 1, True), LEADER), Ack).end == 4


@pytest.mark.parametrize(
    "misfit", [chain([1, 2])[1:], chain([1, 1, 2, 2, 2])[4:]], ids=["same offset", "wrong parent"]
)
def test_T1_what_comes_with_a_misfit_is_not_believed(misfit):
    """Its log is not the leader's: the leader's commit offset says nothing about it."""
    node = follower(LOG, commit=1)
    assert refusal(node.receive(fed(misfit, commit=4), LEADER)) is not None
    assert node.replica.commit == 1


# --- T8: learning the commit offset ------------------------------------------------------------


def test_T8_the_commit_offset_comes_with_the_next_entries():
    node = follower(LOG[:2])
    node.receive(fed(LOG[2:], commit=2), LEADER)
    assert node.replica.commit == 2


def test_T8_the_commit_offset_comes_with_a_heartbeat():
    node = follower(LOG)
    node.receive(Heartbeat(1, 3, 0, 1, True), LEADER)
    assert node.replica.commit == 3


def test_T8_no_further_than_the_own_log_reaches():
    node = follower(LOG[:2])
    node.receive(Heartbeat(1, 4, 0, 1, True), LEADER)
    assert node.replica.commit == 2


def test_T8_an_idle_leader_tells_everyone():
    cluster = Cluster()
    cluster.create()
    leader = cluster.elect(1, "abc")
    session = cluster.register()
    cluster.append(session, 1)
    cluster.run(100)
    assert {node.replica.commit for node in cluster.nodes.values()} == {leader.replica.log.end}


# --- T12: standbys -----------------------------------------------------------------------------


def test_T12_a_standby_tells_where_it_is_and_never_acks():
    node = follower(LOG[:2], standby=True)
    effects = node.receive(fed(LOG[2:]), LEADER)
    effects += node.receive(Heartbeat(1, 0, 0, 1, True), LEADER)
    assert node.replica.role is Role.STANDBY
    assert not sent(effects, Ack)
    assert {each.at for each in sent(effects, Progress)} == {4}


# --- V8, V9: installing a snapshot -------------------------------------------------------------

SESSIONS = (Session(1, 2, (2, 3), 3),)
WANTED = Snapshot(LEADER, history_of(LOG), 1, LOG[0].checksum, 4, LOG[-1].checksum, SESSIONS)


def installing(limits=LIMITS):
    """A new node that has been told to install WANTED, and asks for it."""
    node = fenced("d", limits=limits)
    node.receive(InstallSnapshot(1, WANTED))
    return node


def test_V8_the_log_is_reset_before_anything_is_fetched():
    node = fenced("d")
    effects = node.take(InstallSnapshot(1, WANTED))
    assert kinds(effects) == [ResetLog, Barrier, Barrier, WriteSuperblock, Sync]
    assert only(effects, WriteSuperblock).superblock.syncing == WANTED


def test_V8_only_the_negotiated_source_is_asked():
    node = installing()
    effects = node.tick(1000)
    asked = only(effects, Fetch)
    assert (asked.start, asked.end) == (1, 4)
    assert [each.envelope.dst for each in effects if isinstance(each, Send)] == ["a"]


def test_V8_only_the_negotiated_source_is_believed():
    node = installing()
    before = snapshot(node.replica)
    node.receive(Fetched(1, entries(LOG[1:])), STRANGER)
    assert snapshot(node.replica) == before


def test_V8_entries_come_in_order():
    node = installing()
    node.receive(Fetched(1, entries(LOG[2:])), LEADER)
    assert node.replica.log.end == 1
    node.receive(Fetched(1, entries(LOG[1:2])), LEADER)
    assert node.replica.log.end == 2


def context(node):
    return node.replica.commit, node.replica.sessions.at_rest(), node.replica.syncing


def test_V8_the_commit_context_comes_last():
    node = installing()
    node.receive(Fetched(1, entries(LOG[1:3])), LEADER)
    assert context(node) == (1, (), WANTED)
    effects = node.take(Fetched(1, entries(LOG[3:])), LEADER)
    assert context(node) == (1, (), WANTED), "not durable yet"
    effects = node.finish(effects)
    assert context(node) == (4, SESSIONS, None)
    last = kinds(effects)[-3:]
    assert last == [Barrier, WriteSuperblock, Sync]


def test_V8_what_does_not_end_in_the_promised_entry_is_not_installed():
    """The same chain up to the last entry, then another: the source does not hold the snapshot."""
    node = installing()
    other = chain([1], start=3, parent=LOG[2].checksum, count=1, body=b"another")
    with suppress(ImpossibleState):
        node.receive(Fetched(1, (*entries(LOG[1:3]), *entries(other))), LEADER)
    assert node.replica.syncing == WANTED


@pytest.mark.parametrize("cut", range(1, 9))
def test_V8_a_sync_that_is_cut_at_any_message_goes_on_after_a_restart(cut):
    cluster = Cluster("abcd", limits=Limits(batch_entries_max=2))
    cluster.create()
    ensemble = cluster.ensemble[:3]
    leader = cluster.elect(1, "abc", ensemble)
    session = cluster.register()
    for request in range(1, 8):
        cluster.append(session, request)
    cluster.run(100)
    offer = only(cluster.tell(leader.name, SnapshotRequest(1)), SnapshotOffer)
    mark = len(cluster.lines)

    def kill_at_the_nth(line):
        mine = [each for each in cluster.lines[mark:] if "d" in each]
        if len(mine) == cut:
            cluster.kill("d")

    cluster.on_line = kill_at_the_nth
    cluster.tell("d", InstallSnapshot(1, offer.snapshot))
    cluster.run(200)
    cluster.on_line = lambda line: None
    node = cluster.nodes["d"]
    cluster.revive("d")
    assert node.replica.log.headers == leader.replica.log.headers[: len(node.replica.log.headers)]
    cluster.tell("d", InstallSnapshot(1, offer.snapshot))
    cluster.run(500)
    again = cluster.tell("d", InstallSnapshot(1, offer.snapshot))
    assert only(again, SnapshotInstalled).end == node.replica.log.end == offer.snapshot.end
    assert node.replica.sessions.at_rest() == leader.replica.sessions.at_rest()


def trimmed_past(cut_at=8):
    """A leads B and C; C was away while the log was trimmed past its end."""
    cluster = Cluster(limits=Limits(batch_entries_max=2, inflight_entries_max=2))
    cluster.create()
    cluster.elect(1, "abc")
    session = cluster.register()
    cluster.kill("c")
    for request in range(1, 12):
        cluster.append(session, request)
    cluster.run(100)
    cluster.tell("a", Trim(1, cut_at))
    cluster.revive("c")
    return cluster


def test_V9_a_syncing_replica_never_acks_and_then_does():
    cluster = trimmed_past()
    c = cluster.nodes["c"]
    acks = []

    def watch(line):
        if line == "c → a: Ack" and c.replica.syncing:
            acks.append(line)

    cluster.on_line = watch
    cluster.run(1000)
    assert "c → a: Progress" in cluster.lines
    assert not acks
    assert c.replica.log.headers == cluster.nodes["a"].replica.log.headers
    assert cluster.lines[-1].endswith("Ack")


def syncing():
    """C in the middle of a sync from A."""
    cluster = trimmed_past()
    fed = []

    def throttle(envelope):
        if envelope.dst == "c" and isinstance(envelope.message, Entries):
            fed.append(envelope)
            return len(fed) > 1
        return False

    cluster.hold = throttle
    cluster.run(500)
    c = cluster.nodes["c"]
    assert c.replica.syncing
    assert 8 < c.replica.log.end < c.replica.syncing.end
    return cluster


def test_V9_a_syncing_replica_answers_a_fence_and_nacks_nothing_it_once_held():
    cluster = syncing()
    told = only(cluster.tell("c", Fence(2)), FenceAnswer)
    assert told.syncing
    assert not any(Possible(told).never_had(1, offset) for offset in range(8))


def test_V9_a_restart_in_the_middle_of_a_sync_does_not_end_it():
    cluster = syncing()
    cluster.kill("c")
    cluster.revive("c")
    assert cluster.nodes["c"].replica.syncing
    assert cluster.nodes["c"].answer().syncing


def test_V9_a_new_leader_negotiates_anew():
    cluster = syncing()
    cluster.kill("a")
    cluster.hold = lambda envelope: False
    leader = cluster.elect(2, "bc")
    assert leader.name == "b"
    cluster.run(1000)
    c = cluster.nodes["c"].replica
    assert c.syncing is None
    assert c.log.headers == leader.replica.log.headers[-len(c.log.headers) :]
    assert leader.replica.commit == leader.replica.log.end


def test_V9_a_syncing_replica_follows_nobody_without_a_snapshot():
    node = installing()
    plain = announcement(epoch=1, history=history_of(LOG), cut=1)
    assert isinstance(refusal(node.receive(plain, LEADER)), NotReady)


def test_V8_a_source_that_is_empty_has_nothing_to_install():
    node = fenced("d")
    nothing = Snapshot(LEADER, (), 0, 0, 0, 0, ())
    assert only(node.receive(InstallSnapshot(1, nothing)), SnapshotInstalled).end == 0
    assert node.replica.syncing is None


def test_V9_an_announcement_may_bring_the_snapshot():
    node = follower(LOG[:1])
    node.receive(Fence(2))
    later = Snapshot(LEADER, (Span(1, 0), Span(2, 3)), 3, LOG[2].checksum, 4, 9, ())
    message = announcement(history=later.history, cut=OPEN_END, snapshot=later)
    effects = node.receive(message, LEADER)
    assert only(effects, ResetLog).first == 3
    assert not sent(effects, Ack)
    assert only(effects, Progress).at == 3
