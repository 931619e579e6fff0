"""Whom a new node asks for its snapshot, and who has to wait for what he asked for."""

from protocol.harness import Node, chain, entries, fenced, follower, history_of, leading, only, sent
from shardlog.protocol.effects import Distrusted, Effect, Send, SendFetched
from shardlog.protocol.entry import GENESIS_CHECKSUM, Member
from shardlog.protocol.failures import OffsetGap
from shardlog.protocol.messages import (
    Fetch,
    Fetched,
    InstallSnapshot,
    Refused,
    Snapshot,
    StatusReport,
    StatusRequest,
)

A, B, C = Member("a", 1), Member("b", 1), Member("c", 1)
LOG = chain([1, 1, 1, 2])
SNAPSHOT = Snapshot(A, history_of(LOG), 0, GENESIS_CHECKSUM, 4, LOG[-1].checksum, ())
RETRY_MS = 100


def asked(effects: list[Effect]) -> list[str]:
    """Who is sent a Fetch."""
    envelopes = [each.envelope for each in effects if isinstance(each, Send)]
    return [each.dst for each in envelopes if isinstance(each.message, Fetch)]


def installing(*others: Member) -> Node:
    node = fenced("d", epoch=2)
    node.receive(InstallSnapshot(2, SNAPSHOT, others))
    assert asked(node.tick(RETRY_MS)) == ["a"]
    return node


def test_V8_whoever_sends_damage_is_not_asked_next():
    node = installing(A, B, C)
    assert asked(node.step(Distrusted(A))) == ["b"]
    assert asked(node.step(Distrusted(B))) == ["c"]
    node.receive(Fetched(2, entries(LOG)), C)
    assert node.replica.syncing is None
    assert node.replica.log.headers == LOG


def test_V8_whoever_is_silent_is_not_asked_next():
    node = installing(B)
    assert asked(node.tick(RETRY_MS - 1)) == []
    assert asked(node.tick(1)) == ["b"]
    assert asked(node.tick(RETRY_MS)) == ["a"]


def test_V8_one_that_supplied_a_piece_is_asked_for_the_next():
    node = installing(B)
    node.step(Distrusted(A))
    assert asked(node.take(Fetched(2, entries(LOG[:2])), B)) == ["b"]


def test_V8_the_only_source_is_asked_again_after_a_while():
    node = installing()
    assert asked(node.step(Distrusted(A))) == []
    assert asked(node.tick(RETRY_MS)) == ["a"]


def test_V8_nobody_else_is_listened_to():
    node = installing(B)
    node.receive(Fetched(2, entries(LOG)), C)
    assert node.replica.log.end == 0


def test_a_follower_names_the_gap_that_damage_left():
    node = follower(LOG, epoch=2)
    leader = node.replica.leader
    assert leader is not None
    answer = only(node.step(Distrusted(leader)), Refused)
    assert answer.refusal == OffsetGap(4)
    assert sent(node.step(Distrusted(C)), Refused) == [], "that is nobody's business"


def test_a_fetch_waits_until_something_may_be_sent():
    node = leading(LOG, epoch=3)
    history = node.replica.history
    node.replica.feed_bytes = 0
    assert node.take(Fetch(3, history, 0, 4), C) == []
    assert not [each for each in node.tick(1) if isinstance(each, SendFetched)]
    node.replica.feed_bytes = 1
    served = [each for each in node.tick(1) if isinstance(each, SendFetched)]
    assert [each.to for each in served] == [C]
    assert node.replica.feed_bytes < 0, "one entry always goes, and is paid for later"
    assert not node.replica.asked


def test_the_status_tells_how_far_a_transfer_is():
    node = installing(B)
    node.take(Fetched(2, entries(LOG[:3])), A)
    report = only(node.receive(StatusRequest(2)), StatusReport)
    assert report.transfer is not None
    transfer = report.transfer
    assert (transfer.source, transfer.first, transfer.at, transfer.end) == (A, 0, 3, 4)
    assert transfer.done_bytes > 0
    node.receive(Fetched(2, entries(LOG[3:])), A)
    assert only(node.receive(StatusRequest(2)), StatusReport).transfer is None
