"""Follow cursors over a link that loses, repeats and delays."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.harness import chain
from shardlog.protocol.cursor import Cursor
from shardlog.protocol.effects import Limits
from shardlog.protocol.entry import Header, Member
from shardlog.protocol.header_bytes import ENTRY_HEADER_BYTES
from shardlog.protocol.log import Log, Mark

B = Member("b", 1)
RESEND_MS = 100
BATCH_MAX = 3
INFLIGHT_MAX = 5
LIMITS = Limits(batch_entries_max=BATCH_MAX, inflight_entries_max=INFLIGHT_MAX)


def log_of(length):
    log = Log()
    for header in chain([1] * length):
        log.append(header)
    return log


def announced(at=0):
    cursor = Cursor(B, standby=False)
    cursor.confirm(at, at, 0, RESEND_MS)
    return cursor


class Link:
    """A leader's cursor, a follower's log, and what is on its way between the two."""

    def __init__(self, length, held):
        self.leader, self.follower = log_of(length), log_of(held)
        self.cursor = announced(held)
        self.now_ms = 0
        self.batches: deque[list[Header]] = deque()
        self.acks: deque[int] = deque()
        self.sent = 0

    def send(self):
        while batch := self.cursor.to_send(self.leader, LIMITS):
            assert len(batch) <= BATCH_MAX
            self.cursor.sent(batch, self.now_ms)
            self.sent += len(batch)
            self.batches.append(batch)
            self.check()
            assert len(self.leader.between(self.cursor.at, self.cursor.next)) <= INFLIGHT_MAX

    def check(self):
        cursor = self.cursor
        assert cursor.acked <= cursor.next <= self.leader.end
        assert cursor.acked <= self.follower.end

    def receive(self):
        for header in self.batches.popleft() if self.batches else ():
            if header.base == self.follower.end:
                self.follower.append(header)
        self.acks.append(self.follower.end)

    def acknowledge(self):
        if self.acks:
            end = self.acks.popleft()
            self.cursor.confirm(end, end, self.now_ms, RESEND_MS)
            self.check()
        self.send()

    def run(self):
        while self.cursor.acked < self.leader.end:
            self.now_ms += RESEND_MS
            self.receive()
            self.acknowledge()


@given(st.integers(0, 20), st.integers(0, 20))
def test_N7_only_what_is_missing_is_sent_when_nothing_is_lost(length, held):
    link = Link(length, min(held, length))
    link.send()
    while link.batches or link.acks:
        link.receive()
        link.acknowledge()
    assert link.follower.headers == link.leader.headers
    assert link.sent == length - min(held, length)


LOSSES = st.lists(
    st.sampled_from(
        ["receive", "acknowledge", "lose batch", "lose ack", "repeat ack", "delay ack", "wait"]
    ),
    max_size=40,
)


@given(st.integers(1, 20), LOSSES)
def test_N7_whatever_is_lost_is_sent_again(length, events):
    link = Link(length, 0)
    link.send()
    for event in events:
        if event == "receive":
            link.receive()
        elif event == "acknowledge":
            link.acknowledge()
        elif event == "lose batch" and link.batches:
            link.batches.popleft()
        elif event == "lose ack" and link.acks:
            link.acks.popleft()
        elif event == "repeat ack" and link.acks:
            link.acks.append(link.acks[0])
        elif event == "delay ack":
            link.acks.rotate(-1)
        elif event == "wait":
            link.now_ms += RESEND_MS
    link.run()
    assert link.follower.headers == link.leader.headers


def heavy_log(*sizes):
    log = Log()
    for header, size in zip(chain([1] * len(sizes)), sizes, strict=True):
        log.append(header._replace(body_checksum=size << 32))
    return log


def test_bytes_under_way_are_bounded_and_one_entry_always_goes():
    limits = Limits(batch_bytes_max=100, inflight_bytes_max=150)
    log = heavy_log(60, 40, 60, 500, 10)
    cursor = announced()
    sent = []
    while batch := cursor.to_send(log, limits):
        sent.append([each.base for each in batch])
        cursor.sent(batch, 0)
    assert sent == [[0, 1]], "what would exceed the bound waits"
    cursor.confirm(2, 2, 0, RESEND_MS)
    batch = cursor.to_send(log, limits)
    assert [each.base for each in batch] == [2]
    cursor.sent(batch, 0)
    cursor.confirm(3, 3, 0, RESEND_MS)
    assert [each.base for each in cursor.to_send(log, limits)] == [3], "longer than the bound"


def test_what_was_received_and_is_not_durable_counts_as_under_way():
    log = log_of(20)
    cursor = announced()
    while batch := cursor.to_send(log, LIMITS):
        cursor.sent(batch, 0)
    assert cursor.next == INFLIGHT_MAX
    cursor.confirm(1, INFLIGHT_MAX, 0, RESEND_MS)
    assert cursor.to_send(log, LIMITS) == [], "its disk has stalled"
    cursor.confirm(BATCH_MAX, INFLIGHT_MAX, 0, RESEND_MS)
    batch = cursor.to_send(log, LIMITS)
    assert [each.base for each in batch] == [5, 6, 7], "as many as have become durable"
    cursor.sent(batch, 0)
    cursor.confirm(BATCH_MAX, INFLIGHT_MAX + BATCH_MAX, 0, RESEND_MS)
    assert cursor.to_send(log, LIMITS) == [], "and no more"


def test_T12_one_who_never_acks_is_fed_by_where_it_is():
    log = log_of(20)
    cursor = Cursor(B, standby=True)
    cursor.confirm(0, 0, 0, RESEND_MS)
    for _ in range(8):
        for batch in iter(lambda: cursor.to_send(log, LIMITS), []):
            cursor.sent(batch, 0)
        cursor.confirm(0, cursor.next, 0, RESEND_MS)
    assert cursor.next == log.end


def test_N5_nothing_is_sent_before_the_announcement_is_accepted():
    cursor = Cursor(B, standby=False)
    assert cursor.to_send(log_of(3), LIMITS) == []


def test_N5_a_new_epoch_is_announced_before_anything_else_is_sent():
    cursor = announced()
    cursor.unannounce(cut=2)
    assert cursor.to_send(log_of(3), LIMITS) == []


def test_T5_nothing_is_sent_to_a_lost_disk():
    cursor = announced()
    cursor.lost = True
    assert cursor.to_send(log_of(3), LIMITS) == []


def test_T3_a_bad_copy_is_not_sent_nor_what_follows_it():
    log = log_of(3)
    log.mark(1, Mark.CORRUPT)
    assert [each.base for each in announced().to_send(log, Limits())] == [0]


@pytest.mark.parametrize(("waited_ms", "again"), [(RESEND_MS - 1, False), (RESEND_MS, True)])
def test_N7_what_is_in_flight_is_sent_again_only_after_a_while(waited_ms, again):
    cursor = announced()
    cursor.next = 3
    cursor.confirm(1, 1, 0, RESEND_MS)
    cursor.confirm(1, 1, waited_ms, RESEND_MS)
    assert (cursor.next == 1) is again


def test_N7_nothing_is_sent_again_as_long_as_the_follower_gets_further():
    cursor = announced()
    cursor.next = 5
    for at in (1, 2, 3):
        cursor.confirm(0, at, at * RESEND_MS, RESEND_MS)
        assert cursor.next == 5
    cursor.confirm(0, 3, 4 * RESEND_MS, RESEND_MS)
    assert cursor.next == 3


class Shelf:
    """Headers at rest."""

    def __init__(self, log):
        self.held = {header.base: header for header in log.headers}

    def headers(self, start, end, most):
        return [self.held[base] for base in sorted(self.held) if start <= base < end][:most]

    def covering(self, offset):
        return self.held.get(offset)


def test_old_entries_are_sent_only_as_far_as_the_driver_allows():
    log = heavy_log(*[10] * 20)
    log.archive = Shelf(log)
    log.forget(below=12, keep=4)
    assert log.kept_from == 12
    cursor = announced()
    limits = Limits(batch_entries_max=4)
    assert cursor.to_send(log, limits, 12, 0) == []
    assert cursor.starved
    batch = cursor.to_send(log, limits, 12, 15)
    assert [each.base for each in batch] == [0, 1], "the last may exceed what is allowed"
    assert cursor.sent(batch, 0) == 2 * (10 + ENTRY_HEADER_BYTES)
    assert not cursor.starved
    cursor.confirm(12, 12, 0, RESEND_MS)
    batch = cursor.to_send(log, limits, 16, 0)
    assert [each.base for each in batch] == [12, 13, 14, 15], "a little behind is not far behind"
    limits = Limits(batch_entries_max=4, inflight_bytes_max=50)
    assert cursor.to_send(log, limits, 16, 0) == [], "so much cannot be under way"
    assert len(cursor.to_send(log, limits, 12, 0)) == 4, "what is not committed is always sent"


@pytest.mark.parametrize("window", [8, 10])
def test_one_whose_window_is_full_is_still_one_who_is_fed(window):
    log = heavy_log(*[10] * 30)
    log.archive = Shelf(log)
    log.forget(below=24, keep=4)
    cursor = announced()
    limits = Limits(batch_entries_max=4, inflight_entries_max=window)
    while batch := cursor.to_send(log, limits, 24, 1 << 20):
        cursor.sent(batch, 0)
    assert cursor.fed, "appends give way to whoever is behind, whatever holds it up"
    assert not cursor.starved


@pytest.mark.parametrize(
    "limits",
    [
        Limits(batch_entries_max=4, inflight_entries_max=10),
        Limits(batch_bytes_max=40, inflight_bytes_max=100),
    ],
)
def test_old_entries_are_not_sent_in_short_messages(limits):
    log = heavy_log(*[10] * 30)
    log.archive = Shelf(log)
    log.forget(below=24, keep=4)
    cursor = announced()
    sent = []

    def send():
        while batch := cursor.to_send(log, limits):
            sent.append([each.base for each in batch])
            cursor.sent(batch, 0)

    send()
    assert sent == [[0, 1, 2, 3], [4, 5, 6, 7]], "two more would have been allowed"
    cursor.confirm(3, 3, 0, RESEND_MS)
    send()
    assert len(sent) == 2, "not all of a message has come"
    cursor.confirm(4, 4, 0, RESEND_MS)
    send()
    assert sent[2:] == [[8, 9, 10, 11]]
    for end in range(8, 25, 4):
        cursor.confirm(end, end, 0, RESEND_MS)
        send()
    assert [base for bases in sent for base in bases] == list(range(30)), (
        "the last ones do not wait"
    )


def test_T5_rule_15_the_highest_ack_is_a_promise_with_the_beat_that_it_came_after():
    cursor = announced(3)
    cursor.note_promise(beat=7)
    cursor.confirm(2, 2, 0, RESEND_MS)
    cursor.note_promise(beat=8)
    assert (cursor.promised, cursor.promised_beat) == (3, 7)


def test_N7_a_gap_that_many_messages_tell_of_is_filled_once():
    """Each of them answered with all that is missing would make more of them, without end."""
    cursor = Cursor(Member("b", 1), standby=False)
    cursor.confirm(2, 2, now_ms=0, resend_ms=150)
    cursor.next = 9
    assert cursor.rewind(4)
    assert cursor.next == 4
    cursor.next = 9
    assert not cursor.rewind(4)
    assert cursor.rewind(6)
    assert not cursor.rewind(1), "it has acknowledged that"
    cursor.confirm(2, 4, now_ms=200, resend_ms=150)
    assert cursor.next == 4, "after a while it is sent again all the same"
