"""Entries of which every copy is destroyed, and the people who give them up.

The atlas allows no damage that cannot be repaired; here one entry at a time is damaged on every
disk there is.  The shard has to halt, or to serve all but that entry, until somebody accepts the
loss.  People look every now and then what a coordinator waits for.  They give an entry up only if
it really is nowhere; and now and then they name one that nobody waits for, which must be refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from shardlog.protocol.awaiting import awaited
from shardlog.protocol.coordination import AcceptLoss
from shardlog.protocol.entry import EntryId, Header, Kind, Member
from shardlog.protocol.history import OPEN_END
from shardlog.protocol.quorum import reached
from shardlog.protocol.replica import Replica
from shardlog.protocol.shard import Shard
from shardlog.sim.failures import SafetyFailure
from shardlog.sim.linearizability import Operation
from shardlog.sim.observer import Observer
from shardlog.sim.slot import Part

if TYPE_CHECKING:
    from shardlog.sim.operators import Operator
    from shardlog.sim.world import World

LOOK_US = 150_000
WRONG = 0.1
FIRST_NUMBER = 1_000_000
"""Of the commands: they are not the adversary's."""


class Losses:
    """`given_up` is what people have accepted as lost: nothing else may be."""

    __slots__ = ("cuts", "destroyed", "given_up", "known", "left", "number", "random", "world")

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = Random(f"losses {world.options.seed}")
        # By base: the checksums of entries that were destroyed everywhere.
        self.destroyed: dict[int, int] = {}
        self.given_up: set[EntryId] = set()
        self.number = FIRST_NUMBER
        # Losses that stand in the record, and the time and offset of those that cut the log.
        self.known: tuple[Header, ...] = ()
        self.cuts: list[tuple[int, int]] = []
        # Who had committed what was cut, and still has it, by loss: nobody goes by their word.
        self.left: set[tuple[Member, Header]] = set()
        if world.options.destroy_every_ms or world.options.gives_up:
            world.scheduler.after(LOOK_US, self._look, None)

    # --- destroying ------------------------------------------------------------------------------

    def destroy(self) -> None:
        """One committed entry, but not the last, on all disks: its body, or its header copy too."""
        base, both = self._victim(), self.random.random() < 0.5
        if base is None or (both and self._hurt_from(base)):
            return
        checksum = self.world.atlas.chain[base]
        struck = 0
        for node in self.world.nodes.values():
            slot = node.disk.stable.get(base)
            if slot is None or slot.entry.header.checksum != checksum:
                continue
            struck += 1
            if slot.body is Part.OK:
                node.disk.rot_body(base)
            if both and slot.header is Part.OK:
                node.disk.rot_header(base)
        if struck:
            self.destroyed[base] = checksum
            self.world.statistics.destroyed += 1
            for watch in self.world.fault_watchers:
                watch(self.world, f"destroy {base} everywhere{', header and all' if both else ''}")

    def _victim(self) -> int | None:
        """None while an earlier one has not been given up."""
        atlas = self.world.atlas
        if any(base >= atlas.trimmed() and self._is_gone(base) for base in self.destroyed):
            return None
        first = atlas.trimmed()
        bases = [base for base in atlas.chain if base >= first and atlas.ends[base] < atlas.commit]
        return self.random.choice(bases[-8:]) if bases else None

    def _hurt_from(self, base: int) -> bool:
        """Whether anybody's log is damaged from here on, so that the two would run together."""
        record = self.world.store.record
        members = record.ensemble if record else ()
        return any(self.world.atlas.hurt(member, base, OPEN_END) for member in members)

    def _is_gone(self, base: int) -> bool:
        """Whether no disk has the entry, or will have it, or a marker in its place."""
        checksum = self.destroyed[base]
        slots = (
            slots.get(base)
            for node in self.world.nodes.values()
            for slots in (node.disk.stable, node.disk.cache)
        )
        return not any(
            slot is not None and slot.body is Part.OK and slot.entry.header.checksum == checksum
            for slot in slots
        )

    # --- giving up -------------------------------------------------------------------------------

    def _look(self, _: None) -> None:
        self.world.scheduler.after(LOOK_US, self._look, None)
        for operator in self.world.operators.values():
            if operator.up and not operator.paused and self.random.random() < 0.5:
                self._ask(operator)

    def _ask(self, operator: Operator) -> None:
        waiting = awaited(operator.coordinator)
        entry = waiting.entry if waiting else None
        if self.random.random() < WRONG:
            self._ask_wrongly(operator, entry)
        elif entry is not None and self._may_give_up(entry):
            self.given_up.add(entry)
            self._command(operator, entry)

    def _may_give_up(self, entry: EntryId) -> bool:
        if entry.offset in self.destroyed:
            return self._is_gone(entry.offset)
        options, checksum = self.world.options, self.world.atlas.chain.get(entry.offset)
        if self.random.random() >= options.gives_up:
            return False
        if checksum is None:
            return True  # it may have been there, and if so nobody was told
        hurry = self.random.random() < options.hurry
        nodes = self.world.nodes.values()
        holders = [node for node in nodes if node.disk.holds(entry.offset, checksum)]
        if holders and (not hurry or any(node.up for node in holders)):
            return False
        know = [node for node in nodes if node.replica.commit > entry.offset]
        return self._can_commit_without({node.replica.member for node in (*holders, *know)})

    def _can_commit_without(self, members: set[Member]) -> bool:
        """Whether those who may have to be made anew leave a replication quorum."""
        record = self.world.store.record
        if record is None:
            return False
        lost = members | {member for member, _ in self.left}
        return all(
            reached(record.quorum.of(len(each)).replication, each, set(each) - lost)
            for each in record.ensembles
        )

    def _ask_wrongly(self, operator: Operator, awaited_now: EntryId | None) -> None:
        record, chain = self.world.store.record, self.world.atlas.chain
        if record is None or not chain:
            return
        entry = EntryId(self.random.randint(1, record.epoch + 1), self.random.choice(list(chain)))
        if entry != awaited_now:
            self._command(operator, entry)

    def _command(self, operator: Operator, entry: EntryId) -> None:
        self.number += 1
        operator.command(self.number, AcceptLoss(entry))

    # --- what follows ----------------------------------------------------------------------------

    def stored(self, record: Shard) -> None:
        """A log that was cut by people's word goes on elsewhere, unless what it was is back."""
        for lost in record.losses:
            if lost not in self.known:
                self.known += (lost,)
                if not lost.count:
                    self._cut(lost)
        # Where a loss was withdrawn, who has what was lost was right.
        self.left = {(member, lost) for member, lost in self.left if lost in record.losses}

    def _cut(self, lost: Header) -> None:
        self.cuts.append((self.world.scheduler.now_us, lost.base))
        self.world.atlas.cut(lost.base)
        for node in self.world.nodes.values():
            if node.replica.commit > lost.base:
                self.left.add((node.replica.member, lost))

    def is_left(self, replica: Replica) -> bool:
        """Until it is made anew, or has forgotten in a restart that it had committed so much."""
        member, commit = replica.member, replica.commit
        mine = {(who, lost) for who, lost in self.left if who == member}
        self.left -= {(who, lost) for who, lost in mine if commit <= lost.base}
        return any(commit > lost.base for _, lost in mine)


def eras(history: list[Operation], cuts: list[tuple[int, int]]) -> Iterator[list[Operation]]:
    """What clients saw up to each cut, and what they saw in the end, each to be judged by itself.

    What was answered about offsets that were cut since binds nothing any more: an append may have
    been undone, and a read saw what another one need not.
    """
    for at_us, base in cuts:
        yield [
            each if each.reply is not None and each.reply < at_us else _unanswered(each)
            for each in history
            if each.call < at_us
        ]
        history = [
            _unanswered(each) if each.call <= at_us and _reaches(each, base) else each
            for each in history
        ]
    yield history


def _reaches(operation: Operation, base: int) -> bool:
    if operation.kind == "append":
        return operation.offset is not None and operation.offset + operation.count > base
    return operation.end > base


def _unanswered(operation: Operation) -> Operation:
    return replace(operation, reply=None, offset=None, seen=None, end=0)


class LossChecker(Observer):
    """Nothing is given up but what people have given up, each by its name.

    And no loss stands any longer than until somebody leads who has it after all: it would be taken
    for a permit the next time.
    """

    def __init__(self) -> None:
        self.known: set[Header] = set()
        self.before: Shard | None = None

    def on_restore(self, world: World, shard: Shard) -> None:
        self.known |= set(shard.losses)

    def on_store(self, world: World, version: int, shard: Shard | None) -> None:
        before, self.before = self.before, shard
        losses = shard.losses if shard is not None else ()
        for lost in losses:
            if lost in self.known:
                continue
            self.known.add(lost)
            if lost.id not in world.losses.given_up:
                raise SafetyFailure(
                    "NoLossOfConfirmedWrite", f"{lost.id} was given up by nobody's word"
                )
            world.statistics.given_up += 1
        if shard is not None and before is not None and shard.leader != before.leader:
            self._check_needed(world, shard)

    @staticmethod
    def _check_needed(world: World, shard: Shard) -> None:
        if shard.leader is None or not shard.losses:
            return
        node = world.nodes[shard.leader.node]
        if not node.up:
            return  # it has died meanwhile, and its files are not to be read through it
        log = node.replica.log
        for lost in shard.losses:
            there = log.covering(lost.base)
            if lost.count or there is None or there.id != lost.id or there.kind is Kind.UNKNOWN:
                continue
            if log.present(lost.base):
                raise SafetyFailure(
                    "LossesAreNeeded", f"{shard.leader} has {lost.id}, and its loss stands"
                )
