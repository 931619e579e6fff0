"""Coordinators in the explorer: one event, with all the writes that it leads to, is one step.

A write to the metadata takes effect, and is answered, within the step.  The coordinator waits for
that answer anyway, and whatever it hears meanwhile it may also hear later; the write fails exactly
if another coordinator's came first, which the order of steps decides.  A coordinator that dies
after a write stands is explored as a crash.

Three events exist only here.  `Suspect` stands for all the ways in which a coordinator comes to
hold an election for needed, which the suspicion rules bound in time, and which safety must not
depend on.  `Polled` is a status request and its answer in one, and `Learn` the watch on the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from shardlog.protocol import electing
from shardlog.protocol.coordination import (
    CompareAndSwap,
    CoordinatorEffect,
    CoordinatorEvent,
    CoordinatorLimits,
    Load,
    Loaded,
    Swapped,
)
from shardlog.protocol.coordinator import Coordinator
from shardlog.protocol.effects import Received, Send, Tick
from shardlog.protocol.messages import (
    Envelope,
    Fence,
    InstallSnapshot,
    Message,
    PauseWrites,
    SnapshotRequest,
    StatusRequest,
)
from shardlog.protocol.shard import Shard
from shardlog.sim.explore_messages import Reduction
from shardlog.sim.explore_replicas import NOW_MS, SHARD
from shardlog.sim.explore_values import canonical, copied, key

LIMITS = CoordinatorLimits()

JOINS = (StatusRequest, SnapshotRequest, InstallSnapshot, PauseWrites)
"""What brings a new node in, since reduced worlds begin when it has been; and what prepares a
hand-over, since an election comes at any moment anyway."""


@dataclass(frozen=True, slots=True)
class Store:
    """The metadata: one record and its version."""

    version: int
    record: Shard | None


@dataclass(frozen=True, slots=True)
class Suspect:
    """The coordinator holds an election for needed."""


@dataclass(frozen=True, slots=True)
class Learn:
    """The watch tells the record as it stands."""


@dataclass(frozen=True, slots=True)
class Polled:
    """The leader's report has just come in, and the coordinator looks after the shard."""

    answer: Envelope


CoordinatorInput = CoordinatorEvent | Suspect | Learn | Polled


@dataclass(frozen=True, slots=True)
class Driven:
    """What one step did.  `stores` are all that it wrote, in order."""

    after: Coordinator
    store: Store
    stores: tuple[Store, ...]
    sent: tuple[Envelope, ...]


def settled(c: Coordinator) -> Coordinator:
    """The canonical form.  Everything is due again at once; what was seen has been judged."""
    c.now_ms = 0
    c.healthy_ms = c.changed_ms = NOW_MS
    c.polled_ms = c.sent_ms = -1
    c.alert_until_ms = NOW_MS
    c.paused_ms = NOW_MS if c.target else -1
    c.bad_reports = 0
    c.seen, c.lost = {}, {}
    if c.record is not None and c.record.preferred is not None:
        c.record = replace(c.record, preferred=None)
    if c.election is not None:
        c.election.sent_ms = -1
        c.election.started_ms = NOW_MS
        c.election.waiting = None
    ordered: Coordinator = canonical(c)
    return ordered


def started(name: str, store: Store) -> Coordinator:
    """A coordinator that has just come up and read the record."""
    c = Coordinator(name, SHARD, LIMITS)
    c.step(NOW_MS, Loaded(store.version, store.record))
    return settled(c)


def steps(
    state: Coordinator, store: Store, event: CoordinatorInput, reduction: Reduction = Reduction.NONE
) -> list[Driven]:
    """What the coordinator may do now: more than one thing only where names would decide.

    Where several replicas would make equally good leaders the machine takes the first by name,
    unless the record prefers one.  Every one of them is preferred here, each in its own branch:
    only so are nodes interchangeable.
    """
    first = _step(state, store, event, None, reduction)
    found = {key(first.after): first}
    chosen = first.after.election and first.after.election.asked
    before = state.election and state.election.asked
    if chosen and not before and state.record is not None:
        for member in state.record.final_ensemble:
            other = _step(state, store, event, member.node, reduction)
            election = other.after.election
            if election and election.asked and election.asked[0] == member:
                found.setdefault(key(other.after), other)
    return list(found.values())


def crashes(
    state: Coordinator, store: Store, event: CoordinatorInput, reduction: Reduction = Reduction.NONE
) -> list[Driven]:
    """The coordinator dies after each of its writes but the last, and another life begins.

    After the last write, and between steps, is a crash of its own.
    """
    name = state.name
    driven = _step(state, store, event, None, reduction)
    return [Driven(started(name, each), each, (each,), ()) for each in driven.stores[:-1]]


def _step(
    state: Coordinator,
    store: Store,
    event: CoordinatorInput,
    preferred: str | None,
    reduction: Reduction,
) -> Driven:
    c = copied(state)
    if preferred is not None and c.record is not None:
        c.record = replace(c.record, preferred=preferred)
    sent: list[Envelope] = []
    stores: list[Store] = []
    waiting: list[CoordinatorEffect] = []
    reduced = Reduction.LEFTOVERS in reduction
    unsent: tuple[type[Message], ...] = JOINS if reduced else (StatusRequest,)
    fenced_once = Reduction.FENCES in reduction and isinstance(event, Polled)
    if reduced and c.record is not None and c.record.joining:
        c.installed = True
    for effects in _inputs(c, store, event):
        waiting += effects
        while waiting:
            effect = waiting.pop(0)
            if isinstance(effect, Send):
                again = fenced_once and _fences_again(c, effect.envelope)
                if not again and not isinstance(effect.envelope.message, unsent):
                    sent.append(effect.envelope)
            elif isinstance(effect, CompareAndSwap):
                done = effect.version == store.version
                if done and effect.shard:
                    store = Store(store.version + 1, _unpreferred(effect.shard))
                    stores.append(store)
                waiting += c.step(NOW_MS, Swapped(done, store.version, store.record))
            elif isinstance(effect, Load):
                waiting += c.step(NOW_MS, Loaded(store.version, store.record))
    if reduced:
        c.target = None
    return Driven(settled(c), store, tuple(stores), tuple(sent))


def _fences_again(c: Coordinator, envelope: Envelope) -> bool:
    """To a member, not to a node that joins, which could not be announced to otherwise."""
    joining = c.record.joining.node if c.record and c.record.joining else None
    return isinstance(envelope.message, Fence) and envelope.dst != joining


def _inputs(
    c: Coordinator, store: Store, event: CoordinatorInput
) -> Iterator[list[CoordinatorEffect]]:
    """Time is such that everything is due, and nothing has timed out."""
    if isinstance(event, Suspect):
        assert c.record is not None
        c.now_ms, c.out = NOW_MS, []
        electing.start(c, c.record)
        effects, c.out = c.out, []
        yield effects
    elif isinstance(event, Learn):
        yield c.step(NOW_MS, Loaded(store.version, store.record))
    elif isinstance(event, Polled):
        yield c.step(NOW_MS, Received(event.answer))
        yield c.step(NOW_MS, Tick())
    else:
        yield c.step(NOW_MS, event)


def _unpreferred(record: Shard) -> Shard:
    return replace(record, preferred=None)
