"""What followers and new nodes are given, checked from outside.

Entries that a follower has acknowledged are not sent to it again (N7): a leader that did so would
harm nobody but the network, so no other checker would ever notice.  And whoever is taken into an
ensemble has been a standby before (rule 10): coverage keeps a node that lags from doing harm, so
that does not show by itself either.  Nor does it that one that has caught up is not taken in: the
change is given up, and begun anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardlog.protocol.effects import Effect, Event, Received, Send, SendEntries
from shardlog.protocol.entry import Member
from shardlog.protocol.messages import Ack, AddFollower, Envelope, FenceAnswer, Prepare, Refused
from shardlog.protocol.replica import Replica
from shardlog.protocol.shard import Phase, Shard
from shardlog.protocol.states import Role
from shardlog.sim.failures import SafetyFailure
from shardlog.sim.observer import Observer

if TYPE_CHECKING:
    from shardlog.sim.world import World


@dataclass(slots=True)
class Acked:
    """How far a follower's acks reach, as they came in.

    What comes in one instant may be handled together, and what is sent then may have been decided
    before the last of it was looked at: an ack counts from the next instant on.
    """

    before: int = 0
    end: int = 0
    latest: int = -1

    def heard(self, end: int, instant: int) -> None:
        if instant != self.latest:
            self.before, self.latest = self.end, instant
        self.end = max(self.end, end)

    def known(self, instant: int) -> int:
        return self.before if instant == self.latest else self.end


NOTHING = Acked()


class FeedingChecker(Observer):
    """Once a follower tells anew what it holds, that is what counts."""

    def __init__(self) -> None:
        # By leader and epoch.
        self.acked: dict[tuple[Member, int], dict[Member, Acked]] = {}
        self.stood_by: set[Member] = set()

    def on_step(
        self, world: World, node: str, replica: Replica, event: Event, effects: Sequence[Effect]
    ) -> None:
        if replica.role is Role.STANDBY:
            self.stood_by.add(replica.member)
        if replica.lead is None:
            return
        instant = world.instant()
        acked = self.acked.setdefault((replica.member, replica.epoch), {})
        if type(event) is Received and event.envelope.dst_incarnation == replica.incarnation:
            _heard(acked, event.envelope, replica.epoch, instant)
        for effect in effects:
            if type(effect) is not SendEntries:
                continue
            known = acked.get(effect.to, NOTHING).known(instant)
            if effect.headers[0].base < known:
                raise SafetyFailure(
                    "OnlyMissing",
                    f"{replica.member} sends {effect.headers[0].id} to {effect.to},"
                    f" who has acknowledged all below {known}",
                )
        if type(event) is Received and type(event.envelope.message) is Prepare:
            self._check_taken_in(world, replica, event.envelope.message, effects)

    @staticmethod
    def _check_taken_in(
        world: World, leader: Replica, prepare: Prepare, effects: Sequence[Effect]
    ) -> None:
        """A standby that has told its leader that it holds everything is not refused as no one."""
        new, lead = prepare.change.new, leader.lead
        cursor = lead.cursors.get(new) if new is not None and lead is not None else None
        if new is None or lead is None or cursor is None or cursor.lost:
            return
        in_force = lead.change is not None or prepare.change.before != lead.ensemble
        if in_force or prepare.epoch <= leader.epoch or leader.commit <= lead.tenure_first:
            return
        there = world.nodes[new.node].replica
        ready = there.member == new and there.role is Role.STANDBY and there.syncing is None
        ready = ready and cursor.announced and cursor.at >= leader.log.end
        refusals = [each.envelope.message for each in effects if type(each) is Send]
        refused = any(type(each) is Refused and each.request == "Prepare" for each in refusals)
        if ready and refused:
            raise SafetyFailure("StandbysAreTakenIn", f"{leader.member} refuses {new}")

    def on_store(self, world: World, version: int, shard: Shard | None) -> None:
        if shard is None or shard.phase is not Phase.PREPARE or shard.change is None:
            return
        new = shard.change.new
        if new is not None and new not in self.stood_by:
            raise SafetyFailure("StandbyFirst", f"{new} is taken in and was no standby")


def _heard(acked: dict[Member, Acked], envelope: Envelope, epoch: int, instant: int) -> None:
    message = envelope.message
    if isinstance(message, Ack) and message.epoch == epoch:
        member = Member(envelope.src, envelope.src_incarnation)
        acked.setdefault(member, Acked()).heard(message.end, instant)
    elif isinstance(message, FenceAnswer):
        acked.pop(message.member, None)
    elif isinstance(message, AddFollower):
        acked.pop(message.answer.member, None)
