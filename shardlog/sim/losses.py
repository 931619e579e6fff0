"""Entries of which every copy is destroyed, and the people who give them up.

The atlas allows no damage that cannot be repaired; here one entry at a time is damaged on every
disk there is.  The shard has to halt, or to serve all but that entry, until somebody accepts the
loss.  People look every now and then what a coordinator waits for.  They give an entry up only if
it really is nowhere; and now and then they name one that nobody waits for, which must be refused.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from shardlog.protocol.awaiting import awaited
from shardlog.protocol.coordination import AcceptLoss
from shardlog.protocol.entry import EntryId
from shardlog.protocol.history import OPEN_END
from shardlog.protocol.shard import Shard
from shardlog.sim.failures import SafetyFailure
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

    __slots__ = ("destroyed", "given_up", "number", "random", "world")

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = Random(f"losses {world.options.seed}")
        # By base: the checksums of entries that were destroyed everywhere.
        self.destroyed: dict[int, int] = {}
        self.given_up: set[EntryId] = set()
        self.number = FIRST_NUMBER
        if world.options.destroy_every_ms:
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
        elif entry is not None and entry.offset in self.destroyed and self._is_gone(entry.offset):
            self.given_up.add(entry)
            self._command(operator, entry)

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


class LossChecker(Observer):
    """Nothing is given up but what people have given up, each by its name."""

    def __init__(self) -> None:
        self.known = 0

    def on_restore(self, world: World, shard: Shard) -> None:
        self.known = len(shard.losses)

    def on_store(self, world: World, version: int, shard: Shard | None) -> None:
        losses = shard.losses if shard is not None else ()
        for lost in losses[self.known :]:
            if lost.id not in world.losses.given_up:
                raise SafetyFailure(
                    "NoLossOfConfirmedWrite", f"{lost.id} was given up by nobody's word"
                )
            world.statistics.given_up += 1
        self.known = len(losses)
