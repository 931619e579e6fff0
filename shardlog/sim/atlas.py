"""Where the good copies are: what the adversary may damage without making the log unrecoverable.

Any protocol loses data if every copy is destroyed, so a simulator that destroys copies blindly
proves nothing.  The atlas knows the committed chain and every disk, and allows a fault only if

- at every offset at most `replication - 1` members of each ensemble are *hurt*: their copy is
  damaged, or their disk is lost and they have not been swapped back in (so that of any replication
  quorum one copy is good, whether or not the entry turns out to be committed);
- every committed entry that was not trimmed keeps an intact durable copy on a member that stays;
- at most `size - fencing` disks of an ensemble are lost at a time, and a replication quorum is not.

"Each ensemble" means the present one, the one a running reconfiguration leads to, and those that
commands under way might lead to.  A reconfiguration is commanded only if the same would hold in
the ensemble it leads to: damage that nobody has noticed yet cannot be covered by rule 8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardlog.protocol.coordination import Command, Contract, Expand, Swap
from shardlog.protocol.entry import Kind, Member
from shardlog.protocol.history import OPEN_END
from shardlog.protocol.log import Log
from shardlog.protocol.messages import Operation, Reconfiguration
from shardlog.protocol.quorum import Ensemble
from shardlog.protocol.shard import Shard
from shardlog.sim.slot import Part, Slot

if TYPE_CHECKING:
    from shardlog.sim.node import Node
    from shardlog.sim.world import World


class Atlas:
    """`chain` maps the base of each committed entry to its checksum, and `ends` to its end."""

    __slots__ = ("chain", "commit", "ends", "pending", "world")

    def __init__(self, world: World) -> None:
        self.world = world
        self.commit = 0
        self.chain: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        # Commands given and not answered yet.
        self.pending: list[Command] = []

    def extend(self, log: Log, commit: int) -> None:
        """Some replica knows of a higher commit offset."""
        for header in log.between(self.commit, commit):
            if header.kind is Kind.UNKNOWN:
                return
            self.chain[header.base] = header.checksum
            self.ends[header.base] = self.commit = header.end
        self.commit = max(self.commit, log.first)

    def cut(self, base: int) -> None:
        """People have given up all that may stand from here on."""
        self.chain = {each: checksum for each, checksum in self.chain.items() if each < base}
        self.commit = min(self.commit, base)

    # --- who holds what --------------------------------------------------------------------------

    def trimmed(self) -> int:
        """Below this some replica has trimmed, so all may."""
        return max(node.replica.log.first for node in self.world.nodes.values())

    def lost(self, member: Member) -> bool:
        """Whether the member's disk is gone, though the record still names it."""
        block = self.world.nodes[member.node].disk.superblock
        return block is None or block.incarnation != member.incarnation

    def hurt(self, member: Member, start: int, end: int) -> bool:
        """Whether the member has no good copy, or may have none, of something in `[start, end)`."""
        if self.lost(member):
            return True
        disk = self.world.nodes[member.node].disk
        if disk.misdirecting is not None:
            return True
        for slots in (disk.stable, disk.cache):
            for base, slot in slots.items():
                if slot.body is not Part.OK and base < end and start < reach(slot):
                    return True
        return False

    def ensembles(self, record: Shard) -> list[Ensemble]:
        """Every ensemble that counts, or soon may."""
        found = [record.ensemble]
        if record.change is not None:
            found.append(record.change.after)
        if record.joining is not None:
            joining = record.joining
            change = Reconfiguration(
                joining.operation, record.ensemble, joining.old, joining.member
            )
            found.append(change.after)
        found += [self.after(record, command) for command in self.pending]
        return found

    @staticmethod
    def after(record: Shard, command: Command) -> Ensemble:
        """The ensemble that `command` would lead to; the new node has no replica yet."""
        members = {member.node: member for member in record.ensemble}
        if isinstance(command, Swap):
            change = Reconfiguration(
                Operation.SWAP, record.ensemble, members.get(command.old), Member(command.new, 0)
            )
        elif isinstance(command, Expand):
            change = Reconfiguration(
                Operation.EXPAND, record.ensemble, None, Member(command.new, 0)
            )
        elif isinstance(command, Contract):
            change = Reconfiguration(
                Operation.CONTRACT, record.ensemble, members.get(command.old), None
            )
        else:
            return record.ensemble
        return change.after

    # --- what is allowed -------------------------------------------------------------------------

    def may_hurt(self, node: Node, start: int, end: int) -> bool:
        """Whether `node`'s copies of `[start, end)` may be damaged."""
        record = self.world.store.record
        if record is None:
            return False
        ensembles = self.ensembles(record)
        for ensemble in ensembles:
            if not any(member.node == node.name for member in ensemble):
                continue
            others = [member for member in ensemble if member.node != node.name]
            hurt = 1 + sum(self.hurt(member, start, end) for member in others if _real(member))
            if hurt >= record.quorum.of(len(ensemble)).replication:
                return False
        staying = self._staying(record, ensembles, node)
        return all(
            self._held(base, staying)
            for base in self.chain
            if base < end and start < self.ends[base]
        )

    def may_wipe(self, node: Node) -> bool:
        """Whether `node` may lose its disk."""
        record = self.world.store.record
        if record is None:
            return False
        ensembles = self.ensembles(record)
        for ensemble in ensembles:
            if not any(member.node == node.name for member in ensemble):
                continue
            quorum = record.quorum.of(len(ensemble))
            others = [m for m in ensemble if m.node != node.name]
            lost = 1 + sum(self.lost(member) for member in others)
            if lost > quorum.size - max(quorum.fencing, quorum.replication):
                return False
            if 1 + self._most_hurt([m for m in others if _real(m)]) >= quorum.replication:
                return False
        staying = self._staying(record, ensembles, node)
        trimmed = self.trimmed()
        return all(self._held(base, staying) for base in self.chain if base >= trimmed)

    def may_change(self, command: Command) -> bool:
        """Whether a reconfiguration may be asked for."""
        record = self.world.store.record
        if record is None:
            return False
        after = self.after(record, command)
        replication = record.quorum.of(len(after)).replication if after else 0
        return self._most_hurt([m for m in after if _real(m)]) < replication

    def _most_hurt(self, members: list[Member]) -> int:
        """The largest number of `members` that are hurt at one offset."""
        stretches = [
            (base, reach(slot))
            for member in members
            for base, slot in self.world.nodes[member.node].disk.stable.items()
            if slot.body is not Part.OK
        ]
        least = sum(
            self.lost(m) or self.world.nodes[m.node].disk.misdirecting is not None for m in members
        )
        most = (sum(self.hurt(m, base, end) for m in members) for base, end in stretches)
        return max(most, default=least)

    def _staying(self, record: Shard, ensembles: list[Ensemble], node: Node) -> list[Member]:
        """Members of every ensemble that counts, but for `node`."""
        return [
            member
            for member in record.ensemble
            if member.node != node.name and all(member in ensemble for ensemble in ensembles)
        ]

    def _held(self, base: int, members: list[Member]) -> bool:
        checksum = self.chain[base]
        nodes = self.world.nodes
        return any(
            nodes[member.node].disk.holds(base, checksum) and not self.lost(member)
            for member in members
        )


def reach(slot: Slot) -> int:
    """How far a damaged slot may reach: if its header is gone, nobody can tell."""
    return slot.entry.header.end if slot.known else OPEN_END


def _real(member: Member) -> bool:
    """A new node whose replica is not made yet can be neither hurt nor good."""
    return member.incarnation != 0
