"""Faults that wait for their moment: right after a step has been written to the metadata.

Random faults seldom meet the few milliseconds in which a protocol is open to them.  An ambush
watches the record and strikes there: it leaves a new leader alone with one follower or none and
then kills it, keeps some members from hearing of an election, kills the leader or the coordinator
between the phases of a reconfiguration.  That is how trace number one comes about by chance.

None of them is a story: each is one thing that happens to a cluster at a bad moment, and what
comes of several in a row is left to chance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardlog.protocol.coordination import Swap
from shardlog.protocol.entry import Member
from shardlog.protocol.messages import Reconfiguration
from shardlog.protocol.shard import Phase, Shard, Status

if TYPE_CHECKING:
    from shardlog.sim.node import Node
    from shardlog.sim.world import World

Links = list[tuple[str, str]]


class Ambush:
    """Strikes with the probability `chance` at every change of the record."""

    __slots__ = ("chance", "epoch", "random", "world")

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.random
        self.chance = 0.0 if world.options.calm_ms else world.options.ambush
        # The highest epoch in which something has been committed.
        self.epoch = 0

    def committed(self, node: Node) -> None:
        """A leader commits, for the first time in its epoch say: it dies at that very moment."""
        replica = node.replica
        if replica.lead is None or not self.world.adversary.active:
            return
        chance = self.chance / (2 if replica.epoch > self.epoch else 60)
        self.epoch = max(self.epoch, replica.epoch)
        if chance and self.random.random() < chance:
            self._tell(f"{node.name} dies at a commit in epoch {replica.epoch}")
            node.doom = self.random.choice((0, 0, 1, 2))

    def stored(self, before: Shard | None, record: Shard) -> None:
        chance = self.chance
        if not chance or not self.world.adversary.active or self.random.random() >= chance:
            return
        if record.status is Status.ELECTION:
            self.random.choice((self._muffle, self._hush))(record)
        elif record.phase is Phase.COMMIT or (record.phase and self.random.random() < 0.4):
            self._strike_change(record)
        elif record.phase is not None:
            return  # most changes should get as far as COMMIT
        elif record.status is not Status.STEADY or record.leader is None:
            return
        elif before is not None and before.change is not None:
            self._kill_soon(record.leader, 5)
        elif record.joining is not None and self.random.random() < 0.6:
            self._starve(record, record.leader, record.joining.old)
        else:
            self.random.choice((self._strand, self._isolate, self._thin_out))(record.leader)

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

    def _hush(self, record: Shard) -> None:
        """No node hears another for a while: whoever is elected begins alone."""
        names = [member.node for member in record.fencing_ensemble]
        links = [(one, other) for one in names for other in names if one != other]
        self._tell(f"nobody hears another in epoch {record.epoch}")
        length_us = self.random.randint(50_000, 600_000)
        self._cut(links, length_us)
        if self.random.random() < 0.5:
            self._muffle(record)
        if self.random.random() < 0.7:
            self.world.scheduler.after(length_us - 1, self._kill_leader, None)

    def _kill_leader(self, _: None) -> None:
        """Whoever leads by now dies with what it has told nobody."""
        record = self.world.store.record
        if record is not None and record.leader is not None:
            self._tell(f"{record.leader.node} dies before it is heard")
            self._kill((record.leader.node, self.world.nodes[record.leader.node].generation))

    def _strand(self, leader: Member) -> None:
        """The leader loses everyone but its clients, and does not know it."""
        ends = [*self.world.node_names, *self.world.operator_names]
        links = [
            link
            for end in ends
            if end != leader.node
            for link in ((leader.node, end), (end, leader.node))
        ]
        self._tell(f"{leader.node} stranded")
        self._cut(links, self.random.randint(500_000, 3_000_000))

    def _thin_out(self, leader: Member) -> None:
        """The leader is heard by all, and its entries reach nobody; somebody replaces a member."""
        links = [(leader.node, name) for name in self.world.node_names if name != leader.node]
        self._tell(f"no entries from {leader.node}")
        self.world.network.make_thin(links)
        length_us = self.random.randint(500_000, 5_000_000)
        self.world.scheduler.after(length_us, self.world.network.widen, links)
        if self.random.random() < 0.5:
            delay_us = self.random.randint(0, 500_000)
            self.world.scheduler.after(delay_us, self._replace, None)

    def _replace(self, _: None) -> None:
        if self.world.adversary.active:
            self.world.adversary.command(only=(Swap,))

    def _part(self, record: Shard, leader: Member, change: Reconfiguration) -> None:
        """Those that stay are split from those that come and go; the leader hears no operator."""
        moving = [member for member in (change.old, change.new) if member is not None]
        staying = [member for member in record.ensemble if member != change.old]
        self._tell(f"{' '.join(member.node for member in moving)} split from the rest")
        links = [
            link
            for one in staying
            for other in moving
            for link in ((one.node, other.node), (other.node, one.node))
        ]
        self._cut(links, self.random.randint(500_000, 3_000_000))
        untold = [(operator, leader.node) for operator in self.world.operator_names]
        self._cut(untold, self.random.randint(20_000, 800_000))
        self._kill_soon(leader, self.random.choice((50, 300)))

    def _starve(self, record: Shard, leader: Member, old: Member | None) -> None:
        """While a new node catches up, the members that stay fall behind the one that leaves."""
        quorum = record.quorum.of(len(record.ensemble))
        staying = [member for member in record.ensemble if member not in (leader, old)]
        starved = staying[: quorum.size - quorum.replication]
        self._tell(f"{' '.join(member.node for member in starved) or 'nobody'} starved")
        links = [
            link
            for member in starved
            for link in ((leader.node, member.node), (member.node, leader.node))
        ]
        self._cut(links, self.random.randint(500_000, 4_000_000))

    def _outrun(self, leader: Member, old: Member | None) -> None:
        """With only the leaving node left, the leader goes on until it is told of the change."""
        others = [name for name in self.world.node_names if name != leader.node]
        kept = [] if old is None else [old.node]
        self._tell(f"{leader.node} runs ahead with {kept or 'nobody'}")
        links = [
            link
            for other in others
            if other not in kept
            for link in ((leader.node, other), (other, leader.node))
        ]
        self._cut(links, self.random.randint(800_000, 2_500_000))
        untold = [(operator, leader.node) for operator in self.world.operator_names]
        self._cut(untold, self.random.randint(20_000, 300_000))

    def _isolate(self, leader: Member) -> None:
        """The leader keeps one follower, or none, and dies a little later."""
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

    def _kill_soon(self, leader: Member, mean_ms: int = 0) -> None:
        node = self.world.nodes[leader.node]
        mean_ms = mean_ms or self.random.choice((5, 50, 200))
        delay_us = int(self.random.expovariate(1.0) * mean_ms * 1000)
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
        shapes = ("leader", "operators", "isolate", "isolate", "both", "part", "part")
        shape = self.random.choice(shapes)
        leader, change = record.leader, record.change
        if leader is None or change is None:
            return
        if shape in ("leader", "both"):
            self._kill_soon(leader)
        if shape == "isolate":
            self._outrun(leader, change.old)
        if shape == "part":
            self._part(record, leader, change)
        if shape in ("operators", "both"):
            for operator in self.world.operators.values():
                operator.doom = self.random.randint(0, 3)
            self._tell("operators doomed")
        if self.random.random() < 0.5:
            self._muffle(record)
