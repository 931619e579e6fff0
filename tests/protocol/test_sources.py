"""Whom a new node asks for its snapshot, and who has to wait for what he asked for."""

from dataclasses import replace

from protocol.harness import (
    LIMITS,
    Node,
    chain,
    entries,
    fenced,
    follower,
    history_of,
    leading,
    only,
    sent,
)
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


def ranges(effects: list[Effect]) -> list[tuple[int, int]]:
    """What is asked for."""
    messages = [each.envelope.message for each in effects if isinstance(each, Send)]
    return [(each.start, each.end) for each in messages if isinstance(each, Fetch)]


def test_V8_a_new_node_asks_for_the_next_answer_when_one_begins():
    node = installing(B)
    assert ranges(node.take(Fetched(2, entries(LOG[:1]), more=1), A)) == [(2, 4)]
    assert ranges(node.take(Fetched(2, entries(LOG[1:2])), A)) == [], "that is under way"
    assert ranges(node.take(Fetched(2, entries(LOG[2:3]), more=1), A)) == [], "so is all the rest"
    node.receive(Fetched(2, entries(LOG[3:])), A)
    assert node.replica.syncing is None


def test_V8_what_is_lost_of_an_answer_is_asked_for_again_from_the_next_source():
    node = installing(B)
    assert ranges(node.take(Fetched(2, entries(LOG[:1]), more=1), A)) == [(2, 4)]
    assert ranges(node.take(Fetched(2, entries(LOG[2:])), A)) == [], "it does not fit"
    effects = node.tick(RETRY_MS)
    assert (asked(effects), ranges(effects)) == (["b"], [(1, 4)])


def test_V8_after_damage_all_that_was_under_way_is_asked_for_again():
    node = installing(B)
    node.take(Fetched(2, entries(LOG[:1]), more=1), A)
    effects = node.step(Distrusted(A))
    assert (asked(effects), ranges(effects)) == (["b"], [(1, 4)])


def test_V8_no_more_is_asked_for_than_the_disk_takes():
    node = fenced("d", epoch=2, limits=replace(LIMITS, unsynced_entries_max=2))
    node.receive(InstallSnapshot(2, SNAPSHOT, (B,)))
    node.tick(RETRY_MS)
    effects = node.take(Fetched(2, entries(LOG[:2])), A)
    assert asked(effects) == []
    node.finish(effects)
    assert ranges(node.tick(1)) == [(2, 4)]


def test_an_answer_comes_in_pieces_that_tell_how_much_is_behind_them():
    node = leading(LOG, epoch=3)
    node.replica.limits = replace(LIMITS, fetch_entries_max=1, fetch_pieces_max=3)
    effects = node.receive(Fetch(3, node.replica.history, 0, 4), C)
    pieces = [each for each in effects if isinstance(each, SendFetched)]
    assert [[header.base for header in each.headers] for each in pieces] == [[0], [1], [2]]
    assert [each.more for each in pieces] == [2, 1, 0]


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
