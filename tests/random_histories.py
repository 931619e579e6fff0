"""Random client histories: true ones from a log that acts at an instant, and spoilt ones.

All randomness comes from the `Random` passed in, so a seed names a history.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from shardlog.sim.linearizability import Operation

History = list[Operation]


@dataclass(slots=True)
class _Flight:
    """A call on its way: it takes effect at most once, and is answered only after that."""

    call: Operation
    result: Operation | None = None
    abandoned: bool = False


@dataclass(slots=True)
class _AtomicLog:
    rng: Random
    entries: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0

    def apply(self, op: Operation, now: int) -> Operation:
        if self.rng.random() < 0.15:
            self.end += self.rng.randint(1, 2)  # control entries
        if op.kind == "append":
            offset = self.end
            self.entries.append((offset, op.value))
            self.end += op.count
            return replace(op, reply=now, offset=offset)
        since = bisect_left(self.entries, (op.start, 0))
        seen = tuple(self.entries[since : since + op.limit])
        return replace(op, reply=now, seen=seen, end=self.end)


def true_history(rng: Random, operations: int, clients: int, loss: float = 0.08) -> History:
    """A linearizable history; `loss` is the chance of a lost request, and of a lost reply."""
    log = _AtomicLog(rng)
    idle = list(range(clients))
    flights: list[_Flight] = []
    history: History = []
    started = now = 0
    while started < operations or flights:
        now += rng.choice((0, 1, 1, 2))
        may_start = started < operations and bool(idle)
        if may_start and (not flights or rng.random() < 0.4):
            client = idle.pop(rng.randrange(len(idle)))
            flights.append(_Flight(_call(rng, client, now, started, log.end)))
            started += 1
            continue
        flight = rng.choice(flights)
        lost = rng.random() < (0.5 if flight.abandoned else loss)
        if flight.result is None and not lost:
            flight.result = log.apply(flight.call, now)
            if not flight.abandoned:
                continue
        if flight.abandoned:
            flights.remove(flight)
            continue
        idle.append(flight.call.client)
        if lost:
            history.append(flight.call)
            flight.abandoned = True
        else:
            assert flight.result is not None
            history.append(replace(flight.result, reply=now))
            flights.remove(flight)
    return sorted(history, key=lambda op: op.call)


def _call(rng: Random, client: int, now: int, value: int, end: int) -> Operation:
    if rng.random() < 0.5:
        return Operation(client, now, None, "append", value=value, count=rng.randint(1, 3))
    start = rng.choice((0, 0, rng.randint(0, end), end, end + 1))
    return Operation(client, now, None, "read", start=start, limit=rng.choice((1, 2, 4, 100)))


def spoilt_history(rng: Random, history: History) -> History:
    """One to three changes planted; by chance what is left may still be linearizable."""
    spoilt = list(history)
    for _ in range(rng.randint(1, 3)):
        before = list(spoilt)
        for change in rng.sample((*LIES, forget_reply), k=3):
            if spoilt == before:
                change(rng, spoilt)
    return spoilt


def _pick(rng: Random, history: History, fit: Callable[[Operation], bool]) -> int | None:
    places = [i for i, op in enumerate(history) if op.reply is not None and fit(op)]
    return rng.choice(places) if places else None


def _is_append(op: Operation) -> bool:
    return op.kind == "append"


def _is_read(op: Operation) -> bool:
    return op.kind == "read"


def _saw(op: Operation) -> bool:
    return bool(op.seen)


def swap_offsets(rng: Random, history: History) -> None:
    """Two appends exchange their offsets, with reads following or not."""
    i, j = _pick(rng, history, _is_append), _pick(rng, history, _is_append)
    if i is None or j is None:
        return
    one, two = history[i], history[j]
    history[i], history[j] = replace(one, offset=two.offset), replace(two, offset=one.offset)
    if rng.random() < 0.5:
        renamed = {one.value: two.value, two.value: one.value}
        for k, op in enumerate(history):
            if op.seen:
                pairs = tuple((offset, renamed.get(value, value)) for offset, value in op.seen)
                history[k] = replace(op, seen=pairs)


def move_append(rng: Random, history: History) -> None:
    i = _pick(rng, history, _is_append)
    if i is not None:
        offset = (history[i].offset or 0) + rng.choice((-2, -1, 1, 2))
        history[i] = replace(history[i], offset=offset)


def drop_entry(rng: Random, history: History) -> None:
    i = _pick(rng, history, _saw)
    if i is not None:
        seen = list(history[i].seen or ())
        del seen[rng.randrange(len(seen))]
        history[i] = replace(history[i], seen=tuple(seen))


def stale_read(rng: Random, history: History) -> None:
    """A read answers from a shorter log, true to itself."""
    i = _pick(rng, history, _is_read)
    if i is None:
        return
    ends = [op.end for op in history if op.kind == "read" and op.end < history[i].end]
    end = rng.choice([0, *ends, rng.randint(0, max(0, history[i].end))])
    seen = tuple(pair for pair in history[i].seen or () if pair[0] < end)
    history[i] = replace(history[i], seen=seen, end=end)


def wrong_end(rng: Random, history: History) -> None:
    i = _pick(rng, history, _is_read)
    if i is not None:
        history[i] = replace(history[i], end=history[i].end + rng.choice((-3, -1, 1, 2, 5)))


def duplicate_value(rng: Random, history: History) -> None:
    """One value stands twice in what a read saw, at one offset or at two."""
    i = _pick(rng, history, _saw)
    if i is not None:
        seen = list(history[i].seen or ())
        offset, value = rng.choice(seen)
        seen.append((offset + rng.randint(0, 4), value))
        history[i] = replace(history[i], seen=tuple(sorted(seen)), limit=history[i].limit + 1)


def phantom_value(rng: Random, history: History) -> None:
    """A read shows what nobody appended, or an append that no reply tells of."""
    i = _pick(rng, history, _is_read)
    if i is not None:
        pending = [op.value for op in history if op.kind == "append" and op.reply is None]
        pair = (rng.randint(0, max(0, history[i].end)), rng.choice([1_000_000, *pending]))
        seen = tuple(sorted([*(history[i].seen or ()), pair]))
        history[i] = replace(history[i], seen=seen)


def disorder(rng: Random, history: History) -> None:
    i = _pick(rng, history, _saw)
    if i is not None:
        seen = list(history[i].seen or ())
        rng.shuffle(seen)
        history[i] = replace(history[i], seen=tuple(seen))


def wrong_request(rng: Random, history: History) -> None:
    """A read is answered as if it had asked for something else."""
    i = _pick(rng, history, _is_read)
    if i is not None:
        limit = max(1, history[i].limit + rng.choice((-1, 0, 1)))
        start = max(0, history[i].start + rng.choice((-2, 0, 1, 2)))
        history[i] = replace(history[i], limit=limit, start=start)


def reorder_real_time(rng: Random, history: History) -> None:
    """An operation happened somewhat earlier or later than it did."""
    i = _pick(rng, history, lambda _: True)
    if i is not None:
        op = history[i]
        shift = rng.choice((-1, 1)) * rng.randint(1, 12)
        history[i] = replace(op, call=op.call + shift, reply=(op.reply or 0) + shift)


def forget_reply(rng: Random, history: History) -> None:
    """No lie: who knows less has no more to explain."""
    i = _pick(rng, history, lambda _: True)
    if i is not None:
        history[i] = replace(history[i], reply=None, offset=None, seen=None, end=0)


def late_call(rng: Random, history: History) -> None:
    """An unanswered append is called later than it was, perhaps after it was seen."""
    places = [i for i, op in enumerate(history) if op.kind == "append" and op.reply is None]
    if places:
        i = rng.choice(places)
        history[i] = replace(history[i], call=history[i].call + rng.randint(1, 20))


LIES: tuple[Callable[[Random, History], None], ...] = (
    swap_offsets,
    move_append,
    drop_entry,
    stale_read,
    wrong_end,
    duplicate_value,
    phantom_value,
    disorder,
    wrong_request,
    reorder_real_time,
    late_call,
)
