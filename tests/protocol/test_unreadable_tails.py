"""Elections over tails that cannot be read: how much they may have held."""

from dataclasses import replace

from protocol.test_choice import ABC, MAJORITY, A, B, C, answer, answers, chosen, no_copy
from shardlog.protocol.choice import Possible, bound_tails, decide
from shardlog.protocol.log import Mark


def test_T2_an_unreadable_tail_held_no_more_than_it_has_slots():
    """Else the election would wait for ever for an entry that nobody ever had."""
    b = answer(B, [1, 1, 1], bad={2: Mark.FAULT})
    c = answer(C, [1, 1, 1], bad={2: Mark.FAULT})
    assert (c.open_tail, c.end, c.tail_slots) == (True, 2, 1)
    decision = chosen(answers(a=[1, 1, 1], b=b, c=c))
    assert (decision.leader, decision.kept.end) == (A, 3)


def test_T2_an_unreadable_tail_may_have_held_one_more_than_others_have():
    b = answer(B, [1, 1, 1], bad={2: Mark.FAULT})
    for slots in (0, 2):
        c = replace(answer(C, [1, 1, 1], bad={2: Mark.FAULT}), tail_slots=slots)
        told = answers(a=[1, 1, 1], b=b, c=c)
        assert chosen(told).kept.end == 3, "a and b never had more"
        told = answers(a=[1, 1, 1], c=c)
        assert decide(told, (ABC,), MAJORITY) == no_copy(1, 3, B, C)


def test_T2_an_unreadable_tail_of_another_epoch_tells_nothing():
    b = answer(B, [1, 2], bad={1: Mark.FAULT})
    c = answer(C, [1, 2], bad={1: Mark.FAULT})
    told = answers(a=[1, 1, 1], b=b, c=c)
    assert decide(told, (ABC,), MAJORITY) == no_copy(2, 1, B, C)


def test_T2_an_unreadable_tail_ends_with_its_epoch_at_the_latest():
    """What the others tell in one piece, because it is committed, is of two epochs."""
    a = answer(A, [1, 1, 2, 2], commit=4)
    b = answer(B, [1, 1], bad={1: Mark.FAULT})
    c = answer(C, [1, 1, 2, 2], bad={3: Mark.FAULT})
    decision = chosen({A: a, B: b, C: c})
    assert (decision.leader, decision.kept.end) == (A, 4)
    logs = {each.member: Possible(each) for each in (a, b, c)}
    bound_tails(logs.values())
    assert [(log.end, log.open_tail) for log in logs.values()] == [
        (4, False),
        (2, False),
        (4, False),
    ]
