"""The specification of `linearizability`, run as it reads: an oracle for small histories.

Wing and Gong's search with Lowe's memory of what was tried: pick any operation that may take
effect next, that is one called no later than the first reply still outstanding; let it act on
the log; go on from there. A history is linearizable if and only if some path gives every answered
operation its answer. Unanswered appends may stay out of a path; one that takes part tries every
offset, not only those that a read tells. A (set of operations, log) met again is not tried again.

It is exponential in overlapping operations and meant for a dozen of them. Nothing here is derived
from the answers, so that it can contradict the fast algorithm's reasoning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shardlog.sim.linearizability import Operation


class _State(NamedTuple):
    entries: tuple[tuple[int, int], ...]  # (offset, value), offsets rising
    end: int  # the commit offset: at or above the end of the last entry


def search(history: Sequence[Operation]) -> bool:
    """Whether some order of effects explains the history."""
    operations = [op for op in history if op.kind == "append" or op.reply is not None]
    offset_max = _offset_max(operations)
    answered = frozenset(i for i, op in enumerate(operations) if op.reply is not None)
    start = (frozenset[int](), _State((), 0))
    tried = {start}
    stack = [start]
    while stack:
        done, state = stack.pop()
        if answered <= done:
            return True
        replies = (operations[i].reply for i in answered - done)
        first_reply = min(reply for reply in replies if reply is not None)
        for i, op in enumerate(operations):
            if i in done or op.call > first_reply:
                continue
            for after in _effects(state, op, offset_max):
                step = (done | {i}, after)
                if step not in tried:
                    tried.add(step)
                    stack.append(step)
    return False


def _effects(state: _State, op: Operation, offset_max: int) -> Iterator[_State]:
    """The states the operation may leave behind, given that it got the answer it got."""
    if op.kind == "append":
        offsets = range(state.end, offset_max + 1) if op.offset is None else (op.offset,)
        for offset in offsets:
            if offset >= state.end:
                yield _State((*state.entries, (offset, op.value)), offset + op.count)
    elif op.end >= state.end:
        visible = [entry for entry in state.entries if entry[0] >= op.start]
        if tuple(visible[: op.limit]) == op.seen:
            yield _State(state.entries, op.end)


def _offset_max(operations: Sequence[Operation]) -> int:
    """No answer names a higher offset, so an entry above it would explain nothing."""
    named = [0]
    for op in operations:
        named += [op.offset or 0, op.end, *(offset for offset, _ in op.seen or ())]
    return max(named)
