"""What clients are owed, checked from outside where it is given, or not given.

A stale read, a client that waits for ever, and a session of two clients do harm only to somebody
who looks at the right moment.  Here each is noticed when it comes about.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shardlog.protocol.effects import Effect, Event, Received, Send, ServeRead, WriteSuperblock
from shardlog.protocol.entry import Kind, Member
from shardlog.protocol.leadership import Leadership
from shardlog.protocol.messages import Ack, Envelope, Heartbeat, Read, Registered
from shardlog.protocol.quorum import reached
from shardlog.protocol.replica import Replica
from shardlog.protocol.shard import Shard
from shardlog.sim.failures import SafetyFailure
from shardlog.sim.observer import Observer

if TYPE_CHECKING:
    from shardlog.sim.world import World


class WaiterChecker(Observer):
    """Who waits for an entry is answered in the step that commits it (rule 18)."""

    def on_step(
        self, world: World, node: str, replica: Replica, event: Event, effects: Sequence[Effect]
    ) -> None:
        lead = replica.lead
        if lead is not None and lead.waiters and next(iter(lead.waiters)) <= replica.commit:
            end = next(iter(lead.waiters))
            raise SafetyFailure(
                "WaitersAreAnswered",
                f"{replica.member} has committed {replica.commit}, and somebody still waits for"
                f" what ends at {end}",
            )


class Tenure:
    """What a leader has sent and heard since it began to lead."""

    __slots__ = ("echoes", "ensembles", "epoch", "lead", "reads", "sent")

    def __init__(self, lead: Leadership, epoch: int) -> None:
        self.lead = lead
        # As they were before the last step, which may have changed them behind some of its events.
        self.epoch = epoch
        self.ensembles = lead.deciding_ensembles()
        # The last heartbeat that was sent to anybody, and the last that each has echoed.
        self.sent = 0
        self.echoes: dict[Member, int] = {}
        # By client and nonce: the last heartbeat before the read came.
        self.reads: dict[tuple[str, int], int] = {}


class ReadChecker(Observer):
    """A read is confirmed by heartbeats that were sent after it came (O9)."""

    def __init__(self) -> None:
        # By node: of its present leadership.
        self.tenures: dict[str, Tenure] = {}

    def on_step(
        self, world: World, node: str, replica: Replica, event: Event, effects: Sequence[Effect]
    ) -> None:
        lead = replica.lead
        if lead is None:
            return
        tenure = self.tenures.get(node)
        if tenure is None or tenure.lead is not lead:
            tenure = self.tenures[node] = Tenure(lead, replica.epoch)
        if type(event) is Received:
            self._heard(tenure, event.envelope, replica.epoch)
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                message = effect.envelope.message  # type: ignore[union-attr]
                if type(message) is Heartbeat:
                    tenure.sent = max(tenure.sent, message.beat)
            elif kind is ServeRead:
                assert isinstance(effect, ServeRead)
                self._check(tenure, replica, effect)
        if effects:
            tenure.epoch, tenure.ensembles = replica.epoch, lead.deciding_ensembles()

    @staticmethod
    def _heard(tenure: Tenure, envelope: Envelope, epoch: int) -> None:
        message = envelope.message
        if type(message) is Ack:
            if tenure.epoch <= message.epoch <= epoch:
                member = Member(envelope.src, envelope.src_incarnation)
                tenure.echoes[member] = max(tenure.echoes.get(member, 0), message.beat)
        elif type(message) is Read:
            tenure.reads.setdefault((envelope.src, message.nonce), tenure.sent)

    @staticmethod
    def _check(tenure: Tenure, replica: Replica, effect: ServeRead) -> None:
        lead = replica.lead
        before = tenure.reads.pop((effect.client, effect.nonce), None)
        if lead is None or before is None:
            return
        heard = {member for member, beat in tenure.echoes.items() if beat > before}
        heard.add(replica.member)
        if not any(
            all(reached(lead.policy.of(len(each)).replication, each, heard) for each in ensembles)
            for ensembles in (tenure.ensembles, lead.deciding_ensembles())
        ):
            raise SafetyFailure(
                "ReadsAreConfirmed",
                f"{replica.member} answers read {effect.nonce} of {effect.client}, and no"
                f" quorum has echoed a heartbeat later than {before}",
            )


def _is_in_doubt(world: World, replica: Replica, start: int, end: int) -> bool:
    """Whether a table that was started over at `start` has been folded over an unknown entry."""
    for lost in world.losses.known:
        unknown = lost.kind is Kind.UNKNOWN or (lost.kind is Kind.LOST and not lost.request)
        if unknown and lost.count and start <= lost.base < end:
            there = replica.log.covering(lost.base)
            if there is not None and there.kind is Kind.LOST and not there.request:
                return True
    return False


class SessionChecker(Observer):
    """A session belongs to one registration, and replicas on one chain agree about all (T7).

    Behind a marker whose header is lost they agree again from where a leader starts the table over.
    """

    def __init__(self) -> None:
        self.owners: dict[int, tuple[str, int]] = {}
        # By what was applied, and its last checksum.
        self.tables: dict[tuple[int, int], tuple[str, object]] = {}

    def on_store(self, world: World, version: int, shard: Shard | None) -> None:
        if shard is None:
            self.owners.clear()
            self.tables.clear()

    def on_send(self, world: World, envelope: Envelope) -> None:
        message = envelope.message
        if type(message) is Registered:
            owner = (envelope.dst, message.nonce)
            first = self.owners.setdefault(message.session, owner)
            if first != owner:
                raise SafetyFailure(
                    "SessionsAreNamedOnce",
                    f"session {message.session} is given to {first[0]} and to {owner[0]}",
                )

    def on_step(
        self, world: World, node: str, replica: Replica, event: Event, effects: Sequence[Effect]
    ) -> None:
        for effect in effects:
            if type(effect) is not WriteSuperblock:
                continue
            block = effect.superblock
            log, at = replica.log, block.sessions_at
            if at <= log.first or block.syncing is not None or log.marks:
                continue
            if _is_in_doubt(world, replica, block.session_limits.since, at):
                continue
            key = (at, log.checksum_before(at))
            first = self.tables.setdefault(key, (node, block.sessions))
            if first[1] != block.sessions:
                raise SafetyFailure(
                    "SessionsAreEqual",
                    f"{node} and {first[0]} differ in what was applied up to {at}",
                )
