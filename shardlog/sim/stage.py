"""A stage for scripted stories: the real machines, perfect disks, and nothing left to chance.

Every message stays in flight until the script delivers or drops it, and time passes only when the
script says so.  Disks sync at once and the metadata store answers at once, so one command has one
outcome and a transcript of it can be compared byte by byte.  Faults are dealt by name: a crash
right after a given message, a corrupt entry, a wiped volume.

Observers watch as they do in a `World`; of the world itself they ask only for `nodes`,
`history()` and how many `restores` there were.  A checker that finds something wrong does not stop
the play: its verdict is noted, the checker is dismissed, and the script may go on to show what
comes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from shardlog.protocol.coordination import (
    Accepted,
    CompareAndSwap,
    CoordinatorEvent,
    CoordinatorLimits,
    Loaded,
    Rejected,
    Swapped,
)
from shardlog.protocol.effects import Event, Limits, ReadFailed, Tick
from shardlog.protocol.entry import Header, Member
from shardlog.protocol.messages import Envelope
from shardlog.protocol.replica import Replica
from shardlog.protocol.shard import Shard
from shardlog.sim.failures import SafetyFailure
from shardlog.sim.linearizability import Operation
from shardlog.sim.observer import Observer
from shardlog.sim.stage_actors import StageClient, StageNode, StageOperator

if TYPE_CHECKING:
    from shardlog.sim.world import World

TICK_MS = 50
DELIVERIES_MAX = 10_000
"""More in one command means that two machines answer each other for ever."""

STORE = "store"
"""The metadata store, as the source of links that are held."""

WRITE = "write"
"""What `Stage.doom` calls a compare-and-swap that stands."""


class Narrator(Observer):
    """An observer that also hears what only a stage can tell."""

    def on_deliver(self, envelope: Envelope, lost: str) -> None:
        """A message arrives; or it is `lost`, and why."""

    def on_write(self, operator: str, version: int, shard: Shard | None) -> None:
        """A compare-and-swap stands."""

    def on_lost_race(self, operator: str, version: int) -> None:
        """A compare-and-swap came too late."""

    def on_answer(self, operator: str, answer: Accepted | Rejected) -> None:
        """A command was taken, or refused."""

    def on_verdict(self, text: str) -> None:
        """A checker saw something that must never be, or a machine stopped."""


@dataclass(frozen=True, slots=True)
class Link:
    """One direction; `*` is anyone.  With a `kind`, only messages of that type."""

    src: str
    dst: str
    kind: str = ""

    def carries(self, envelope: Envelope) -> bool:
        if self.kind and self.kind != type(envelope.message).__name__:
            return False
        return self.src in ("*", envelope.src) and self.dst in ("*", envelope.dst)


@dataclass(slots=True)
class Backups:
    """The records that stood, by version, and how often the store was set back to one."""

    records: dict[int, Shard] = field(default_factory=dict)
    count: int = 0


class Unharmed:
    """What checkers ask of a world in which nothing is cut by people's word."""

    cuts: tuple[tuple[int, int], ...] = ()
    known: tuple[Header, ...] = ()
    left: frozenset[tuple[Member, Header]] = frozenset()

    @staticmethod
    def is_left(replica: Replica) -> bool:
        return False


class Stage:
    """See the module."""

    def __init__(
        self,
        narrator: Narrator,
        checkers: Sequence[Observer],
        limits: Limits,
        coordinator_limits: CoordinatorLimits,
    ) -> None:
        self.narrator = narrator
        self.checkers = list(checkers)
        self.limits = limits
        self.coordinator_limits = coordinator_limits
        self.nodes: dict[str, StageNode] = {}
        self.operators: dict[str, StageOperator] = {}
        self.clients: dict[str, StageClient] = {}
        self.losses = Unharmed()
        self.revision = 0
        self.record: Shard | None = None
        self.restores = Backups()
        self.now_ms = 1000
        # In the order of sending.
        self.flights: list[Envelope] = []
        self.held: list[Link] = []
        self.cuts: list[Link] = []
        self.verdicts: list[str] = []
        # Who dies right after sending which message for the n-th time.
        self.doomed: dict[str, tuple[str, int]] = {}
        # Who sent or wrote what so far: each of these is a step at which one may die.
        self.acts: list[tuple[str, str]] = []
        self._soon: list[tuple[StageNode | StageOperator, Event | CoordinatorEvent]] = []
        self._instant = 0
        self._draws = 0
        self._values: dict[bytes, int] = {}

    # --- the cast --------------------------------------------------------------------------------

    def node(self, name: str) -> StageNode:
        return self.nodes.setdefault(name, StageNode(self, name))

    def operator(self, name: str) -> StageOperator:
        """An operator reads the record as soon as it is there."""
        if name not in self.operators:
            self.operators[name] = StageOperator(self, name)
            self.operators[name].step(Tick())
            self.settle()
        return self.operators[name]

    def client(self, name: str) -> StageClient:
        return self.clients.setdefault(name, StageClient(self, name))

    def actor(self, name: str) -> StageNode | StageOperator | StageClient:
        for cast_list in (self.nodes, self.operators, self.clients):
            if name in cast_list:
                return cast_list[name]
        raise ValueError(f"there is no {name}")

    def number_of(self, client: str) -> int:
        return list(self.clients).index(client)

    def value_of(self, body: bytes) -> int:
        return self._values.setdefault(body, len(self._values) + 1)

    def next_draw(self) -> int:
        """For the ids of elections: no two lives of operators draw the same."""
        self._draws += 1
        return self._draws << 32

    def instant(self) -> int:
        """On a stage no two things happen at the same time."""
        self._instant += 1
        return self._instant

    def history(self) -> list[Operation]:
        return [
            operation
            for client in self.clients.values()
            for operation in (*client.operations.values(), *client.reads.values())
        ]

    # --- watching --------------------------------------------------------------------------------

    def watch(self, what: str, *seen: object) -> None:
        world = cast("World", self)
        ignored = getattr(Observer, what)
        for observer in (self.narrator, *self.checkers):
            if getattr(type(observer), what) is ignored:
                continue
            try:
                getattr(observer, what)(world, *seen)
            except SafetyFailure as failure:
                self.checkers.remove(observer)
                self.note(failure.text)

    def note(self, verdict: str) -> None:
        self.verdicts.append(verdict)
        self.narrator.on_verdict(verdict)

    # --- the store -------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        return self.revision if self.record is not None else 0

    def swap(self, operator: StageOperator, wanted: CompareAndSwap) -> None:
        """Takes effect at once, and the other operators hear of it at once, unless held."""
        done = wanted.version == self.version
        if done:
            self._keep(wanted.shard)
            self.narrator.on_write(operator.name, self.revision, wanted.shard)
            self.watch("on_store", self.revision, wanted.shard)
            self.spread_news()
        else:
            self.narrator.on_lost_race(operator.name, wanted.version + 1)
        self.soon(operator, Swapped(done, self.version, self.record))
        if done:
            self._strike(operator.name, WRITE)

    def restore(self, version: int) -> None:
        """The store is set back to what it held then, under a new version."""
        record = self.restores.records[version]
        self.restores.count += 1
        self._keep(record)
        self.watch("on_restore", record)
        self.spread_news()
        self.settle()

    def _keep(self, record: Shard | None) -> None:
        self.revision += 1
        self.record = record
        if record is not None:
            self.restores.records[self.revision] = record

    def spread_news(self) -> None:
        """What a watch brings; a coordinator ignores what it knows already."""
        for name, operator in self.operators.items():
            if operator.coordinator.version >= 0 and Link(STORE, name) not in self.held:
                self.soon(operator, Loaded(self.version, self.record))

    # --- messages --------------------------------------------------------------------------------

    def send(self, envelope: Envelope) -> None:
        self.watch("on_send", envelope)
        if not any(link.carries(envelope) for link in self.cuts):
            self.flights.append(envelope)
        self._strike(envelope.src, type(envelope.message).__name__)

    def in_flight(self, links: Sequence[Link], kind: str = "") -> list[Envelope]:
        return [
            envelope
            for envelope in self.flights
            if any(link.carries(envelope) for link in links)
            and kind in ("", type(envelope.message).__name__)
        ]

    def deliver_next(self, links: Sequence[Link], kind: str = "") -> bool:
        """The oldest message that matches and is not held; False if there is none."""
        for envelope in self.in_flight(links, kind):
            if not any(link.carries(envelope) for link in self.held):
                self.flights.remove(envelope)
                self.hand_over(envelope)
                return True
        return False

    def deliver(self, links: Sequence[Link], kind: str = "") -> int:
        """All that matches and is not held, and what it leads to, until nothing is left."""
        for count in range(DELIVERIES_MAX):
            if not self.deliver_next(links, kind):
                return count
        raise ValueError("it never comes to rest")

    def hand_over(self, envelope: Envelope) -> None:
        actor = self.actor(envelope.dst)
        self.narrator.on_deliver(envelope, "" if actor.up else "down")
        if actor.up:
            actor.receive(envelope)
        self.settle()

    def drop(self, links: Sequence[Link], kind: str = "") -> list[Envelope]:
        lost = self.in_flight(links, kind)
        for envelope in lost:
            self.flights.remove(envelope)
        return lost

    def soon(self, actor: StageNode | StageOperator, event: Event | CoordinatorEvent) -> None:
        """What disks and the store answer: before anything else happens."""
        self._soon.append((actor, event))

    def settle(self) -> None:
        while self._soon:
            actor, event = self._soon.pop(0)
            if actor.up:
                actor.step(event)  # type: ignore[arg-type]

    # --- time and faults -------------------------------------------------------------------------

    def tick(self, ms: int) -> None:
        self.now_ms += ms
        actors: list[StageNode | StageOperator] = [*self.operators.values(), *self.nodes.values()]
        for actor in actors:
            if actor.up:
                actor.step(Tick())
                self.settle()

    def doom(self, name: str, kind: str, count: int = 1) -> None:
        self.doomed[name] = (kind, count)

    def _strike(self, name: str, kind: str) -> None:
        self.acts.append((name, kind))
        awaited, count = self.doomed.get(name, ("", 0))
        if awaited != kind:
            return
        del self.doomed[name]
        if count == 1:
            self.crash(name)
        else:
            self.doom(name, kind, count - 1)

    def crash(self, name: str) -> None:
        actor = self.actor(name)
        actor.up = False
        self._soon = [(who, event) for who, event in self._soon if who is not actor]
        self.watch("on_crash", name)

    def restart(self, name: str) -> None:
        actor = self.actor(name)
        if isinstance(actor, StageClient):
            raise ValueError("clients do not restart")
        actor.restart()
        self.watch("on_restart", name)
        if isinstance(actor, StageOperator):
            actor.step(Tick())
        self.settle()

    def wipe(self, name: str) -> None:
        self.nodes[name].disk.wipe()
        self.watch("on_wipe", name)

    def damage(self, name: str, base: int, *, header_too: bool) -> None:
        """A node that is up finds it at once, as a scrub would; one that is down, at its start."""
        node = self.nodes[name]
        node.disk.damage(base, header_too=header_too)
        if node.up:
            node.step(ReadFailed(base))
            self.settle()
