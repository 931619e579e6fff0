"""Elections over tails that cannot be read: how much they may have held."""

from dataclasses import replace

from protocol.harness import chain, restarted
from protocol.test_choice import ABC, MAJORITY, A, B, C, answer, answers, chosen, no_copy
from shardlog.protocol.choice import Possible, bound_tails, decide
from shardlog.protocol.entry import Header, Member
from shardlog.protocol.log import Mark
from shardlog.protocol.messages import FenceAnswer
from shardlog.protocol.replica_state import COMMITTED_TOLD_MAX


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


def told_by(member: Member, log: list[Header], commit: int, *bad: int) -> FenceAnswer:
    node = restarted(member.node, log, commit=commit, bad=dict.fromkeys(bad, Mark.FAULT))
    return replace(node.answer(), member=member)


def test_T2_tails_that_the_third_knows_to_be_committed_are_not_waited_for():
    """It tells entries below its commit offset one by one, so that they can be counted."""
    log = chain([1, 1, 1, 1, 1])
    told = {A: told_by(A, log, 5), B: told_by(B, log, 1, 2, 3, 4), C: told_by(C, log, 1, 2, 3, 4)}
    assert (told[B].open_tail, told[B].end, told[B].tail_slots) == (True, 2, 3)
    decision = chosen(told)
    assert (decision.leader, decision.kept.end) == (A, 5)


def test_T2_tails_longer_than_what_the_third_knows_to_be_committed_are_waited_for():
    """The other two may have committed one more without it."""
    whole, short = chain([1, 1, 1, 1, 1]), chain([1, 1, 1, 1])
    told = {
        A: told_by(A, short, 4),
        B: told_by(B, whole, 1, 2, 3, 4),
        C: told_by(C, whole, 1, 2, 3, 4),
    }
    assert decide(told, (ABC,), MAJORITY) == no_copy(1, 4, B, C)


def test_M7_what_is_told_of_committed_entries_depends_on_what_is_durable_alone():
    log = chain([1] * 40)
    node = restarted("a", log, commit=40)
    first = node.answer()
    assert len(first.slots) == COMMITTED_TOLD_MAX
    assert {slot.mark for slot in first.slots} == {Mark.PRESENT}
    node.restart()
    assert node.answer() == first
