"""Who may be destroyed, checked where it is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardlog.protocol.entry import Member
from shardlog.protocol.messages import Ack, Destroy, Envelope, FenceAnswer
from shardlog.protocol.shard import Shard, Status
from shardlog.sim.failures import SafetyFailure
from shardlog.sim.observer import Observer

if TYPE_CHECKING:
    from shardlog.sim.world import World


class DestroyChecker(Observer):
    """A member is destroyed only if it has lost something that it acknowledged, and knows it not.

    Members are those of the record as it stands: who has left it may go.
    """

    def __init__(self) -> None:
        # What each has acknowledged, and does not call in doubt itself.
        self.acked: dict[Member, int] = {}
        self.record: Shard | None = None

    def on_store(self, world: World, version: int, shard: Shard | None) -> None:
        self.record = shard

    def on_restore(self, world: World, shard: Shard) -> None:
        self.record = shard

    def on_send(self, world: World, envelope: Envelope) -> None:
        message = envelope.message
        if isinstance(message, Ack):
            member = Member(envelope.src, envelope.src_incarnation)
            if message.end > self.acked.get(member, 0):
                self.acked[member] = message.end
        elif isinstance(message, FenceAnswer):
            if message.open_tail:
                acked = self.acked.get(message.member, 0)
                self.acked[message.member] = min(acked, message.end)
        elif isinstance(message, Destroy):
            self._check(world, envelope)

    def _check(self, world: World, envelope: Envelope) -> None:
        record = self.record
        if record is None:
            return
        member = Member(envelope.dst, envelope.dst_incarnation)
        if record.status is Status.DELETING or not any(member in each for each in record.ensembles):
            return
        reason = self._reason(world, member)
        if reason is not None:
            raise SafetyFailure("MembersAreKept", f"{member} is to be destroyed, and {reason}")

    def _reason(self, world: World, member: Member) -> str | None:
        """Why it must not be; None if it may."""
        node = world.nodes[member.node]
        replica = node.replica
        block = node.disk.superblock
        there = replica.member == member and block and block.incarnation == member.incarnation
        if not there or world.losses.is_left(replica):
            return None
        acked = self.acked.get(member, 0)
        if replica.log.end >= acked:
            return f"it has all that it acknowledged, up to {acked}"
        return None
