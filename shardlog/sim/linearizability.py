"""Is what the clients of one shard saw the work of a single log that acts at an instant?

The sequential specification is a log with a commit offset, which only rises:

- an append takes an offset at or above the commit offset, and the commit offset becomes the
  end of its records; what it skipped was hidden control entries;
- a control entry raises the commit offset at any moment, unseen;
- a read answers the commit offset (`end`), and exactly the first `limit` visible entries whose
  offset is at or above `start`.

Linearizability is hard to decide in general because the order of the effects has to be guessed.
Here the answers tell it. Let the *place* of an append be its offset and that of a read its `end`.

1. An answered append names its place. An unanswered one that a read saw has its place from the
   read. An unanswered one that nobody saw may be left out: no read changes its answer without
   it, and a control entry can fill its gap. Unanswered reads bind nothing.
2. The commit offset only rises, so in *every* legal order of the effects places only rise. A
   read at the place of an append comes before it, as the commit offset is beyond it afterwards.
   Only reads with the same `end` may change places, and they do not change the log.
3. So there is one order to try: sort by place, reads before the append, reads of one `end` by
   their calls. It obeys the specification if and only if entries do not overlap, no read ends
   inside an entry, and each read shows just the entries between its `start` and its `end`.
4. It fits real time if and only if no operation was answered before one that stands earlier was
   called. Then "the latest call up to here in the order" is an instant for each operation: it
   never falls along the order, is not before the operation's call, nor after its reply. The
   converse: an operation answered before an earlier one is called breaks the only order there
   is; for reads of one `end` sorting by calls makes this impossible.

Intervals are closed: an operation called at the very time another is answered overlaps it.
Cost: O(n log n) for n operations, plus the pairs that reads saw, compared as whole tuples.
`linearizability_search` decides the same by brute force and shares nothing but `Operation`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Pair = tuple[int, int]  # offset, value


@dataclass(frozen=True, slots=True)
class Operation:
    """One client call and its answer; the fields of the other kind keep their defaults.

    An unanswered operation has neither `reply` nor result. A definite refusal is not recorded.
    """

    client: int
    call: int
    reply: int | None
    kind: Literal["append", "read"]
    value: int = 0  # names the appended entry; no two appends of a history share one
    count: int = 1
    offset: int | None = None
    start: int = 0
    limit: int = 1
    seen: tuple[Pair, ...] | None = None  # as answered
    end: int = 0  # the commit offset seen: every entry below it is in its final place

    def __post_init__(self) -> None:
        result = self.offset if self.kind == "append" else self.seen
        if (self.reply is None) != (result is None):
            raise ValueError(f"an operation has a result if and only if it has a reply: {self}")
        if self.reply is not None and self.reply < self.call:
            raise ValueError(f"answered before it was called: {self}")
        if self.count < 1 or self.limit < 1:
            raise ValueError(f"count and limit are at least 1: {self}")


@dataclass(frozen=True, slots=True)
class Violation:
    """Why no order of effects explains the history, and the operations that contradict."""

    text: str
    operations: tuple[Operation, ...]


Placed = tuple[int, Operation]  # an append and its offset, or a read and its `end`


@dataclass(frozen=True, slots=True)
class _Log:
    """The appends that took effect. The three lists run in parallel, by rising offset."""

    entries: list[Placed]
    offsets: list[int]
    pairs: list[Pair]


def check(history: Sequence[Operation]) -> Violation | None:
    """The first contradiction found, or None if the history, in any order, is linearizable."""
    reads = [op for op in history if op.kind == "read" and op.seen is not None]
    log = _place(history, reads)
    if isinstance(log, Violation):
        return log
    return _check_entries(log, reads) or _check_reads(log, reads) or _check_real_time(log, reads)


def _place(history: Sequence[Operation], reads: list[Operation]) -> _Log | Violation:
    appends = {op.value: op for op in history if op.kind == "append"}
    if len(appends) != sum(op.kind == "append" for op in history):
        raise ValueError("two appends of the history have the same value")
    offsets = {op.value: op.offset for op in appends.values() if op.offset is not None}
    for offset, value in sorted(set[Pair]().union(*(op.seen or () for op in reads))):
        if value not in appends:
            text = f"value {value} was read at offset {offset}, but nobody appended it"
            return Violation(text, (_witness((offset, value), reads),))
        known = offsets.setdefault(value, offset)
        if known != offset:
            text = f"value {value} is at offset {known} and at offset {offset}"
            other = (offset, _witness((offset, value), reads))
            return _violation(text, reads, (known, appends[value]), other)
    pairs = sorted((offset, value) for value, offset in offsets.items())
    return _Log(
        entries=[(offset, appends[value]) for offset, value in pairs],
        offsets=[offset for offset, _ in pairs],
        pairs=pairs,
    )


def _check_entries(log: _Log, reads: list[Operation]) -> Violation | None:
    end = 0
    for position, (offset, append) in enumerate(log.entries):
        if offset < end:
            text = f"the entry at offset {offset} starts before {end}, where the log ended"
            return _violation(text, reads, *log.entries[max(position - 1, 0) : position + 1])
        end = offset + append.count
    return None


def _check_reads(log: _Log, reads: list[Operation]) -> Violation | None:
    for read in reads:
        if read.end < 0:
            return Violation(f"a read saw the commit offset {read.end}", (read,))
        since, upto = bisect_left(log.offsets, read.start), bisect_left(log.offsets, read.end)
        if upto:
            offset, append = log.entries[upto - 1]
            if offset + append.count > read.end:
                text = f"a read saw the commit offset {read.end}, inside the entry at {offset}"
                return _violation(text, reads, (read.end, read), (offset, append))
        expected = tuple(log.pairs[since : min(upto, since + read.limit)])
        if read.seen != expected:
            return _wrong_answer(log, read, expected, reads)
    return None


def _check_real_time(log: _Log, reads: list[Operation]) -> Violation | None:
    order: list[Placed] = [*((read.end, read) for read in reads), *log.entries]
    order.sort(key=lambda placed: (placed[0], placed[1].kind == "append", placed[1].call))
    latest: Placed | None = None  # of those so far in the order, the one called last
    for placed in order:
        reply = placed[1].reply
        if latest is None or placed[1].call > latest[1].call:
            latest = placed
        elif reply is not None and reply < latest[1].call:
            text = (
                f"{_named(placed)} was answered at {reply}, "
                f"before {_named(latest)} was called at {latest[1].call}"
            )
            return _violation(text, reads, placed, latest)
    return None


def _wrong_answer(
    log: _Log, read: Operation, expected: tuple[Pair, ...], reads: list[Operation]
) -> Violation:
    seen = read.seen or ()
    same = 0
    while same < min(len(seen), len(expected)) and seen[same] == expected[same]:
        same += 1
    asked = f"a read from {read.start} that saw the commit offset {read.end}"
    if same < len(expected) and (same == len(seen) or seen[same][0] > expected[same][0]):
        offset, value = expected[same]
        lacking = log.entries[bisect_left(log.offsets, offset)]
        text = f"{asked} lacks value {value} at offset {offset}"
        return _violation(text, reads, (read.end, read), lacking)
    offset, value = seen[same]
    if offset < read.start:
        why = "below its start"
    elif offset >= read.end:
        why = "not committed then"
    elif same == read.limit:
        why = f"beyond its limit of {read.limit}"
    else:
        why = "out of order"
    return Violation(f"{asked} shows value {value} at offset {offset}, {why}", (read,))


def _violation(text: str, reads: list[Operation], *involved: Placed) -> Violation:
    """Adds, for each unanswered append involved, a read that tells its place."""
    witnesses = [
        _witness((place, op.value), reads)
        for place, op in involved
        if op.kind == "append" and op.reply is None
    ]
    return Violation(text, tuple(dict.fromkeys([*(op for _, op in involved), *witnesses])))


def _witness(pair: Pair, reads: list[Operation]) -> Operation:
    return next(read for read in reads if read.seen is not None and pair in read.seen)


def _named(placed: Placed) -> str:
    place, op = placed
    if op.kind == "append":
        return f"the append of {op.value} at offset {place}"
    return f"the read that saw the commit offset {place}"
