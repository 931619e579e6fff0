"""The linearizability checker: cases a person can follow, and agreement with a plain search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_histories import LIES, History, forget_reply, spoilt_history, true_history

from shardlog.sim.linearizability import Operation, Violation, check
from shardlog.sim.linearizability_search import search

Times = tuple[int, int | None]
Seen = tuple[tuple[int, int], ...]


def append(times: Times, value: int, offset: int | None, count: int = 1) -> Operation:
    call, reply = times
    return Operation(0, call, reply, "append", value=value, count=count, offset=offset)


def read(times: Times, seen: Seen, end: int, start: int = 0, limit: int = 100) -> Operation:
    call, reply = times
    return Operation(1, call, reply, "read", start=start, limit=limit, seen=seen, end=end)


def unanswered_read(call: int) -> Operation:
    return Operation(1, call, None, "read")


A = append((0, 1), value=10, offset=0, count=2)
B = append((2, 3), value=11, offset=2)

LINEARIZABLE: dict[str, History] = {
    "empty": [],
    "one after the other": [A, B, read((4, 5), ((0, 10), (2, 11)), end=3)],
    "a gap of control entries": [A, append((2, 3), 11, offset=7)],
    "a commit offset beyond the last entry": [A, read((2, 3), ((0, 10),), end=5)],
    "a control entry first": [read((0, 1), (), end=1), append((2, 3), 10, offset=1)],
    "a read during the append, without it": [append((0, 9), 10, 0), read((3, 4), (), end=0)],
    "a read during the append, with it": [append((0, 9), 10, 0), read((3, 4), ((0, 10),), end=1)],
    "appends that overlap, the later call first": [
        append((0, 9), 10, offset=1),
        append((1, 8), 11, offset=0),
    ],
    "called at the time of the other's reply": [
        append((0, 2), 10, offset=1),
        append((2, 3), 11, offset=0),
    ],
    "limit cuts": [A, B, read((4, 5), ((0, 10),), end=3, limit=1)],
    "start inside an entry": [A, B, read((4, 5), ((2, 11),), end=3, start=1)],
    "start beyond the end": [A, read((4, 5), (), end=2, start=9)],
    "an unanswered append that nobody saw": [append((0, None), 9, None), A, B],
    "an unanswered append seen late": [
        append((0, None), 9, None),
        A,
        read((2, 3), ((0, 10),), end=2),
        read((4, 5), ((0, 10), (4, 9)), end=5),
    ],
    "an unanswered read": [A, unanswered_read(0)],
    "two reads of one commit offset": [
        A,
        read((4, 9), ((0, 10),), end=2),
        read((2, 3), ((0, 10),), end=2),
    ],
}

PENDING = append((0, None), value=9, offset=None)
LATE = append((5, None), value=9, offset=None)
FIRST = read((4, 5), ((0, 10),), end=2)

VIOLATIONS: dict[str, tuple[History, Violation]] = {
    "phantom": (
        [A, stray := read((2, 3), ((0, 10), (2, 99)), end=3)],
        Violation("value 99 was read at offset 2, but nobody appended it", (stray,)),
    ),
    "answered at one offset, read at another": (
        [A, moved := read((2, 3), ((1, 10),), end=3)],
        Violation("value 10 is at offset 0 and at offset 1", (A, moved)),
    ),
    "unanswered, read at two offsets": (
        [PENDING, one := read((2, 3), ((0, 9),), end=1), two := read((4, 5), ((1, 9),), end=2)],
        Violation("value 9 is at offset 0 and at offset 1", (PENDING, two, one)),
    ),
    "applied twice": (
        [PENDING, twice := read((2, 3), ((0, 9), (1, 9)), end=2)],
        Violation("value 9 is at offset 0 and at offset 1", (PENDING, twice)),
    ),
    "two appends at one offset": (
        [A, same := append((2, 3), 11, offset=0)],
        Violation("the entry at offset 0 starts before 2, where the log ended", (A, same)),
    ),
    "entries overlap": (
        [A, inside := append((2, 3), 11, offset=1)],
        Violation("the entry at offset 1 starts before 2, where the log ended", (A, inside)),
    ),
    "an unanswered entry overlaps": (
        [A, PENDING, shown := read((2, 3), ((1, 9),), end=2, start=1)],
        Violation(
            "the entry at offset 1 starts before 2, where the log ended", (A, PENDING, shown)
        ),
    ),
    "negative offset": (
        [below := append((0, 1), 10, offset=-1)],
        Violation("the entry at offset -1 starts before 0, where the log ended", (below,)),
    ),
    "negative commit offset": (
        [below := read((0, 1), (), end=-1)],
        Violation("a read saw the commit offset -1", (below,)),
    ),
    "the commit offset cuts an entry": (
        [A, cut := read((2, 3), ((0, 10),), end=1)],
        Violation("a read saw the commit offset 1, inside the entry at 0", (cut, A)),
    ),
    "a dropped entry": (
        [A, B, hole := read((4, 5), ((2, 11),), end=3)],
        Violation(
            "a read from 0 that saw the commit offset 3 lacks value 10 at offset 0", (hole, A)
        ),
    ),
    "a dropped last entry": (
        [A, B, hole := read((4, 5), ((0, 10),), end=3)],
        Violation(
            "a read from 0 that saw the commit offset 3 lacks value 11 at offset 2", (hole, B)
        ),
    ),
    "below the start": (
        [A, B, much := read((4, 5), ((0, 10), (2, 11)), end=3, start=1)],
        Violation(
            "a read from 1 that saw the commit offset 3 shows value 10 at offset 0, "
            "below its start",
            (much,),
        ),
    ),
    "an entry above the commit offset": (
        [A, B, early := read((4, 5), ((0, 10), (2, 11)), end=2)],
        Violation(
            "a read from 0 that saw the commit offset 2 shows value 11 at offset 2, "
            "not committed then",
            (early,),
        ),
    ),
    "beyond the limit": (
        [A, B, much := read((4, 5), ((0, 10), (2, 11)), end=3, limit=1)],
        Violation(
            "a read from 0 that saw the commit offset 3 shows value 11 at offset 2, "
            "beyond its limit of 1",
            (much,),
        ),
    ),
    "shown twice": (
        [A, again := read((4, 5), ((0, 10), (0, 10)), end=2)],
        Violation(
            "a read from 0 that saw the commit offset 2 shows value 10 at offset 0, out of order",
            (again,),
        ),
    ),
    "a stale read": (
        [A, B, FIRST],
        Violation(
            "the append of 11 at offset 2 was answered at 3, "
            "before the read that saw the commit offset 2 was called at 4",
            (B, FIRST),
        ),
    ),
    "the commit offset falls": (
        [up := read((0, 1), (), end=4), down := read((2, 3), (), end=3)],
        Violation(
            "the read that saw the commit offset 4 was answered at 1, "
            "before the read that saw the commit offset 3 was called at 2",
            (up, down),
        ),
    ),
    "an entry where a read saw none": (
        [none := read((0, 1), (), end=4), fill := append((2, 3), 10, offset=3)],
        Violation(
            "a read from 0 that saw the commit offset 4 lacks value 10 at offset 3", (none, fill)
        ),
    ),
    "an entry below a commit offset seen before": (
        [tail := read((0, 1), (), end=4, start=4), fill := append((2, 3), 10, offset=3)],
        Violation(
            "the read that saw the commit offset 4 was answered at 1, "
            "before the append of 10 at offset 3 was called at 2",
            (tail, fill),
        ),
    ),
    "read before it was appended": (
        [soon := read((0, 1), ((0, 10),), end=1), slow := append((2, 3), 10, offset=0)],
        Violation(
            "the read that saw the commit offset 1 was answered at 1, "
            "before the append of 10 at offset 0 was called at 2",
            (soon, slow),
        ),
    ),
    "an unanswered append, read before its call": (
        [LATE, soon := read((0, 1), ((0, 9),), end=1)],
        Violation(
            "the read that saw the commit offset 1 was answered at 1, "
            "before the append of 9 at offset 0 was called at 5",
            (soon, LATE),
        ),
    ),
    "offsets against real time": (
        [high := append((0, 1), 10, offset=5), low := append((2, 3), 11, offset=4)],
        Violation(
            "the append of 10 at offset 5 was answered at 1, "
            "before the append of 11 at offset 4 was called at 2",
            (high, low),
        ),
    ),
}


@pytest.mark.parametrize("history", LINEARIZABLE.values(), ids=LINEARIZABLE)
def test_linearizable(history: History) -> None:
    assert check(history) is None
    assert search(history)


@pytest.mark.parametrize(("history", "violation"), VIOLATIONS.values(), ids=VIOLATIONS)
def test_violation_is_named(history: History, violation: Violation) -> None:
    assert check(history) == violation
    assert not search(history)


def test_two_appends_of_one_value_are_no_history() -> None:
    with pytest.raises(ValueError, match="same value"):
        check([A, append((2, 3), value=A.value, offset=5)])


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"reply": None, "offset": 3}, "if and only if"),
        ({"reply": 5, "offset": None}, "if and only if"),
        ({"reply": -1, "offset": 3}, "before it was called"),
        ({"reply": 5, "offset": 3, "count": 0}, "at least 1"),
    ],
)
def test_a_malformed_operation_is_refused(fields: dict[str, int | None], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Operation(client=0, call=0, kind="append", **fields)  # type: ignore[arg-type]


def judge_small(seed: int) -> tuple[History, bool]:
    """The history of a seed and the search's verdict."""
    rng = Random(seed)
    operations = rng.randint(2, 9)
    history = true_history(rng, operations, clients=rng.randint(1, 4), loss=0.15)
    if seed % 4:
        history = spoilt_history(rng, history)
    rng.shuffle(history)
    return history, search(history)


@pytest.mark.parametrize("block", range(8))
def test_agrees_with_the_search(block: int) -> None:
    verdicts: Counter[bool] = Counter()
    for seed in range(block * 1_000, (block + 1) * 1_000):
        history, linearizable = judge_small(seed)
        violation = check(history)
        assert (violation is None) == linearizable, f"judge_small({seed}): {violation}"
        assert seed % 4 or linearizable, f"judge_small({seed}) is true by construction"
        verdicts[linearizable] += 1
    assert min(verdicts[True], verdicts[False]) >= 250


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_every_lie_is_noticed_at_times(lie: Callable[[Random, History], None]) -> None:
    caught = 0
    for seed in range(200):
        rng = Random(seed)
        history = true_history(rng, operations=12, clients=3, loss=0.15)
        lie(rng, history)
        caught += check(history) is not None
    assert caught >= 10


def test_forgetting_replies_is_no_violation() -> None:
    for seed in range(500):
        rng = Random(seed)
        history = true_history(rng, operations=12, clients=3)
        for _ in range(rng.randint(1, 6)):
            forget_reply(rng, history)
        assert check(history) is None, f"seed {seed}"


small = st.integers(0, 4)
times = st.tuples(small, small).map(sorted)


@st.composite
def any_operation(draw: st.DrawFn, value: int) -> Operation:
    call, reply = draw(times)
    if draw(st.booleans()):
        offset = draw(st.none() | small)
        when = None if offset is None else reply
        return append((call, when), value, offset, count=draw(st.integers(1, 2)))
    seen = draw(st.lists(st.tuples(small, small), max_size=3).map(sorted))
    end = draw(small)
    return read((call, reply), tuple(seen), end, start=draw(small), limit=draw(st.integers(1, 3)))


@st.composite
def any_history(draw: st.DrawFn) -> History:
    return [draw(any_operation(value)) for value in range(draw(st.integers(0, 4)))]


@settings(max_examples=1_000, deadline=None)
@given(any_history())
def test_agrees_with_the_search_on_anything(history: History) -> None:
    assert (check(history) is None) == search(history)


def test_a_hundred_thousand_operations_take_seconds() -> None:
    history = true_history(Random(1), operations=100_000, clients=20)
    began = process_time()
    assert check(history) is None
    assert process_time() - began < 5
