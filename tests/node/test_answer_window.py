"""What one client may have waiting, and whose tails a commit touches."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from shardlog_node.answer_window import FIRST_BYTES, RATE_MIN, SHARE, AnswerWindow
from shardlog_node.waiting_tails import STALE_MIN, WaitingTails

ALL = 32 << 20


def test_S14_a_window_grows_with_what_is_taken_and_shrinks_again():
    window = AnswerWindow(ALL)
    assert window.room == FIRST_BYTES
    taken = 0
    for _ in range(20):
        taken += 100 << 20
        assert not window.is_slow(taken, 1 << 20, 1000)
    assert window.room == ALL // SHARE
    for _ in range(20):
        taken += RATE_MIN
        assert not window.is_slow(taken, 1 << 20, 1000)
    assert window.room == FIRST_BYTES


def test_S14_one_that_is_owed_its_window_gets_no_more():
    window = AnswerWindow(ALL)
    window.owed = FIRST_BYTES // 2
    assert window.room == FIRST_BYTES // 2
    window.owed += 1
    assert window.room == 0
    window.owed = 0
    assert window.room == FIRST_BYTES


def test_S14_too_little_is_as_bad_as_nothing():
    window = AnswerWindow(ALL)
    assert not window.is_slow(0, 1 << 20, 1000)  # it was not there a second ago
    assert window.is_slow(RATE_MIN - 1, 1 << 20, 1000)
    assert not window.is_slow(2 * RATE_MIN, 100, 1000)
    assert not window.is_slow(2 * RATE_MIN + 100, 100, 1000)  # there was no more to take
    assert window.is_slow(2 * RATE_MIN + 100, 100, 1000)
    assert not window.is_slow(2 * RATE_MIN + 100, 0, 1000)


@dataclass(eq=False)
class Waiter:
    start: int
    ends_ms: int = 0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 20)),
        st.tuples(st.just("below"), st.integers(0, 22)),
        st.tuples(st.just("tick"), st.integers(0, 30)),
    ),
    max_size=200,
)


@given(STEPS)
def test_S19_as_if_all_were_walked(steps: list[tuple[str, int]]):
    waiting: WaitingTails[Waiter] = WaitingTails()
    walked: list[Waiter] = []
    now_ms = 0
    for what, number in steps:
        if what == "add":
            waiter = Waiter(number, now_ms + 50)
            waiting.add(waiter)
            walked.append(waiter)
            continue
        if what == "below":
            found = waiting.below(number)
            due = [each for each in walked if each.start < number]
            assert found == sorted(due, key=lambda each: each.start)
        else:
            now_ms += number
            found = waiting.ended(now_ms)
            due = [each for each in walked if each.ends_ms <= now_ms]
            assert found == due
        walked = [each for each in walked if each not in due]
        assert list(waiting) == walked
        assert len(waiting) == len(walked)


def test_S19_those_that_wait_no_more_are_forgotten():
    waiting: WaitingTails[Waiter] = WaitingTails()
    for now_ms in range(10_000):
        waiting.add(Waiter(1 << 60, now_ms + 1))
        assert len(waiting.ended(now_ms)) <= 1
    assert len(waiting._by_offset) <= 2 * len(waiting) + STALE_MIN + 1
