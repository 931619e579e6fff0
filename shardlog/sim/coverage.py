"""COMMIT after coverage (rule 8), checked where it is written.

When a reconfiguration's COMMIT stands in the metadata, everything that was ever committed must be
durable on a replication quorum of the final ensemble: from then on an election may do without those
who leave.  Other rules hide most of the harm that a COMMIT too early does, so waiting for a lost
write would find it once in thousands of runs; what was acknowledged to whom is seen at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shardlog.protocol.effects import Effect, Event, Send, TruncateLog
from shardlog.protocol.entry import Member
from shardlog.protocol.messages import Ack, Envelope
from shardlog.protocol.quorum import replicated_end
from shardlog.protocol.replica import Replica
from shardlog.protocol.shard import Phase, Shard
from shardlog.sim.failures import SafetyFailure
from shardlog.sim.observer import Observer

if TYPE_CHECKING:
    from shardlog.sim.world import World


class CoverageChecker(Observer):
    """A lost disk, or a log that was started over, counts as what it held: that is declared."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.committed = 0
        # How far each replica is durable, by what it acknowledged, or knows while it leads.
        self.held: dict[Member, int] = {}
        self.covered: set[int] = set()
        # Of the cuts that people have accepted, those that are taken into account.
        self.cuts = 0

    def on_step(
        self, world: World, node: str, replica: Replica, event: Event, effects: Sequence[Effect]
    ) -> None:
        if replica.commit > self.committed and not world.losses.is_left(replica):
            self.committed = replica.commit
        if replica.lead is not None and replica.durable_end > self.held.get(replica.member, 0):
            self.held[replica.member] = replica.durable_end
        for effect in effects:
            if isinstance(effect, Send):
                self._sent(effect.envelope)
            elif isinstance(effect, TruncateLog) and effect.end < self.held.get(replica.member, 0):
                self.held[replica.member] = effect.end

    def _sent(self, envelope: Envelope) -> None:
        member, message = Member(envelope.src, envelope.src_incarnation), envelope.message
        if isinstance(message, Ack) and message.end > self.held.get(member, 0):
            self.held[member] = message.end

    def on_restore(self, world: World, shard: Shard) -> None:
        self.covered.clear()

    def on_store(self, world: World, version: int, shard: Shard | None) -> None:
        if shard is None:
            self._begin()
            return
        for _, base in world.losses.cuts[self.cuts :]:
            self.committed = min(self.committed, base)
        self.cuts = len(world.losses.cuts)
        if shard.phase is Phase.COMMIT and shard.change and shard.epoch not in self.covered:
            self.covered.add(shard.epoch)
            after = shard.change.after
            quorum = shard.quorum.of(len(after)).replication
            end = replicated_end(quorum, [self.held.get(member, 0) for member in after])
            if end < self.committed:
                raise SafetyFailure(
                    "Coverage",
                    f"COMMIT in epoch {shard.epoch}: {self.committed} is committed, and a quorum"
                    f" of {' '.join(map(str, after))} holds only {end}",
                )
