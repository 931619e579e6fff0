"""The invariants of the protocol, checked from outside after every step.

Checkers trust nothing that a machine says about itself but its log, its commit offset and what it
sends.  They are incremental: each looks only at what the last step may have changed, so a run
with all of them on is not much slower than one without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shardlog.protocol.coordination import CoordinatorEffect, CoordinatorEvent
from shardlog.protocol.coordinator import Coordinator
from shardlog.protocol.effects import Effect, Event, ResetLog, Send, TruncateLog
from shardlog.protocol.entry import Header, Kind, Member
from shardlog.protocol.log import Log
from shardlog.protocol.messages import Ack, BecameLeader, Commit, Envelope, FenceAnswer, Prepare
from shardlog.protocol.replica import Replica
from shardlog.protocol.sessions import session_of
from shardlog.protocol.shard import Shard, Status
from shardlog.protocol.states import Role
from shardlog.sim.answers import ReadChecker, SessionChecker, WaiterChecker
from shardlog.sim.coverage import CoverageChecker
from shardlog.sim.failures import SafetyFailure
from shardlog.sim.feeding import FeedingChecker
from shardlog.sim.identity import DestroyChecker
from shardlog.sim.linearizability import Operation, check
from shardlog.sim.losses import eras
from shardlog.sim.observer import Observer
from shardlog.sim.restores import RestoreChecker
from shardlog.sim.sequence import SequenceChecker

if TYPE_CHECKING:
    from shardlog.sim.world import World


def _has(log: Log, header: Header) -> bool:
    """Whether an entry is in a log: intact, marked, or in a stretch that is to be repaired."""
    mine = log.covering(header.base)
    if mine is not None and mine.kind is Kind.UNKNOWN:
        return mine.base < log.kept_from
    return mine is not None and mine.checksum == header.checksum


class ChainChecker(Observer):
    """NoLogDivergence, the canonical chain, and NoLossOfConfirmedWrite.

    The canonical chain is what any replica ever called committed.  It only grows; every replica's
    committed, intact entries must be in it, and a new leader must hold all that was committed
    before its epoch.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.chain: dict[int, Header] = {}
        self.order: list[int] = []
        # By position in `order`: the epoch in which the entry was first called committed.
        self.committed_in: list[int] = []
        self.end = 0
        self.last_checksum = 0
        self.last_epoch = 0
        self.last_ms = 0
        self.requests: set[tuple[int, int]] = set()
        # Of each session that was ever opened, the checksum of its entry: losses take none away.
        self.sessions: dict[int, int] = {}
        # How far each node's commit offset has been compared.
        self.checked: dict[str, int] = {}
        # Of which incarnation that is.
        self.checked_of: dict[str, int] = {}
        self.led: set[tuple[str, int]] = set()
        # Stretches that went before anybody could look.
        self.unseen: list[tuple[int, int]] = []
        # The highest commit offset that anybody has had.
        self.highest = 0
        # What was given up, by the record.
        self.losses: tuple[Header, ...] = ()

    def on_step(
        self, world: World, node: str, replica: Replica, event: Event, effects: Sequence[Effect]
    ) -> None:
        if world.losses.left and world.losses.is_left(replica):
            return
        checked = self.checked.get(node, 0)
        self.highest = max(self.highest, replica.commit)
        if replica.commit > checked:
            self.checked[node] = self._compare(node, replica, checked)
            self.checked_of[node] = replica.incarnation
        elif replica.commit < checked:
            # One step may hold both the end of a replica and the making of the next.
            if replica.incarnation == self.checked_of.get(node, replica.incarnation):
                raise SafetyFailure(
                    "NoLogDivergence", f"{node} took back commit {checked} to {replica.commit}"
                )
            self.checked[node] = 0
        for effect in effects:
            if type(effect) is TruncateLog and effect.end < checked:
                raise SafetyFailure(
                    "NoLogDivergence", f"{node} cuts to {effect.end} below its commit offset"
                )
        lead = replica.lead
        if lead is not None and lead.serving and (node, replica.epoch) not in self.led:
            self.led.add((node, replica.epoch))
            self._check_leader(node, replica)
        if replica.sessions.applied > replica.commit:
            raise SafetyFailure("ApplyIndex", f"{node} applied beyond its commit offset")

    def _compare(self, node: str, replica: Replica, start: int) -> int:
        """Compare, and extend the chain by, what the replica calls committed."""
        marks = replica.log.marks
        for header in replica.log.between(start, replica.commit):
            known = self.chain.get(header.base)
            if header.kind is Kind.UNKNOWN or (header.base in marks and known is None):
                return header.base
            if header.kind is Kind.LOST:
                self._check_declared(node, header)
            if known is None and self._was_unseen(header.base):
                continue
            if known is None:
                self._extend(node, replica, header)
            elif known.checksum != header.checksum:
                raise SafetyFailure(
                    "NoLogDivergence",
                    f"{node} committed {header.id}, where {known.id} had been committed",
                )
        return replica.commit

    def _was_unseen(self, offset: int) -> bool:
        return any(start <= offset < end for start, end in self.unseen)

    def _check_declared(self, node: str, header: Header) -> None:
        """A marker stands for what was given up, and for nothing else."""
        if not any(lost.base == header.base and lost.end == header.end for lost in self.losses):
            raise SafetyFailure(
                "NoLossOfConfirmedWrite", f"{node} has no {header.id}, which nobody has given up"
            )

    def _extend(self, node: str, replica: Replica, header: Header) -> None:
        if self.end < header.base == replica.log.first:
            # Committed and trimmed within one step: nobody has seen what it was.
            self.unseen.append((self.end, header.base))
        elif header.base != self.end or header.parent != self.last_checksum:
            raise SafetyFailure(
                "NoLogDivergence",
                f"{node} committed {header.id}, which does not continue the chain at {self.end}",
            )
        if header.epoch < self.last_epoch:
            raise SafetyFailure("CanonicalChain", f"epochs fall at {header.id}")
        if header.timestamp_ms < self.last_ms:
            raise SafetyFailure("CanonicalChain", f"timestamps fall at {header.id}")
        if header.kind is Kind.DATA:
            request = (header.session, header.request)
            if request in self.requests:
                raise SafetyFailure(
                    "NoLossOfConfirmedWrite",
                    f"request {header.request} of session {header.session} stands twice",
                )
            self.requests.add(request)
        elif header.kind is Kind.REGISTER:
            name = session_of(header)
            if self.sessions.setdefault(name, header.checksum) != header.checksum:
                raise SafetyFailure("NamesOutliveLosses", f"session {name} is opened twice")
        self.chain[header.base] = header
        self.order.append(header.base)
        self.committed_in.append(replica.epoch)
        self.end, self.last_checksum = header.end, header.checksum
        self.last_epoch, self.last_ms = header.epoch, header.timestamp_ms

    def _check_leader(self, node: str, replica: Replica) -> None:
        """Everything that was committed before this epoch must be in the leader's log."""
        log = replica.log
        for base, epoch in zip(reversed(self.order), reversed(self.committed_in), strict=True):
            if base < log.first:
                return
            if epoch >= replica.epoch:
                continue
            if not _has(log, self.chain[base]):
                raise SafetyFailure(
                    "NoLossOfConfirmedWrite",
                    f"{node} leads epoch {replica.epoch} without {self.chain[base].id}",
                )

    def on_store(self, world: World, version: int, shard: Shard | None) -> None:
        """A record goes when all data is gone: what a next shard of this name must not find."""
        if shard is not None:
            for lost in shard.losses:
                if lost not in self.losses:
                    self.losses += (lost,)
                    if not lost.count:
                        self._cut(lost.base)
            return
        for name, node in world.nodes.items():
            if node.replica.log.end:
                raise SafetyFailure("DeletionIsFinal", f"{name} still has a log")
        self._begin()

    def _cut(self, base: int) -> None:
        """All that may have stood from here on was given up."""
        while self.order and self.order[-1] >= base:
            gone = self.chain.pop(self.order.pop())
            self.committed_in.pop()
            self.requests.discard((gone.session, gone.request))
        last = self.chain[self.order[-1]] if self.order else None
        self.end = last.end if last else 0
        self.last_checksum = last.checksum if last else 0
        self.last_epoch, self.last_ms = (last.epoch, last.timestamp_ms) if last else (0, 0)
        self.checked = {node: min(checked, base) for node, checked in self.checked.items()}

    def on_restart(self, world: World, name: str) -> None:
        """What the disk gave back is compared from the start."""
        if name in world.nodes:
            self.checked[name] = 0
            replica = world.nodes[name].replica
            if world.losses.is_left(replica):
                return
            self.checked[name] = self._compare(name, replica, replica.log.first)

    def on_wipe(self, world: World, name: str) -> None:
        self.checked[name] = 0

    def on_reply(self, world: World, client: int, operation: Operation) -> None:
        if operation.kind != "append" or operation.offset is None:
            return
        entry = self.chain.get(operation.offset)
        if entry is None and self.end <= operation.offset < self.highest:
            return  # called committed by one whose copy was damaged before anybody looked
        if entry is None and self._was_unseen(operation.offset):
            return
        # A retry of what was given up since is still told where it stood.
        kinds = (Kind.DATA, Kind.LOST)
        if entry is None or entry.count != operation.count or entry.kind not in kinds:
            raise SafetyFailure(
                "NoLossOfConfirmedWrite",
                f"client {client} was told offset {operation.offset}, which is not committed",
            )


class PromiseChecker(Observer):
    """Promises survive: no replica drops below an epoch or an offset that it acknowledged."""

    def __init__(self) -> None:
        self.epochs: dict[Member, int] = {}
        self.acked: dict[Member, int] = {}
        # The same, also of a log that was started over: what it may not deny (rule 13).
        self.held: dict[Member, int] = {}
        # By node: incarnation, epoch and commit offset after its last step.
        self.seen: dict[str, tuple[int, int, int]] = {}
        # The election that a member has promised an epoch to.
        self.elections: dict[tuple[Member, int], int] = {}

    def on_step(
        self, world: World, node: str, replica: Replica, event: Event, effects: Sequence[Effect]
    ) -> None:
        seen = (replica.incarnation, replica.epoch, replica.commit)
        if not effects and seen == self.seen.get(node):
            return
        self.seen[node] = seen
        member = replica.member
        if replica.epoch < self.epochs.get(member, 0):
            raise SafetyFailure("PromisesSurvive", f"{member} fell back to epoch {replica.epoch}")
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                self._sent(effect)
            elif isinstance(effect, TruncateLog):
                self.acked[member] = min(self.acked.get(member, 0), effect.end)
                self.held[member] = min(self.held.get(member, 0), effect.end)
            elif kind is ResetLog:
                self.acked[member] = 0
        if replica.role is Role.LEADER and replica.commit > self.acked.get(member, 0):
            lead = replica.lead
            if lead is not None and _self_counted(replica):
                self.acked[member] = replica.commit

    def _sent(self, effect: Effect) -> None:
        """By whoever it was when it was sent: one step may hold more than one event."""
        assert isinstance(effect, Send)
        envelope = effect.envelope
        member, message = Member(envelope.src, envelope.src_incarnation), envelope.message
        if isinstance(message, Ack):
            self._promise(member, message.epoch, message.end)
        elif isinstance(message, FenceAnswer):
            self._promise(member, message.epoch, 0)
            if message.end < self.held.get(member, 0) and not message.open_tail:
                raise SafetyFailure(
                    "PromisesSurvive",
                    f"{member} denies what it acknowledged, from {message.end} on",
                )
            first = self.elections.setdefault((member, message.epoch), message.election)
            if first != message.election:
                raise SafetyFailure(
                    "PromisesSurvive", f"{member} promises epoch {message.epoch} to two elections"
                )
        elif isinstance(message, BecameLeader):
            self._promise(member, message.epoch, 0)

    def _promise(self, member: Member, epoch: int, end: int) -> None:
        if epoch > self.epochs.get(member, 0):
            self.epochs[member] = epoch
        if end > self.acked.get(member, 0):
            self.acked[member] = end
        if end > self.held.get(member, 0):
            self.held[member] = end

    def on_restart(self, world: World, name: str) -> None:
        if name not in world.nodes:
            return
        replica = world.nodes[name].replica
        member = replica.member
        if replica.epoch < self.epochs.get(member, 0):
            raise SafetyFailure(
                "PromisesSurvive", f"{member} forgot epoch {self.epochs[member]} in a restart"
            )
        if replica.log.end < self.acked.get(member, 0) and not replica.log.open_tail:
            raise SafetyFailure(
                "PromisesSurvive", f"{member} forgot offset {self.acked[member]} in a restart"
            )


def _self_counted(replica: Replica) -> bool:
    """Whether the commit offset rests on the leader's own copy too."""
    lead = replica.lead
    if lead is None:
        return False
    others = [
        cursor.acked
        for member, cursor in lead.cursors.items()
        if member in lead.ensemble and cursor.acked >= replica.commit
    ]
    return len(others) < lead.policy.of(len(lead.ensemble)).replication


class VoiceChecker(Observer):
    """Single voice per epoch: at most one node ever leads it.

    After a restore of the metadata store two elections may begin the same epoch, among replicas of
    which none is asked by both; then each has one voice.
    """

    def __init__(self) -> None:
        self.leaders: dict[tuple[int, int], Member] = {}

    def on_store(self, world: World, version: int, shard: Shard | None) -> None:
        if shard is None:
            self.leaders.clear()

    def on_step(
        self, world: World, node: str, replica: Replica, event: Event, effects: Sequence[Effect]
    ) -> None:
        if replica.lead is not None:
            first = self.leaders.setdefault((replica.epoch, replica.election), replica.member)
            if not world.restores.count:
                first = self.leaders.setdefault((replica.epoch, 0), first)
            if first != replica.member:
                raise SafetyFailure(
                    "SingleVoice",
                    f"{first} and {replica.member} both lead epoch {replica.epoch}",
                )


class RecordChecker(Observer):
    """LegalLeaderAndEnsemble, in the metadata and in every coordinator's copy."""

    def __init__(self) -> None:
        self.epoch = 0
        self.copies: dict[str, Shard] = {}
        self.leaders: dict[tuple[int, int], Member] = {}
        self.deleting = False

    def _check_removal(self) -> None:
        """Of the record; another one may be made, and starts from nothing."""
        if not self.deleting:
            raise SafetyFailure("DeletionIsFinal", "the record went without being DELETING")
        self.epoch, self.deleting = 0, False
        self.leaders.clear()

    def on_store(self, world: World, version: int, shard: Shard | None) -> None:
        if shard is None:
            self._check_removal()
            return
        if shard.epoch < self.epoch:
            raise SafetyFailure("LegalLeaderAndEnsemble", "the record's epoch fell")
        if self.deleting and shard.status is not Status.DELETING:
            raise SafetyFailure("DeletionIsFinal", f"{shard.status} after DELETING")
        self.epoch, self.deleting = shard.epoch, shard.status is Status.DELETING
        _check_record(shard)
        if shard.leader is not None:
            key = (shard.epoch, shard.election)
            first = self.leaders.setdefault(key, shard.leader)
            if first != shard.leader:
                raise SafetyFailure(
                    "SingleVoice", f"the record names two leaders of epoch {shard.epoch}"
                )

    def on_restore(self, world: World, shard: Shard) -> None:
        self.epoch, self.deleting = shard.epoch, False

    def on_coordinator(
        self,
        world: World,
        name: str,
        coordinator: Coordinator,
        event: CoordinatorEvent,
        effects: Sequence[CoordinatorEffect],
    ) -> None:
        record = coordinator.record
        if record is not None and self.copies.get(name) is not record:
            self.copies[name] = record
            _check_record(record)


def _check_record(shard: Shard) -> None:
    nodes = [member.node for member in shard.ensemble]
    problem = None
    if not nodes or len(set(nodes)) != len(nodes):
        problem = "the ensemble names a node twice, or none"
    elif shard.status is Status.STEADY and shard.leader not in shard.ensemble:
        problem = "the leader is not in the ensemble"
    elif (shard.change is None) != (shard.phase is None):
        problem = "a change without a phase, or the other way round"
    elif shard.change is not None and shard.change.before != shard.ensemble:
        problem = "a change of another ensemble"
    elif shard.change is not None and shard.leader is not None and shard.leader == shard.change.old:
        problem = "the leader is being removed"
    if problem:
        raise SafetyFailure("LegalLeaderAndEnsemble", problem)


CHANGING = frozenset({Prepare, Commit})


class MessageChecker(Observer):
    """ValidMessages: nobody addresses itself, nobody prepares the leader's removal."""

    def on_send(self, world: World, envelope: Envelope) -> None:
        message = envelope.message
        if envelope.src == envelope.dst:
            raise SafetyFailure("ValidMessages", f"{envelope.src} addresses itself: {message}")
        if type(message) not in CHANGING:
            return
        to = Member(envelope.dst, envelope.dst_incarnation)
        if isinstance(message, Prepare) and message.change.old == to:
            raise SafetyFailure("ValidMessages", f"{to} is asked to prepare its own removal")
        if isinstance(message, Commit) and message.change.new == to:
            raise SafetyFailure("ValidMessages", f"{to} is asked to commit itself as the new node")


class ClientChecker(Observer):
    """Linearizability of what clients saw, over the whole run."""

    def on_end(self, world: World) -> None:
        for history in eras(world.history(), world.losses.cuts):
            violation = check(history)
            if violation is not None:
                raise SafetyFailure("Linearizability", violation.text)


def all_checkers() -> list[Observer]:
    return [
        RestoreChecker(),
        ChainChecker(),
        PromiseChecker(),
        CoverageChecker(),
        FeedingChecker(),
        SequenceChecker(),
        VoiceChecker(),
        WaiterChecker(),
        ReadChecker(),
        SessionChecker(),
        DestroyChecker(),
        RecordChecker(),
        MessageChecker(),
        ClientChecker(),
    ]
