"""A replica on a perfect disk, and how to bring it into any state by real messages.

Everything of the protocol is real; only what a driver does is played here, as simply as it can be:
what is performed is durable.  The invariants are checked after every step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import combinations, pairwise, takewhile
from types import MappingProxyType
from typing import Any, TypeVar

from shardlog.protocol.effects import (
    Barrier,
    Effect,
    Erase,
    Event,
    Format,
    Limits,
    ReadFailed,
    Received,
    Recovered,
    ResetLog,
    RewriteEntry,
    Send,
    SendEntries,
    SendFetched,
    ServeRead,
    Superblock,
    Sync,
    Synced,
    Tick,
    TrimLog,
    TruncateLog,
    WriteEntries,
    WriteSuperblock,
)
from shardlog.protocol.entry import (
    GENESIS_CHECKSUM,
    Entry,
    Header,
    Kind,
    Member,
    sealed,
    unreadable,
)
from shardlog.protocol.failures import Refusal
from shardlog.protocol.history import OPEN_END, History, Span, epoch_at
from shardlog.protocol.leadership import Leadership
from shardlog.protocol.log import Mark
from shardlog.protocol.messages import (
    Ack,
    Announce,
    BecomeLeader,
    ClientRefused,
    Create,
    Entries,
    Envelope,
    Fence,
    FenceAnswer,
    Fetched,
    Kept,
    Message,
    ReadResult,
    Refused,
)
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.replica import Replica
from shardlog.protocol.sessions import session_of
from shardlog.protocol.states import Role
from shardlog.sim.seal import seal, seal_body

SHARD = "orders"
OPERATOR = "op"
CLIENT = "client"
LIMITS = Limits()
MAJORITY = QuorumPolicy()

M = TypeVar("M")


def chain(
    epochs: Iterable[int],
    *,
    start: int = 0,
    parent: int = GENESIS_CHECKSUM,
    count: int = 1,
    kind: Kind = Kind.DATA,
    body: bytes = b"",
) -> list[Header]:
    """A piece of log, one entry for each of `epochs`."""
    headers: list[Header] = []
    for epoch in epochs:
        checksum = seal_body(body or f"{epoch}@{start}".encode())
        header = sealed(seal, epoch, start, count, kind, 0, 0, 0, parent, checksum)
        headers.append(header)
        start, parent = header.end, header.checksum
    return headers


def chain_under(limits: Limits, epochs: Sequence[int]) -> list[Header]:
    """The same, but its first entry is an epoch start that names the limits of sessions."""
    first = sealed(
        seal, epochs[0], 0, 1, Kind.EPOCH_START, limits.sessions_max, limits.replies_max, 0,
        GENESIS_CHECKSUM, 0,
    )  # fmt: skip
    return [first, *chain(epochs[1:], start=1, parent=first.checksum)]


def session_at(node: Node, base: int) -> int:
    """The name of the session that was opened there."""
    header = node.replica.log.starting_at(base)
    assert header is not None
    return session_of(header)


def entries(headers: Iterable[Header]) -> tuple[Entry, ...]:
    """The entries that `chain` made the headers of."""
    return tuple(Entry(each, f"{each.epoch}@{each.base}".encode()) for each in headers)


def history_of(headers: Iterable[Header]) -> History:
    firsts: dict[int, int] = {}
    for header in headers:
        firsts.setdefault(header.epoch, header.base)
    return tuple(Span(epoch, first) for epoch, first in firsts.items())


# --- one replica -------------------------------------------------------------------------------


class Disk:
    """What is performed is durable.  `bad` says which entries can no longer be read."""

    def __init__(self) -> None:
        self.superblock: Superblock | None = None
        self.entries: dict[int, Entry] = {}
        self.bad: dict[int, Mark] = {}
        self._reset(0, GENESIS_CHECKSUM)

    def _reset(self, first: int, boundary: int) -> None:
        self.first, self.boundary, self.ridden_commit = first, boundary, 0
        self.entries.clear()
        self.bad.clear()

    def perform(self, effect: object) -> None:
        if isinstance(effect, Format | Erase):
            self._reset(0, GENESIS_CHECKSUM)
            self.superblock = effect.superblock if isinstance(effect, Format) else None
        elif isinstance(effect, WriteSuperblock):
            self.superblock = effect.superblock
        elif isinstance(effect, WriteEntries):
            self.entries |= {entry.header.base: entry for entry in effect.entries}
            self.ridden_commit = effect.commit
        elif isinstance(effect, RewriteEntry):
            self.entries[effect.entry.header.base] = effect.entry
            self.bad.pop(effect.entry.header.base, None)
        elif isinstance(effect, ResetLog):
            self._reset(effect.first, effect.boundary)
        elif isinstance(effect, TruncateLog):
            self._keep(base for base in self.entries if base < effect.end)
        elif isinstance(effect, TrimLog):
            ends = {each.header.end: each.header.checksum for each in self.entries.values()}
            self.first, self.boundary = effect.first, ends.get(effect.first, self.boundary)
            self._keep(base for base in self.entries if base >= effect.first)

    def _keep(self, bases: Iterable[int]) -> None:
        kept = set(bases)
        self.entries = {base: self.entries[base] for base in sorted(kept)}
        self.bad = {base: mark for base, mark in self.bad.items() if base in kept}

    def recovered(self) -> Recovered:
        assert self.superblock
        headers = [self.entries[base].header for base in sorted(self.entries)]
        commit = max(self.superblock.commit, self.ridden_commit, self.first)
        found, marks = damaged(headers, self.superblock.history, commit, self.bad)
        end = found[-1].end if found else self.first
        superblock = replace(self.superblock, commit=min(commit, end))
        bad = (self.bad.get(header.base) is Mark.FAULT for header in reversed(headers))
        tail = sum(1 for _ in takewhile(bool, bad))
        return Recovered(superblock, self.first, self.boundary, tuple(found), tuple(marks), tail)


def damaged(
    headers: Iterable[Header], history: History, commit: int, bad: Mapping[int, Mark]
) -> tuple[list[Header], list[tuple[int, Mark]]]:
    """What a start finds of `headers`: a FAULT takes the header too, and at the tail the end."""
    found: list[Header] = []
    marks: list[tuple[int, Mark]] = []
    hole: int | None = None

    def close(end: int | None) -> None:
        if hole is None:
            return
        cuts = {span.first for span in history} | ({commit} if end is None else set())
        starts = [hole, *sorted(cut for cut in cuts if hole < cut and (not end or cut < end))]
        for base, upto in pairwise([*starts, end or starts[-1]]):
            found.append(unreadable(epoch_at(history, base), base, upto - base))
            marks.append((base, Mark.FAULT))

    for header in headers:
        mark = bad.get(header.base)
        if mark is Mark.FAULT:
            hole = header.base if hole is None else hole
            continue
        close(header.base)
        hole = None
        found.append(header)
        if mark is not None:
            marks.append((header.base, mark))
    close(None)
    return found, marks


def crashes(effects: Iterable[Effect]) -> Iterator[list[Effect]]:
    """All that a crash may leave: nothing behind a Barrier lands before all that is before it."""
    done: list[Effect] = []
    group: list[Effect] = []
    for effect in [*effects, Barrier()]:
        if isinstance(effect, Barrier):
            for size in range(len(group) + 1):
                yield from ([*done, *landed] for landed in combinations(group, size))
            done, group = done + group, []
        elif not isinstance(effect, Send | SendEntries | SendFetched | ServeRead | Sync):
            group.append(effect)


class Node:
    """A replica and its disk."""

    def __init__(self, name: str, limits: Limits = LIMITS) -> None:
        self.name = name
        self.limits = limits
        self.now_ms = 0
        self.disk = Disk()
        self.replica = Replica(SHARD, name, limits, seal)
        # Every change of role, and how far the commit offset has been checked.
        self.roles: list[tuple[Role, Role]] = []
        self.checked = 0

    @property
    def member(self) -> Member:
        return self.replica.member

    def envelope(self, message: Message, src: Member | str = OPERATOR) -> Envelope:
        node, incarnation = src if isinstance(src, Member) else (src, 0)
        to = 0 if isinstance(message, Create) else self.replica.incarnation
        return Envelope(SHARD, node, incarnation, self.name, to, message)

    def step(self, event: Event) -> list[Effect]:
        """One step of the machine; nothing is performed."""
        before = self.replica.role, self.replica.commit, self.replica.epoch
        effects = self.replica.step(self.now_ms, event)
        self.roles.append((before[0], self.replica.role))
        check_invariants(self.replica, *before)
        return effects

    def take(self, message: Message, src: Member | str = OPERATOR, draw: int = 0) -> list[Effect]:
        """One message; what it writes is performed, but the sync is not reported yet."""
        effects = self.step(Received(self.envelope(message, src), draw))
        self.perform(effects)
        return effects

    def receive(
        self, message: Message, src: Member | str = OPERATOR, draw: int = 0
    ) -> list[Effect]:
        """One message and all that follows, syncs included."""
        return self.finish(self.take(message, src, draw))

    def tick(self, ms: int = 0) -> list[Effect]:
        self.now_ms += ms
        effects = self.step(Tick())
        self.perform(effects)
        return self.finish(effects)

    def finish(self, effects: list[Effect]) -> list[Effect]:
        """Report the syncs among `effects`, and those that follow from it."""
        everything = list(effects)
        for effect in everything:
            if isinstance(effect, Sync):
                more = self.step(Synced(effect.token))
                self.perform(more)
                everything += more
        return everything

    def perform(self, effects: Iterable[object]) -> None:
        for effect in effects:
            self.disk.perform(effect)

    def restart(self) -> None:
        """The process dies, and comes back with what is on disk."""
        self.checked = 0
        if self.disk.superblock is None:
            self.replica = Replica(SHARD, self.name, self.limits, seal)
        else:
            self.replica = Replica.restart(
                SHARD, self.name, self.limits, seal, self.disk.recovered()
            )

    def answer(self) -> FenceAnswer:
        """What it would say to a fence at its epoch; it has to be Fenced."""
        return only(self.receive(Fence(self.replica.epoch)), FenceAnswer)

    def read(self, effect: SendEntries | SendFetched | ServeRead) -> Envelope | None:
        """The message that a driver makes of it, up to the first entry that cannot be read."""
        found: list[Entry] = []
        for header in effect.headers:
            if header.base in self.disk.bad:
                self.step(ReadFailed(header.base))
                break
            found.append(self.disk.entries[header.base])
        message: Message
        if isinstance(effect, ServeRead):
            to = Member(effect.client, 0)
            message = ReadResult(effect.nonce, tuple(found), effect.commit)
        elif not found:
            return None
        elif isinstance(effect, SendEntries):
            to = effect.to
            message = Entries(effect.epoch, tuple(found), effect.commit, effect.first)
        else:
            to = effect.to
            message = Fetched(effect.epoch, tuple(found), effect.more)
        return Envelope(SHARD, self.name, self.replica.incarnation, *to, message)


LEADER = Member("a", 1)


def fenced(name: str = "b", epoch: int = 1, limits: Limits = LIMITS) -> Node:
    """A new replica, Fenced at `epoch`."""
    node = Node(name, limits)
    node.receive(Create(), draw=1)
    node.receive(Fence(epoch))
    return node


def follower(
    headers: Sequence[Header],
    commit: int = 0,
    *,
    epoch: int = 1,
    standby: bool = False,
    limits: Limits = LIMITS,
) -> Node:
    """A replica that follows LEADER in `epoch` and has received `headers`."""
    node = fenced(epoch=epoch, limits=limits)
    history = history_of(headers)
    node.receive(Announce(epoch, history, 0, OPEN_END, 0, standby, None), LEADER)
    node.receive(Entries(epoch, entries(headers), commit, 0), LEADER)
    return node


def leading(
    headers: Sequence[Header] = (),
    *,
    epoch: int = 2,
    names: str = "abc",
    silent: str = "",
    policy: QuorumPolicy = MAJORITY,
    limits: Limits = LIMITS,
) -> Node:
    """A, which leads `epoch` with `headers`; all but the silent ones were fenced with the same."""
    leader = restarted("a", headers, limits=limits)
    leader.receive(Fence(epoch))
    answers = [fenced_answer(name, headers, epoch) for name in names if name not in ("a", *silent)]
    end, head = leader.replica.log.end, leader.replica.log.head_checksum
    leader.receive(
        BecomeLeader(
            epoch,
            tuple(Member(name, 1) for name in names),
            policy,
            Kept(history_of(headers), end, head),
            tuple(answer.member for answer in answers),
            tuple(answers),
        )
    )
    return leader


def lead_of(node: Node) -> Leadership:
    """What it keeps while it leads."""
    assert node.replica.lead
    return node.replica.lead


def fenced_answer(name: str, headers: Sequence[Header], epoch: int = 2) -> FenceAnswer:
    return only(restarted(name, headers).receive(Fence(epoch)), FenceAnswer)


def acked(leader: Node, name: str, end: int, beat: int = 0) -> list[Effect]:
    """What the leader does when `name` acknowledges everything below `end`."""
    return leader.receive(Ack(leader.replica.epoch, end, end, beat), Member(name, 1))


def restarted(
    name: str,
    headers: Sequence[Header],
    *,
    commit: int = 0,
    history: History | None = None,
    bad: Mapping[int, Mark] = MappingProxyType({}),
    limits: Limits = LIMITS,
) -> Node:
    """A replica that comes back with this on disk."""
    node = Node(name, limits)
    history = history_of(headers) if history is None else history
    epoch = history[-1].epoch if history else 0
    node.disk.superblock = Superblock(1, epoch, 0, history, commit, 0, (), None)
    node.perform([WriteEntries(entries(headers), commit)])
    node.disk.bad |= bad
    node.restart()
    return node


def aftermaths(node: Node, message: Message, src: Member | str = OPERATOR) -> Iterator[Node]:
    """The node as it may come back from a crash while it acts on `message`."""
    effects = node.step(Received(node.envelope(message, src)))
    for landed in crashes(effects):
        again = Node(node.name, node.limits)
        again.disk = deepcopy(node.disk)
        again.perform(landed)
        again.restart()
        yield again


def check_invariants(r: Replica, role: Role, commit: int, epoch: int) -> None:
    """What stands beside the fields of a replica, after a step from `role`, `commit`, `epoch`."""
    assert r.sessions.applied <= r.commit <= r.log.end, "apply index ≤ commit offset ≤ log"
    assert r.durable_end <= r.log.end
    assert r.led <= r.epoch
    assert (r.lead is not None) == (r.role is Role.LEADER)
    assert set(r.log.marks) <= set(r.log.bases)
    if r.role is not Role.NOT_MEMBER and role is not Role.NOT_MEMBER:
        assert r.commit >= commit, "a commit offset never falls"
        assert r.epoch >= epoch, "an epoch never falls"


def sent(effects: Iterable[object], kind: type[M]) -> list[M]:
    """The messages, or effects, of one type among `effects`."""
    messages = [each.envelope.message if isinstance(each, Send) else each for each in effects]
    return [each for each in messages if isinstance(each, kind)]


def only(effects: Iterable[object], kind: type[M]) -> M:
    found = sent(effects, kind)
    assert len(found) == 1, f"{len(found)} of {kind.__name__} in {effects}"
    return found[0]


def refusal(effects: Iterable[object]) -> Refusal | None:
    """The refusal among `effects`, if there is one."""
    found = [each.refusal for each in sent(effects, Refused)]
    found += [each.refusal for each in sent(effects, ClientRefused)]
    assert len(found) <= 1
    return found[0] if found else None


def snapshot(state: Any) -> Any:
    """All that a machine remembers, as nested tuples, but for the clock."""
    if isinstance(state, dict):
        return tuple((key, snapshot(value)) for key, value in sorted(state.items()))
    if isinstance(state, list | tuple):
        return tuple(snapshot(each) for each in state)
    if type(state).__module__.startswith("shardlog") and hasattr(state, "__slots__"):
        names = {name for kind in type(state).__mro__ for name in getattr(kind, "__slots__", ())}
        kept = sorted(names - {"now_ms", "out"})
        return type(state).__name__, tuple((name, snapshot(getattr(state, name))) for name in kept)
    return state
