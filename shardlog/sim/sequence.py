"""What has to come before what, checked where it is written.

The table of sessions is kept before the past that it was folded from is dropped (rule 19); a sync
is over only when its commit context is taken over, which comes last (V8); and a change that stands
in the metadata as COMMIT is completed, whatever happens (rule 9).  The harm of a wrong order shows
only after the one crash that strikes between two writes; the order shows at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shardlog.protocol.effects import Effect, Event, Format, Superblock, TrimLog, WriteSuperblock
from shardlog.protocol.entry import Member
from shardlog.protocol.replica import Replica
from shardlog.protocol.shard import Phase, Shard, Status
from shardlog.sim.failures import SafetyFailure
from shardlog.sim.observer import Observer

if TYPE_CHECKING:
    from shardlog.sim.world import World


class SequenceChecker(Observer):
    def __init__(self) -> None:
        self.written: dict[Member, Superblock] = {}
        self.record: Shard | None = None

    def on_step(
        self, world: World, node: str, replica: Replica, event: Event, effects: Sequence[Effect]
    ) -> None:
        for effect in effects:
            if type(effect) is WriteSuperblock:
                self._write(replica.member, effect.superblock)
            elif type(effect) is Format:
                self.written[replica.member] = effect.superblock
            elif type(effect) is TrimLog:
                kept = self.written.get(replica.member)
                if kept is not None and kept.sessions_at < effect.first:
                    raise SafetyFailure(
                        "TableFirst",
                        f"{replica.member} drops all below {effect.first}, and has kept the table"
                        f" of sessions at {kept.sessions_at}",
                    )

    def _write(self, member: Member, block: Superblock) -> None:
        before = self.written.get(member)
        self.written[member] = block
        if before is None or before.syncing is None or block.syncing is not None:
            return
        if min(block.commit, block.sessions_at) < before.syncing.end:
            raise SafetyFailure(
                "ContextLast",
                f"{member} ends its sync up to {before.syncing.end} with a commit offset of"
                f" {block.commit} and sessions at {block.sessions_at}",
            )

    def on_restart(self, world: World, name: str) -> None:
        """What was not written before a crash binds nobody."""
        if name in world.nodes:
            replica, block = world.nodes[name].replica, world.nodes[name].disk.superblock
            if block is not None:
                self.written[replica.member] = block

    def on_restore(self, world: World, shard: Shard) -> None:
        self.record = shard

    def on_store(self, world: World, version: int, shard: Shard | None) -> None:
        before, self.record = self.record, shard
        if before is None or shard is None or shard.status is Status.DELETING:
            return
        if before.phase is not Phase.COMMIT or shard.phase is Phase.COMMIT or not before.change:
            return
        if shard.ensemble != before.change.after:
            raise SafetyFailure("CommitStands", f"a change in COMMIT ended in {shard.ensemble}")
