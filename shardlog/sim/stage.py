"""A stage for scripted stories: the real machines, perfect disks, and nothing left to chance.

Every message stays in flight until the script delivers or drops it, and time passes only when the
script says so.  Disks sync at once and the metadata store answers at once, so one command has one
outcome and a transcript of it can be compared byte by byte.  Faults are dealt by name: a crash
right after a given message, a corrupt entry, a wiped volume.

Observers watch as they do in a `World`; of the world itself they ask only for `nodes` and
`history()`.  A checker that finds something wrong does not stop the play: its verdict is noted,
the checker is dismissed, and the script may go on to show what comes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from shardlog.protocol import electing
from shardlog.protocol.coordination import (
    Accepted,
    Command,
    Commanded,
    CompareAndSwap,
    CoordinatorEffect,
    CoordinatorEvent,
    CoordinatorLimits,
    Load,
    Loaded,
    Rejected,
    Swapped,
)
from shardlog.protocol.coordinator import Coordinator
from shardlog.protocol.effects import (
    Disk,
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
from shardlog.protocol.entry import GENESIS_CHECKSUM, Entry, Header
from shardlog.protocol.failures import CorruptEntry, ImpossibleState
from shardlog.protocol.messages import (
    Append,
    Appended,
    ClientRefused,
    Create,
    Entries,
    Envelope,
    Fetched,
    Message,
    Read,
    ReadResult,
    Register,
    Registered,
)
from shardlog.protocol.replica import Replica
from shardlog.protocol.shard import Shard
from shardlog.protocol.states import Role
from shardlog.sim.failures import SafetyFailure
from shardlog.sim.linearizability import Operation
from shardlog.sim.observer import Observer
from shardlog.sim.recovery import classify
from shardlog.sim.seal import seal, seal_body
from shardlog.sim.slot import Part, Slot

if TYPE_CHECKING:
    from shardlog.sim.world import World

SHARD = "s"
TICK_MS = 50
DELIVERIES_MAX = 10_000
"""More in one command means that two machines answer each other for ever."""

WRITE = "write"
"""What `Stage.doom` calls a compare-and-swap that stands."""


class Narrator(Observer):
    """An observer that also hears what only a stage can tell."""

    def on_deliver(self, envelope: Envelope, lost: str) -> None:
        """A message arrives; or it is `lost`, and why."""

    def on_write(self, operator: str, version: int, shard: Shard) -> None:
        """A compare-and-swap stands."""

    def on_lost_race(self, operator: str, version: int) -> None:
        """A compare-and-swap came too late."""

    def on_answer(self, operator: str, answer: Accepted | Rejected) -> None:
        """A command was taken, or refused."""

    def on_verdict(self, text: str) -> None:
        """A checker saw something that must never be, or a machine stopped."""


class PerfectDisk:
    """Everything written is durable at once; only what is damaged by name is damaged."""

    def __init__(self) -> None:
        self.wipe()

    def wipe(self) -> None:
        self.superblock: Superblock | None = None
        self.first = 0
        self.boundary = GENESIS_CHECKSUM
        self.slots: dict[int, Slot] = {}
        self.ridden_commit = 0

    def submit(self, effect: Disk) -> None:
        if isinstance(effect, WriteEntries):
            self.ridden_commit = effect.commit
            for entry in effect.entries:
                self.slots[entry.header.base] = Slot(entry)
        elif isinstance(effect, RewriteEntry):
            self.slots[effect.entry.header.base] = Slot(effect.entry)
        elif isinstance(effect, WriteSuperblock):
            self.superblock = effect.superblock
        elif isinstance(effect, TruncateLog):
            self._keep(lambda base: base < effect.end)
        elif isinstance(effect, TrimLog):
            headers = [slot.entry.header for slot in self.slots.values()]
            self.boundary = next(each.checksum for each in headers if each.end == effect.first)
            self.first = effect.first
            self._keep(lambda base: base >= effect.first)
        elif isinstance(effect, ResetLog):
            self.slots, self.ridden_commit = {}, 0
            self.first, self.boundary = effect.first, effect.boundary
        elif isinstance(effect, Format | Erase):
            self.wipe()
            self.superblock = effect.superblock if isinstance(effect, Format) else None

    def _keep(self, wanted: Callable[[int], bool]) -> None:
        self.slots = {base: slot for base, slot in self.slots.items() if wanted(base)}

    def read(self, header: Header) -> Entry | None:
        slot = self.slots[header.base]
        return slot.entry if slot.body is Part.OK else None

    def damage(self, base: int, *, header_too: bool) -> None:
        """Spoil an entry's body; without its header too, nobody can tell what it was."""
        slot = self.slots[base]
        slot.body = Part.BAD
        if header_too:
            slot.header = Part.BAD

    def recover(self) -> Recovered | None:
        if self.superblock is None:
            return None
        found = classify(self.superblock, self.first, self.boundary, self.slots)
        commit = min(max(self.superblock.commit, self.ridden_commit, self.first), found.end)
        return Recovered(
            replace(self.superblock, commit=commit),
            self.first,
            self.boundary,
            found.headers,
            found.marks,
        )


class StageNode:
    """A replica, its disk, and whether the process is up."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.name = name
        self.disk = PerfectDisk()
        self.up = True
        self.formatted = 0
        self.replica = Replica(SHARD, name, stage.limits, seal)

    def restart(self) -> None:
        recovered = self.disk.recover()
        limits = self.stage.limits
        if recovered is None:
            self.replica = Replica(SHARD, self.name, limits, seal)
        else:
            self.replica = Replica.restart(SHARD, self.name, limits, seal, recovered)
        self.up = True

    def receive(self, envelope: Envelope) -> None:
        draw = 0
        if isinstance(envelope.message, Create) and self.replica.role is Role.NOT_MEMBER:
            self.formatted += 1
            draw = self.formatted
        self.step(Received(envelope, draw))

    def step(self, event: Event) -> None:
        stage, replica = self.stage, self.replica
        try:
            effects = replica.step(stage.now_ms, event)
        except ImpossibleState as error:
            self.up = False
            stage.note(f"{self.name} stops: {error}")
            return
        stage.watch("on_step", self.name, replica, event, effects)
        for effect in effects:
            self._perform(effect)
            if not self.up:
                return

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            self.stage.send(effect.envelope)
        elif isinstance(effect, SendEntries | SendFetched | ServeRead):
            self._send_read(effect)
        elif isinstance(effect, Sync):
            self.stage.soon(self, Synced(effect.token))
        else:
            self.disk.submit(effect)

    def _send_read(self, effect: SendEntries | SendFetched | ServeRead) -> None:
        """Send what can be read, up to the first damaged entry, which is reported."""
        entries: list[Entry] = []
        damaged: Header | None = None
        for header in effect.headers:
            entry = self.disk.read(header)
            if entry is None:
                damaged = header
                self.stage.soon(self, ReadFailed(header.base))
                break
            entries.append(entry)
        message: Message
        if isinstance(effect, ServeRead):
            to, incarnation = effect.client, 0
            if damaged:
                message = ClientRefused(0, effect.nonce, CorruptEntry(damaged.id))
            else:
                message = ReadResult(effect.nonce, tuple(entries), effect.commit)
        else:
            to, incarnation = effect.to
            if isinstance(effect, SendEntries):
                message = Entries(effect.epoch, tuple(entries), effect.commit, effect.first)
            else:
                message = Fetched(effect.epoch, tuple(entries))
        if entries or isinstance(effect, ServeRead):
            mine = self.replica.incarnation
            self.stage.send(Envelope(SHARD, self.name, mine, to, incarnation, message))


class StageOperator:
    """A coordinator machine in front of the store."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.name = name
        self.restart()

    def restart(self) -> None:
        self.up = True
        self.coordinator = Coordinator(self.name, SHARD, self.stage.coordinator_limits)

    def receive(self, envelope: Envelope) -> None:
        self.step(Received(envelope))

    def step(self, event: CoordinatorEvent) -> None:
        effects = self.coordinator.step(self.stage.now_ms, event)
        self._perform(event, effects)

    def elect(self, preferred: str | None) -> None:
        """Suspect the leader, without waiting for the reasons that `tending` would want."""
        coordinator = self.coordinator
        coordinator.now_ms, coordinator.out = self.stage.now_ms, []
        if coordinator.record is None:
            raise ValueError(f"{self.name} knows of no shard")
        electing.start(coordinator, coordinator.record, preferred=preferred)
        effects, coordinator.out = coordinator.out, []
        self._perform(Tick(), effects)

    def _perform(self, event: CoordinatorEvent, effects: Sequence[CoordinatorEffect]) -> None:
        stage = self.stage
        stage.watch("on_coordinator", self.name, self.coordinator, event, effects)
        for effect in effects:
            if isinstance(effect, Send):
                stage.send(effect.envelope)
            elif isinstance(effect, Load):
                stage.soon(self, Loaded(stage.version, stage.record))
            elif isinstance(effect, CompareAndSwap):
                stage.swap(self, effect)
            else:
                stage.narrator.on_answer(self.name, effect)
            if not self.up:
                return


class StageClient:
    """A session's worth of requests, each named by what it appends."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.name = name
        self.up = True
        self.session = 0
        self.requests: dict[str, Append] = {}
        self.operations: dict[int, Operation] = {}
        self.reads: dict[int, Operation] = {}

    def register(self, node: str) -> None:
        self._ask(node, Register(1))

    def append(self, text: str, node: str) -> None:
        """The next request of the session; or, for a `text` appended before, that one again."""
        if text not in self.requests:
            body = text.encode()
            request = len(self.requests) + 1
            message = Append(self.session, request, 1, body, seal_body(body))
            self.requests[text] = message
            value = self.stage.value_of(body)
            number, now = self.stage.number_of(self.name), self.stage.instant()
            self.operations[request] = Operation(number, now, None, "append", value=value)
        self._ask(node, self.requests[text])

    def read(self, start: int, node: str) -> None:
        nonce = len(self.reads) + 1
        number, now = self.stage.number_of(self.name), self.stage.instant()
        self.reads[nonce] = Operation(number, now, None, "read", start=start, limit=100)
        self._ask(node, Read(nonce, start, 100))

    def _ask(self, node: str, message: Message) -> None:
        self.stage.hand_over(Envelope(SHARD, self.name, 0, node, 0, message))

    def receive(self, envelope: Envelope) -> None:
        message = envelope.message
        if isinstance(message, Registered):
            self.session, self.requests = message.session, {}
        elif isinstance(message, Appended):
            asked = self.operations.get(message.request)
            if asked and asked.reply is None:
                done = replace(asked, reply=self.stage.instant(), offset=message.base)
                self._learn(self.operations, message.request, done)
        elif isinstance(message, ReadResult):
            seen = tuple(
                (entry.header.base, self.stage.value_of(entry.body)) for entry in message.entries
            )
            asked = self.reads[message.nonce]
            done = replace(asked, reply=self.stage.instant(), seen=seen, end=message.commit)
            self._learn(self.reads, message.nonce, done)

    def _learn(self, kept: dict[int, Operation], key: int, operation: Operation) -> None:
        kept[key] = operation
        self.stage.watch("on_reply", operation.client, operation)


@dataclass(frozen=True, slots=True)
class Link:
    """One direction; `*` is anyone."""

    src: str
    dst: str

    def carries(self, envelope: Envelope) -> bool:
        return self.src in ("*", envelope.src) and self.dst in ("*", envelope.dst)


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
        self.version = 0
        self.record: Shard | None = None
        self.now_ms = 1000
        # In the order of sending.
        self.flights: list[Envelope] = []
        self.held: list[Link] = []
        self.cuts: list[Link] = []
        self.verdicts: list[str] = []
        # Who dies right after sending which message.
        self.doomed: dict[str, str] = {}
        self._soon: list[tuple[StageNode | StageOperator, Event | CoordinatorEvent]] = []
        self._instant = 0
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

    def instant(self) -> int:
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
        getattr(self.narrator, what)(world, *seen)
        for checker in list(self.checkers):
            try:
                getattr(checker, what)(world, *seen)
            except SafetyFailure as failure:
                self.checkers.remove(checker)
                self.note(failure.text)

    def note(self, verdict: str) -> None:
        self.verdicts.append(verdict)
        self.narrator.on_verdict(verdict)

    # --- the store -------------------------------------------------------------------------------

    def swap(self, operator: StageOperator, wanted: CompareAndSwap) -> None:
        """Takes effect at once; the other operators hear of it at once too."""
        done = wanted.version == self.version
        if done:
            self.version += 1
            self.record = wanted.shard
            self.narrator.on_write(operator.name, self.version, wanted.shard)
            self.watch("on_store", self.version, wanted.shard)
            for other in self.operators.values():
                if other is not operator:
                    self.soon(other, Loaded(self.version, self.record))
        else:
            self.narrator.on_lost_race(operator.name, wanted.version + 1)
        self.soon(operator, Swapped(done, self.version, self.record))
        if done:
            self._strike(operator.name, WRITE)

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

    def deliver(self, links: Sequence[Link], kind: str = "") -> int:
        """All that matches and is not held, and what it leads to, until nothing is left."""
        for count in range(DELIVERIES_MAX):
            ready = [
                envelope
                for envelope in self.in_flight(links, kind)
                if not any(link.carries(envelope) for link in self.held)
            ]
            if not ready:
                return count
            self.flights.remove(ready[0])
            self.hand_over(ready[0])
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
        for actor in (*self.operators.values(), *self.nodes.values()):
            if actor.up:
                actor.step(Tick())
                self.settle()

    def doom(self, name: str, kind: str) -> None:
        self.doomed[name] = kind

    def _strike(self, name: str, kind: str) -> None:
        if self.doomed.get(name) == kind:
            del self.doomed[name]
            self.crash(name)

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
