"""The second phase: everything heals, and then everything must come to rest.

A core that can serve is left up for good.  From then on the shard has a bounded time to come to
rest: every call of a client is answered or refused for good, no reconfiguration is under way, and
all replicas are equal up to the commit offset.  If it does not, `out_of_reach` decides whether it
*could* have: it looks at the disks alone, as no machine can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardlog.protocol.entry import Member
from shardlog.protocol.quorum import Ensemble, reached
from shardlog.protocol.replica import Replica
from shardlog.protocol.sessions import SessionLimits, Sessions
from shardlog.protocol.shard import Shard, Status
from shardlog.protocol.states import Role
from shardlog.sim.atlas import reach
from shardlog.sim.slot import Part

if TYPE_CHECKING:
    from shardlog.sim.engine_disk import SimulatedDisk
    from shardlog.sim.node import Node
    from shardlog.sim.world import World


SETTLED_US = 1_000_000

GAIN_US_MAX = 1_000_000
"""How long ago the last new ground may have been gained."""


def heal(world: World) -> None:
    """All faults end; all processes run, but for those that a core can do without."""
    world.adversary.active = False
    world.network.heal()
    world.store.heal()
    spare = world.options.leave_down and not world.restores.count
    left_down = _left_down(world) if spare else []
    for operator in world.operators.values():
        operator.doom = None
        operator.restart()
        operator.resume()
    for node in world.nodes.values():
        if node.away:
            node.away = False
            node.crash()
        node.doom = None
        node.disk.failing = False
        node.disk.misdirecting = None
        if node.name in left_down:
            node.crash()
        else:
            node.restart()
            node.resume()
            node.replica.draining = False
    _scrub(world)
    if world.options.engine:
        # What was on its way to the disk was read from memory just now.
        world.scheduler.after(SETTLED_US, _scrub, world)
    for client in world.clients:
        client.finish()


def _scrub(world: World) -> None:
    for node in world.nodes.values():
        if node.up:
            node.scrub_all()


def _left_down(world: World) -> list[str]:
    """Some members that every ensemble that counts can do without.

    A member that lost its disk is not among them: it is wanted back, again and again.
    """
    record = world.store.record
    if record is None or record.status is Status.CREATING:
        return []
    ensembles = world.atlas.ensembles(record)
    down: list[str] = []
    for member in record.ensemble:
        if world.random.random() < 0.4 or world.atlas.lost(member):
            continue
        if _can_spare(world, record, ensembles, [*down, member.node]):
            down.append(member.node)
    return down


def _can_spare(world: World, record: Shard, ensembles: list[Ensemble], down: list[str]) -> bool:
    atlas = world.atlas
    for ensemble in ensembles:
        quorum = record.quorum.of(len(ensemble))
        up = [m for m in ensemble if m.node not in down and m.incarnation and not atlas.lost(m)]
        if len(up) < max(quorum.fencing, quorum.replication):
            return False
    staying = [m for m in record.ensemble if m.node not in down]
    return _unreachable(world, record, staying) is None


def hindmost_end(world: World) -> int:
    """Where the log ends of the last of those that are to become equal, a new node among them."""
    record = world.store.record
    if record is None:
        return 0
    names = [member.node for member in record.ensemble]
    names += [record.joining.node] if record.joining else []
    return min((world.nodes[n].replica.log.end for n in names if world.nodes[n].up), default=0)


class Pace:
    """Whether the hindmost replica still gains on the log as it was at the healing.

    A long log over a slow link takes its time, and that is no failure.  Only new ground up to
    `goal` counts, so there is an end to it: whoever starts over again and again gains nothing,
    and neither does a shard that adds an epoch every second.
    """

    __slots__ = ("end", "gained_us", "goal")

    def __init__(self, goal: int, now_us: int) -> None:
        self.goal = goal
        self.end = 0
        self.gained_us = now_us

    def note(self, end: int, now_us: int) -> None:
        if min(end, self.goal) > self.end:
            self.end, self.gained_us = end, now_us

    def gains(self, now_us: int) -> bool:
        return now_us - self.gained_us <= GAIN_US_MAX


def unsettled(world: World) -> str | None:
    """Why the shard is not at rest; None if it is."""
    record = world.store.record
    if record is None:
        return "there is no record"
    if record.halted is not None:
        return f"halted: {record.halted}"
    if record.status is not Status.STEADY:
        return f"the status is {record.status} at epoch {record.epoch}"
    if record.change is not None or record.joining is not None:
        return f"a reconfiguration is under way: {record.change or record.joining}"
    for client in world.clients:
        if not client.idle:
            return f"{client.name} waits for an answer"
    return _unequal(world, record) or _restless(world, record)


def _restless(world: World, record: Shard) -> str | None:
    """Whom the leader takes for a follower and the record does not know; or that it is busy."""
    lead = world.nodes[record.leader.node].replica.lead if record.leader else None
    if lead is None:
        return "there is no leader"
    strangers = [str(member) for member in lead.cursors if member not in record.ensemble]
    if strangers:
        return f"{record.leader} feeds {', '.join(strangers)}, which the record does not know"
    if not lead.resting and all(world.nodes[member.node].up for member in record.ensemble):
        return f"{record.leader} does not rest"
    return None


def _unequal(world: World, record: Shard) -> str | None:
    """How a replica that is up differs from its leader's, up to the commit offset."""
    if record.leader is None:
        return "there is no leader"
    leader = world.nodes[record.leader.node]
    if leader.replica.role is not Role.LEADER:
        return f"{leader.name} leads in the record and is {leader.replica.role}"
    for member in record.ensemble:
        node = world.nodes[member.node]
        if not node.up:
            continue
        reason = _differs(node, member, leader)
        if reason is not None:
            return f"{member}: {reason}"
    return None


def _differs(node: Node, member: Member, leader: Node) -> str | None:
    replica, leading = node.replica, leader.replica
    if replica.member != member:
        return f"the node has {replica.member}"
    if node is not leader and replica.role is not Role.FOLLOWER:
        return f"is {replica.role} at epoch {replica.epoch}"
    if replica.commit != leading.commit:
        return f"has committed {replica.commit}, its leader {leading.commit}"
    start = max(replica.log.first, leading.log.first)
    mine = [h.checksum for h in replica.log.between(start, replica.commit)]
    theirs = [h.checksum for h in leading.log.between(start, leading.commit)]
    if mine != theirs:
        return "differs from its leader"
    if _table(replica) != _table(leading):
        return "has other sessions than its leader"
    nonces = [session.nonce for session in replica.sessions.at_rest()]
    if len(set(nonces)) < len(nonces):
        return "has two sessions of one registration"
    for header in replica.log.between(start, replica.commit):
        slot = node.disk.cache.get(header.base)
        if header.base in replica.log.marks or slot is None or slot.body is not Part.OK:
            return f"has no good copy of {header.id}"
    return None


def _table(replica: Replica) -> tuple[int, SessionLimits, Sessions]:
    sessions = replica.sessions
    return sessions.applied, sessions.limits, sessions.at_rest()


def out_of_reach(world: World) -> str | None:
    """Why the data cannot be had, from the disks alone; None if it can."""
    record = world.store.record
    if record is None:
        return None
    for ensemble in record.ensembles:
        up = [m for m in ensemble if world.nodes[m.node].up and not world.atlas.lost(m)]
        quorum = record.quorum.of(len(ensemble))
        if len(up) < max(quorum.fencing, quorum.replication) and record.status != Status.CREATING:
            return f"only {len(up)} of {len(ensemble)} disks are left"
    up = [m for m in record.fencing_ensemble if world.nodes[m.node].up]
    return _unreachable(world, record, list(up))


def _unreachable(world: World, record: Shard, up: list[Member]) -> str | None:
    """The first entry that is needed and neither held nor disowned by those who are up."""
    atlas = world.atlas
    trimmed = atlas.trimmed()
    disks = {m: world.nodes[m.node].disk for m in up if not atlas.lost(m)}
    for base, checksum in atlas.chain.items():
        if base >= trimmed and not any(disk.holds(base, checksum) for disk in disks.values()):
            return f"no good copy of the committed entry at {base}"
    doubted = {
        (base, slot.entry.header.checksum)
        for disk in disks.values()
        for base, slot in disk.stable.items()
        if base >= atlas.commit and slot.body is not Part.OK and not slot.blank
    }
    if any(_open_tail(disk) for disk in disks.values()):
        # Something unknown may stand behind all that can be read.
        doubted.add((max(_known_end(disk) for disk in disks.values()), 0))
    for base, checksum in sorted(doubted):
        if any(disk.holds(base, checksum) for disk in disks.values()):
            continue
        nacks = {m for m, disk in disks.items() if _never_had(disk, base, checksum)}
        for ensemble in record.ensembles:
            if not reached(record.quorum.of(len(ensemble)).nack, ensemble, nacks):
                return f"something may stand at {base}, and too few never had it"
    return None


def _open_tail(disk: SimulatedDisk) -> bool:
    last = disk.stable.get(max(disk.stable, default=0))
    return last is not None and not last.known and not last.blank


def _known_end(disk: SimulatedDisk) -> int:
    ends = (slot.entry.header.end for slot in disk.stable.values() if slot.known)
    return max(ends, default=disk.first)


def _never_had(disk: SimulatedDisk, base: int, checksum: int) -> bool:
    """Whether the disk says positively that this entry was never on it."""
    slot = disk.stable.get(base)
    if slot is not None and slot.known:
        return slot.entry.header.checksum != checksum
    for start, other in disk.stable.items():
        if start <= base < reach(other) and not other.known and not other.blank:
            return False
    return True
