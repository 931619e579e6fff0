"""Faults that wait for their moment: right after a step has been written to the metadata.

Random faults seldom meet the few milliseconds in which a protocol is open to them.  An ambush
watches the record and strikes there: it leaves a new leader alone with one follower or none and
then kills it, keeps some members from hearing of an election, kills the leader or the coordinator
between the phases of a reconfiguration.  That is how trace number one comes about by chance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardlog.protocol.entry import Member
from shardlog.protocol.shard import Shard, Status

if TYPE_CHECKING:
    from shardlog.sim.world import World

Links = list[tuple[str, str]]


class Ambush:
    """Strikes with the probability `options.ambush` at every change of the record."""

    __slots__ = ("random", "world")

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.random

    def stored(self, before: Shard | None, record: Shard) -> None:
        chance = self.world.options.ambush
        if not chance or not self.world.adversary.active or self.random.random() >= chance:
            return
        if record.status is Status.ELECTION:
            self._muffle(record)
        elif record.phase is not None:
            self._strike_change(record)
        elif record.status is Status.STEADY and (before is None or before.epoch != record.epoch):
            self._isolate(record.leader)
        elif record.status is Status.STEADY:
            self.random.choice((self._isolate, self._kill_soon))(record.leader)

    def _tell(self, text: str) -> None:
        self.world.statistics.faults += 1
        for watch in self.world.fault_watchers:
            watch(self.world, f"ambush: {text}")

    def _cut(self, links: Links, length_us: int) -> None:
        self.world.network.cut(links)
        self.world.scheduler.after(length_us, self.world.network.mend, links)

    def _muffle(self, record: Shard) -> None:
        """Some members hear of the election late: the smallest quorums decide."""
        quorum = record.quorum.of(len(record.ensemble))
        deaf = self.random.sample(record.ensemble, quorum.size - quorum.fencing)
        if not deaf:
            return
        self._tell(f"{' '.join(m.node for m in deaf)} not told of epoch {record.epoch}")
        links = [
            link
            for member in deaf
            for operator in self.world.operator_names
            for link in ((operator, member.node), (member.node, operator))
        ]
        self._cut(links, self.random.randint(100_000, 1_500_000))

    def _isolate(self, leader: Member | None) -> None:
        """The leader keeps one follower, or none, and dies a little later."""
        if leader is None:
            return
        others = [name for name in self.world.node_names if name != leader.node]
        kept = self.random.sample(others, min(len(others), self.random.choice((0, 0, 1))))
        self._tell(f"{leader.node} alone with {kept or 'nobody'}")
        links = [
            link
            for other in others
            if other not in kept
            for link in ((leader.node, other), (other, leader.node))
        ]
        self._cut(links, self.random.randint(50_000, 1_000_000))
        if self.random.random() < 0.8:
            self._kill_soon(leader)

    def _kill_soon(self, leader: Member | None) -> None:
        if leader is None:
            return
        node = self.world.nodes[leader.node]
        delay_us = int(self.random.expovariate(1.0) * self.random.choice((5, 50, 200)) * 1000)
        self._tell(f"{leader.node} dies in {delay_us // 1000} ms")
        generation = node.generation
        self.world.scheduler.after(delay_us, self._kill, (leader.node, generation))

    def _kill(self, victim: tuple[str, int]) -> None:
        name, generation = victim
        node = self.world.nodes[name]
        if self.world.adversary.active and node.generation == generation:
            node.crash()

    def _strike_change(self, record: Shard) -> None:
        """Between the phases: the leader, or whoever drives the change, or some links."""
        shape = self.random.choice(("leader", "leader", "operators", "isolate", "both"))
        if shape in ("leader", "both"):
            self._kill_soon(record.leader)
        if shape == "isolate":
            self._isolate(record.leader)
        if shape in ("operators", "both"):
            for operator in self.world.operators.values():
                operator.doom = self.random.randint(0, 3)
            self._tell("operators doomed")
        if self.random.random() < 0.5:
            self._muffle(record)
