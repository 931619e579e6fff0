"""What is known of a world: every value met so far has a number, and every step is taken once.

Machines are pure, so what an event does to a machine depends on the two alone.  The first time it
is worked out by the real machine, loaded from its bytes; after that it is looked up by numbers.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from shardlog.protocol.coordinator import Coordinator
from shardlog.protocol.effects import Received
from shardlog.protocol.entry import Member
from shardlog.protocol.messages import Appended, Envelope, StatusRequest
from shardlog.protocol.replica import Replica
from shardlog.protocol.shard import Shard
from shardlog.sim import explore_coordinators as coordinators
from shardlog.sim import explore_replicas as replicas
from shardlog.sim.explore_coordinators import Driven, Polled, Store
from shardlog.sim.explore_invariants import (
    Chain,
    check_message,
    check_reply,
    check_written,
    judged,
)
from shardlog.sim.explore_messages import (
    ONCE,
    Fate,
    Flight,
    Mood,
    Reduction,
    fate_at_coordinator,
    fate_at_replica,
    stripped,
)
from shardlog.sim.explore_replicas import SHARD, Image
from shardlog.sim.explore_values import Numbers, canonical, key
from shardlog.sim.failures import SafetyFailure

CLIENT = "client"

Leaders = tuple[tuple[int, Member], ...]


class Face(NamedTuple):
    """What the world needs to know of a replica without loading it."""

    member: Member
    epoch: int
    leads: bool
    serving: bool
    cursors: tuple[Member, ...]


class Step(NamedTuple):
    """A step of a replica, in numbers; `disk` is the number of what it wrote."""

    after: int
    sent: tuple[int, ...]
    replies: tuple[Appended, ...]
    disk: int


class Crash(NamedTuple):
    """A crash within a step; `witness` is the replica as it died."""

    witness: int
    after: int
    image: int
    sent: tuple[int, ...]
    replies: tuple[Appended, ...]


class Drive(NamedTuple):
    """A step of a coordinator, in numbers."""

    after: int
    store: int
    sent: tuple[int, ...]


def likeness(replica: Replica) -> Hashable:
    """What of a replica no exchange of names can alter."""
    lead = replica.lead
    cursors = lead.cursors.values() if lead else ()
    return (
        replica.role,
        replica.incarnation,
        replica.epoch,
        replica.led,
        replica.commit,
        replica.history,
        replica.leader is None,
        tuple(header.checksum for header in replica.log.headers),
        lead and (lead.serving, lead.covered, len(lead.ensemble)),
        tuple(sorted((each.announced, each.standby, each.acked, each.cut) for each in cursors)),
    )


def coordinator_likeness(c: Coordinator) -> Hashable:
    election = c.election
    return (
        c.version,
        c.record and (c.record.epoch, c.record.status),
        election and (election.asked is None, len(election.answers)),
    )


class Known:
    """`ends` maps each name to its position in a state; coordinators come after all replicas."""

    def __init__(self, ends: dict[str, int], nodes: int, reduction: Reduction) -> None:
        self.ends = ends
        self.nodes = nodes
        self.alone = len(ends) == nodes + 1
        self.reduction = reduction
        self.replicas: Numbers[Replica] = Numbers()
        self.faces: list[Face] = []
        self.images: Numbers[Image | None] = Numbers()
        self.images.of(None, None)
        self.disks: Numbers[tuple[Any, ...]] = Numbers()
        self.coordinators: Numbers[Coordinator] = Numbers()
        self.records: list[tuple[int, Shard | None]] = []
        self.stores: Numbers[Store] = Numbers()
        self.chains: Numbers[Chain] = Numbers()
        self.leaders: Numbers[Leaders] = Numbers()
        self.inputs: Numbers[Any] = Numbers()
        self.flights: dict[int, Flight] = {}
        self.likenesses: tuple[list[int], list[int]] = ([], [])
        self._likenesses: dict[Hashable, int] = {}
        self.misses = 0
        self._steps: dict[tuple[int, int], Step | None] = {}
        self._crashes: dict[tuple[int, int, int], list[Crash]] = {}
        self._restarts: dict[tuple[int, int], tuple[int, int]] = {}
        self._written: dict[tuple[int, int], int] = {}
        self._drives: dict[tuple[int, int, int], list[Drive]] = {}
        self._dying: dict[tuple[int, int, int], list[Drive]] = {}
        self._begun: dict[tuple[str, int], int] = {}
        self._polls: dict[tuple[str, int, int], int] = {}
        self.judged: dict[tuple[int, int], int] = {}
        self._led: dict[tuple[int, int], int] = {}
        self._forgotten: dict[tuple[int, int], int] = {}
        self._replied: set[tuple[int, tuple[Appended, ...]]] = set()
        self._fates: dict[tuple[int, int, Mood], Fate] = {}

    # --- numbers ---------------------------------------------------------------------------------

    def replica(self, machine: Replica) -> int:
        number = self.replicas.of(key(machine), machine)
        if number == len(self.faces):
            lead = machine.lead
            face = Face(
                machine.member,
                machine.epoch,
                lead is not None,
                lead is not None and lead.serving,
                tuple(lead.cursors) if lead is not None else (),
            )
            self.faces.append(face)
            self._liken(0, likeness(machine))
        return number

    def _liken(self, kind: int, found: Hashable) -> None:
        self.likenesses[kind].append(self._likenesses.setdefault(found, len(self._likenesses)))

    def image(self, image: Image) -> int:
        return self.images.of(image, image)

    def coordinator(self, machine: Coordinator) -> int:
        number = self.coordinators.of(key(machine), machine)
        if number == len(self.records):
            self.records.append((machine.version, machine.record))
            self._liken(1, coordinator_likeness(machine))
        return number

    def store(self, store: Store) -> int:
        return self.stores.of(store, store)

    def input(self, event: Any) -> int:
        return self.inputs.of(event, event)

    def message(self, envelope: Envelope) -> int:
        envelope = stripped(canonical(envelope), self.reduction)
        number = self.input(Received(envelope, 1))
        if number not in self.flights:
            check_message(envelope)
            once = type(envelope.message) in ONCE
            self.flights[number] = Flight(envelope, self.ends[envelope.dst], once)
        return number

    def _outbox(self, sent: tuple[Envelope, ...]) -> tuple[tuple[int, ...], tuple[Appended, ...]]:
        """Messages in flight, and what clients were told."""
        numbers = dict.fromkeys(self.message(each) for each in sent if each.dst != CLIENT)
        replies = (each.message for each in sent if each.dst == CLIENT)
        return tuple(numbers), tuple(each for each in replies if isinstance(each, Appended))

    # --- replicas --------------------------------------------------------------------------------

    def step(self, replica: int, event: int) -> Step | None:
        """None if nothing happens."""
        at = (replica, event)
        try:
            return self._steps[at]
        except KeyError:
            self.misses += 1
        value = self.replicas.values[replica]
        taken = replicas.step(value, self.inputs.values[event], self.reduction)
        after = self.replica(taken.after)
        before, face = self.faces[replica], self.faces[after]
        if face.member == before.member and face.epoch < before.epoch:
            raise SafetyFailure("PromisesSurvive", f"{face.member} fell back to {face.epoch}")
        sent, replies = self._outbox(taken.sent)
        step = Step(after, sent, replies, self.disks.of(taken.disk, taken.disk))
        idle = after == replica and not sent and not replies and not taken.disk
        self._steps[at] = None if idle else step
        return self._steps[at]

    def crashes(self, replica: int, image: int, event: int) -> list[Crash]:
        """Crashes within a step that leave something else than one before or after it would."""
        at = (replica, image, event)
        found = self._crashes.get(at)
        if found is None:
            found = self._crashes[at] = []
            step = self.step(replica, event)
            if step is None:
                return found
            before = self._image(image)
            unmoved = self.restart(replica, image)[1]
            whole = self.restart(replica, self.write(image, step.disk))[1]
            for crash in replicas.crashes(
                self.replicas.values[replica], before, self.inputs.values[event], self.reduction
            ):
                sent, replies = self._outbox(crash.sent)
                left = self.image(crash.image)
                if (left == unmoved and not sent) or (
                    left == whole and len(sent) == len(step.sent)
                ):
                    continue
                witness, after = self.replica(crash.witness), self.replica(crash.after)
                found.append(Crash(witness, after, left, sent, replies))
        return found

    def restart(self, replica: int, image: int) -> tuple[int, int]:
        """The replica after a crash, and its disk."""
        at = (replica, image)
        found = self._restarts.get(at)
        if found is None:
            node = self.faces[replica].member.node
            after, mended = replicas.restarted(node, self._image(image), self.reduction)
            found = self._restarts[at] = (self.replica(after), self.image(mended))
        return found

    def write(self, image: int, disk: int) -> int:
        at = (image, disk)
        found = self._written.get(at)
        if found is None:
            after = replicas.performed(self._image(image), self.disks.values[disk], self.reduction)
            found = self._written[at] = self.image(after)
        return found

    def _image(self, image: int) -> Image:
        value = self.images.values[image]
        assert value is not None
        return value

    # --- coordinators ----------------------------------------------------------------------------

    def drive(self, coordinator: int, store: int, event: int) -> list[Drive]:
        """What a coordinator may do; none if nothing happens."""
        at = (coordinator, store, event)
        found = self._drives.get(at)
        if found is None:
            self.misses += 1
            driven = coordinators.steps(*self._driven(at), reduction=self.reduction)
            found = self._drives[at] = self._numbered(coordinator, store, driven)
        return found

    def die(self, coordinator: int, store: int, event: int) -> list[Drive]:
        """Crashes within a step of a coordinator."""
        at = (coordinator, store, event)
        found = self._dying.get(at)
        if found is None:
            driven = coordinators.crashes(*self._driven(at), reduction=self.reduction)
            found = self._dying[at] = self._numbered(coordinator, store, driven)
        return found

    def _driven(self, at: tuple[int, int, int]) -> tuple[Coordinator, Store, Any]:
        coordinator, store, event = at
        return (
            self.coordinators.values[coordinator],
            self.stores.values[store],
            self.inputs.values[event],
        )

    def _numbered(self, coordinator: int, store: int, driven: list[Driven]) -> list[Drive]:
        found: list[Drive] = []
        before = self.stores.values[store].record
        for each in driven:
            for written in each.stores:
                assert written.record is not None
                check_written(before, written.record)
            sent, _ = self._outbox(each.sent)
            drive = Drive(self.coordinator(each.after), self.store(each.store), sent)
            if drive.after != coordinator or drive.store != store or sent:
                found.append(drive)
        return found

    def begin(self, name: str, store: int) -> int:
        """A coordinator that has just come up."""
        at = (name, store)
        found = self._begun.get(at)
        if found is None:
            state = coordinators.started(name, self.stores.values[store])
            found = self._begun[at] = self.coordinator(state)
        return found

    def poll(self, name: str, replica: int, epoch: int) -> int:
        """The event that a coordinator's status request to this replica leads to."""
        at = (name, replica, epoch)
        found = self._polls.get(at)
        if found is None:
            to = self.faces[replica].member
            request = Received(Envelope(SHARD, name, 0, *to, StatusRequest(epoch)))
            taken = replicas.step(self.replicas.values[replica], request, self.reduction)
            found = self._polls[at] = self.input(Polled(canonical(taken.sent[0])))
        return found

    # --- what must hold --------------------------------------------------------------------------

    def judge(self, chain: int, replica: int) -> int:
        """The chain with what this replica calls committed; the replica agrees with it."""
        at = (chain, replica)
        found = self.judged.get(at)
        if found is None:
            after = judged(self.chains.values[chain], self.replicas.values[replica])
            found = self.judged[at] = self.chains.of(after, after)
        return found

    def lead(self, leaders: int, replica: int) -> int:
        """Single voice: at most one node ever leads an epoch."""
        at = (leaders, replica)
        found = self._led.get(at)
        if found is None:
            face = self.faces[replica]
            known = dict(self.leaders.values[leaders])
            first = known.setdefault(face.epoch, face.member)
            if first != face.member:
                raise SafetyFailure(
                    "SingleVoice", f"{first} and {face.member} both lead epoch {face.epoch}"
                )
            after = tuple(sorted(known.items()))
            found = self._led[at] = self.leaders.of(after, after)
        return found

    def forget(self, leaders: int, epoch: int) -> int:
        """Nobody can lead an epoch that every replica has passed."""
        at = (leaders, epoch)
        found = self._forgotten.get(at)
        if found is None:
            after = tuple(each for each in self.leaders.values[leaders] if each[0] >= epoch)
            found = self._forgotten[at] = self.leaders.of(after, after)
        return found

    def reply(self, chain: int, replies: tuple[Appended, ...]) -> None:
        if (chain, replies) not in self._replied:
            for each in replies:
                check_reply(self.chains.values[chain], each)
            self._replied.add((chain, replies))

    def fate(self, message: int, receiver: int, mood: Mood) -> Fate:
        """What becomes of a message while its receiver is what it is."""
        at = (message, receiver, mood)
        found = self._fates.get(at)
        if found is None:
            envelope, end, _ = self.flights[message]
            if end < self.nodes:
                replica = self.replicas.values[receiver]
                found = fate_at_replica(envelope, replica, self.reduction, mood)
            else:
                c = self.coordinators.values[receiver]
                found = fate_at_coordinator(envelope, c, self.reduction, self.alone)
            self._fates[at] = found
        return found
