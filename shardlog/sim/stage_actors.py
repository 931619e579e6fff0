"""Who plays on a `Stage`: nodes with perfect disks, operators, and clients with a session.

They perform the effects of the real machines in their order, as the drivers in `node` and
`operators` do, but a sync is over and a store has answered before anything else happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shardlog.protocol import electing
from shardlog.protocol.coordination import (
    CompareAndSwap,
    CoordinatorEffect,
    CoordinatorEvent,
    Load,
    Loaded,
)
from shardlog.protocol.coordinator import Coordinator
from shardlog.protocol.effects import (
    Disk,
    Effect,
    Erase,
    Event,
    Format,
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
from shardlog.protocol.states import Role
from shardlog.sim.linearizability import Operation
from shardlog.sim.recovery import classify
from shardlog.sim.seal import seal, seal_body
from shardlog.sim.slot import Part, Slot

if TYPE_CHECKING:
    from shardlog.sim.stage import Stage

SHARD = "s"
READ_ENTRIES_MAX = 100


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
                message = Fetched(effect.epoch, tuple(entries), 0 if damaged else effect.more)
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
        self.coordinator = Coordinator(
            self.name, SHARD, self.stage.coordinator_limits, self.stage.next_draw()
        )

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
        self.registered = 0
        self.requests: dict[str, Append] = {}
        self.operations: dict[int, Operation] = {}
        self.reads: dict[int, Operation] = {}

    def register(self, node: str) -> None:
        self.registered += 1
        self._ask(node, Register(self.stage.number_of(self.name) << 32 | self.registered))

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
        self.reads[nonce] = Operation(
            number, now, None, "read", start=start, limit=READ_ENTRIES_MAX
        )
        self._ask(node, Read(nonce, start, READ_ENTRIES_MAX))

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
                (entry.header.base, self.stage.value_of(bytes(entry.body)))
                for entry in message.entries
            )
            asked = self.reads[message.nonce]
            done = replace(asked, reply=self.stage.instant(), seen=seen, end=message.commit)
            self._learn(self.reads, message.nonce, done)

    def _learn(self, kept: dict[int, Operation], key: int, operation: Operation) -> None:
        kept[key] = operation
        self.stage.watch("on_reply", operation.client, operation)
