"""The requests of a session: numbered, bounded, sent again in order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardlog.client.batching import Request
from shardlog.client.window import Window


def request() -> Request:
    return Request(b"body", 1, 0.0, [])


def filled(count: int, requests_max: int = 32) -> tuple[Window, list[Request]]:
    window = Window(requests_max)
    made = [request() for _ in range(count)]
    for each in made:
        window.admit(each)
    return window, made


def sent(window: Window) -> list[int]:
    numbers = []
    while (each := window.to_send()) is not None:
        numbers.append(each.number)
    return numbers


def test_requests_are_numbered_from_1_and_sent_once():
    window, _ = filled(3)
    assert sent(window) == [1, 2, 3]
    assert sent(window) == []


def test_after_a_rewind_all_that_is_unanswered_is_sent_again_in_order():
    window, made = filled(5)
    sent(window)
    assert window.answered(1) is made[0]
    assert window.answered(3) is made[2]
    window.rewind()
    assert sent(window) == [2, 4, 5]
    assert [each.sends for each in made] == [1, 2, 1, 2, 2]


def test_one_that_did_not_get_out_is_the_next_again():
    window, made = filled(2)
    window.to_send()
    window.unsend()
    assert made[0].sends == 0
    assert sent(window) == [1, 2]


def test_a_send_that_came_to_nothing_does_not_count():
    window, made = filled(2)
    sent(window)
    for number in (1, 2, 2, 3, 0):
        window.came_to_nothing(number)
    assert [each.sends for each in made] == [0, 0]
    window.rewind(1)
    assert sent(window) == [1, 2]
    assert [each.sends for each in made] == [1, 1]


def test_an_answer_counts_once_and_strangers_count_nothing():
    window, made = filled(2)
    sent(window)
    answers = [window.answered(number) for number in (3, 0, 2, 2, 1, 1)]
    assert answers == [None, None, made[1], None, made[0], None]


def test_the_first_unanswered_holds_the_window():
    window, _ = filled(4, requests_max=4)
    sent(window)
    for number in (2, 3, 4):
        window.answered(number)
    assert not window.has_room
    window.answered(1)
    window.admit(request())
    with pytest.raises(AssertionError):
        filled(5, requests_max=4)


def test_a_new_session_starts_from_1():
    window, made = filled(3)
    sent(window)
    window.answered(2)
    assert window.clear() == [made[0], made[2]]
    window.admit(made[2])
    assert sent(window) == [1]


def test_those_behind_a_refused_one_are_taken_back():
    window, made = filled(5)
    sent(window)
    window.answered(4)
    assert window.cut(3) == [made[2], made[4]]
    window.rewind()
    assert sent(window) == [1, 2]
    assert window.cut(7) == []


@given(st.lists(st.sampled_from(["admit", "send", "answer", "late", "rewind"]), max_size=80))
def test_numbers_leave_without_a_gap_and_never_span_more_than_the_bound(steps):
    window = Window(4)
    open_numbers: set[int] = set()
    admitted = 0
    for step in steps:
        if step == "admit" and window.has_room:
            window.admit(request())
            admitted += 1
            open_numbers.add(admitted)
        elif step == "send":
            numbers = sent(window)
            assert numbers == sorted(numbers)
            assert set(numbers) <= open_numbers
        elif step == "rewind":
            window.rewind()
            assert sent(window) == sorted(open_numbers)
        elif open_numbers:
            number = min(open_numbers) if step == "answer" else max(open_numbers)
            assert window.answered(number) is not None
            open_numbers.remove(number)
        if open_numbers:
            assert admitted - min(open_numbers) < 4
