"""A new node's snapshot: begun under one leader, finished under another, damaged in between; and
what a leader trims because others have."""

from dataclasses import replace

from protocol.harness import (
    Node,
    acked,
    chain,
    entries,
    fenced,
    fenced_answer,
    history_of,
    leading,
    only,
    restarted,
    sent,
)
from shardlog.protocol.effects import ReadFailed, RewriteEntry, TruncateLog
from shardlog.protocol.entry import GENESIS_CHECKSUM, Header, Member
from shardlog.protocol.failures import BelowCommit, NotReady
from shardlog.protocol.history import Span
from shardlog.protocol.messages import (
    Ack,
    AddFollower,
    Announce,
    Fence,
    Fetch,
    Fetched,
    InstallSnapshot,
    Refused,
    Snapshot,
)

A, B = Member("a", 1), Member("b", 1)
OLD = chain([1, 1, 1, 2])
NEW = OLD[:2] + chain([3, 3, 3], start=2, parent=OLD[1].checksum)


def snapshot_of(source: Member, headers: list[Header], end: int | None = None) -> Snapshot:
    whole = headers[: len(headers) if end is None else end]
    return Snapshot(
        source,
        history_of(headers),
        0,
        GENESIS_CHECKSUM,
        whole[-1].end,
        whole[-1].checksum,
        (),
    )


def half_way() -> Node:
    """It has fetched all but the last entry of A's log."""
    node = fenced("d", epoch=2)
    node.receive(InstallSnapshot(2, snapshot_of(A, OLD)))
    node.receive(Fetched(2, entries(OLD[:3])), A)
    assert node.replica.log.headers == OLD[:3]
    return node


def test_V8_another_leaders_snapshot_keeps_only_the_common_prefix():
    node = half_way()
    effects = node.receive(InstallSnapshot(3, snapshot_of(B, NEW)))
    assert only(effects, TruncateLog).end == 2
    assert node.replica.log.headers == OLD[:2]
    asked = only(node.tick(1000), Fetch)
    assert (asked.start, asked.end) == (2, 5)
    node.receive(Fetched(3, entries(NEW[2:])), B)
    assert node.replica.log.headers == NEW
    assert node.replica.syncing is None
    assert node.replica.commit == 5


def test_V8_a_shorter_snapshot_of_the_same_history_is_there_already():
    node = half_way()
    node.receive(InstallSnapshot(3, snapshot_of(B, NEW, end=2)))
    assert node.replica.log.headers == OLD[:2]
    assert node.replica.syncing is None


def test_V8_what_decayed_meanwhile_is_fetched_again_before_it_counts_as_installed():
    node = half_way()
    node.step(ReadFailed(1))
    node.receive(Fetched(2, entries(OLD[3:])), A)
    assert node.replica.syncing is not None
    asked = only(node.tick(1000), Fetch)
    assert asked.start == 1
    effects = node.receive(Fetched(2, entries(OLD[1:2])), A)
    assert sent(effects, RewriteEntry)
    assert node.replica.syncing is None


def test_V8_nothing_committed_is_given_up_for_a_snapshot():
    node = half_way()
    node.replica.commit = 3
    node.checked = 3
    effects = node.receive(InstallSnapshot(3, snapshot_of(B, NEW)))
    assert only(effects, Refused).refusal == BelowCommit(3)
    assert node.replica.log.headers == OLD[:3]


def test_M5_a_leader_trims_what_a_follower_has_trimmed_once_that_is_committed():
    """It may be unreadable here, and nobody is left to repair it from."""
    leader = leading(OLD[:3], silent="bc")
    ahead = restarted("b", OLD[:3], commit=3)
    ahead.receive(Fence(2))
    answer = replace(ahead.answer(), first=2)
    leader.receive(AddFollower(2, answer, standby=False))
    assert leader.replica.log.first == 0
    acked(leader, "b", 4)
    assert leader.replica.log.first == 2


# --- a sync that another leader has to finish ----------------------------------------------------

TRIMMED = Snapshot(A, history_of(OLD), 3, OLD[2].checksum, 4, OLD[3].checksum, ())


def started_over() -> Node:
    """A had trimmed up to 3: the log begins there, and the session table has not come yet."""
    node = fenced("d", epoch=2)
    node.receive(InstallSnapshot(2, TRIMMED))
    assert (node.replica.log.first, node.replica.commit) == (3, 3)
    return node


def announcement(snapshot: Snapshot) -> Announce:
    return Announce(3, (*history_of(OLD), Span(3, 4)), 5, 3, snapshot.end, False, snapshot)


def test_V8_a_snapshot_that_ends_before_the_log_begins_finishes_no_sync():
    node = started_over()
    node.receive(Fence(3))
    effects = node.receive(announcement(snapshot_of(B, OLD, end=2)), B)
    assert isinstance(only(effects, Refused).refusal, NotReady)
    kept = node.replica.syncing
    node.receive(announcement(snapshot_of(B, OLD, end=3)), B)
    assert (kept, node.replica.syncing) == (TRIMMED, None)
    assert node.replica.sessions.applied == 3


def test_V8_nor_is_it_installed():
    node = started_over()
    effects = node.receive(InstallSnapshot(3, snapshot_of(B, OLD, end=2)))
    assert isinstance(only(effects, Refused).refusal, NotReady)
    assert node.replica.syncing == TRIMMED


def test_V8_a_sync_that_ended_after_the_fence_answer_is_not_begun_again():
    node = started_over()
    node.receive(Fence(3))
    node.receive(Fetched(3, entries(OLD[3:])), A)
    assert node.replica.syncing is None
    late = replace(announcement(snapshot_of(B, OLD, end=2)), cut=4)
    effects = node.receive(late, B)
    assert node.replica.syncing is None
    assert only(effects, Ack).end == 4


def test_V9_a_leader_learns_from_a_syncing_follower_what_is_committed():
    """Nobody else may be left to commit with, and the follower cannot ack before it has a table."""
    node = started_over()
    node.receive(Fence(3))
    leader = leading(OLD, epoch=3, silent="bc")
    answer = replace(node.answer(), member=Member("b", 1))
    assert leader.replica.commit == 0
    effects = leader.receive(AddFollower(3, answer, standby=False))
    assert leader.replica.commit == 3
    snapshot = only(effects, Announce).snapshot
    assert snapshot is not None
    assert snapshot.end == 3


def test_V9_a_snapshot_that_was_refused_is_described_anew():
    leader = leading(OLD[:3], silent="b")
    behind = replace(fenced_answer("b", OLD[:1]), syncing=True)
    stale = only(leader.receive(AddFollower(2, behind, standby=False)), Announce)
    acked(leader, "c", 4)
    leader.receive(Refused("Announce", 2, NotReady("syncing")), Member("b", 1))
    again = only(leader.tick(1000), Announce)
    assert stale.snapshot is not None
    assert again.snapshot is not None
    assert stale.snapshot.end < again.snapshot.end
