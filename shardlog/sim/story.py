"""A run told for people: what happened to the shard, and what became of its records.

The narrator watches a run like any checker.  It leaves out messages and heartbeats and tells what
an operator of the shard would notice: elections, reconfigurations, crashes, damaged disks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shardlog.protocol.coordination import CoordinatorLimits
from shardlog.protocol.effects import Limits
from shardlog.protocol.shard import Shard, Status
from shardlog.sim.healing import unsettled
from shardlog.sim.linearizability import Operation, check
from shardlog.sim.observer import Observer
from shardlog.sim.options import Options

if TYPE_CHECKING:
    from shardlog.sim.world import World

STORY_FAULTS = ("crash ", "rot ", "wipe ", "power cut", "misdirect ", "cut ", "pause ", "io error ")


def story_options(seed: int) -> Options:
    """Three replicas and two spare nodes, two operators, and a hard life."""
    return Options(
        seed=seed,
        members=3,
        spares=2,
        coordinators=2,
        limits=Limits(),
        coordinator_limits=CoordinatorLimits(),
        look_ms=100,
        clients=4,
        think_ms=10,
        loss=0.01,
        duplicate=0.01,
        reorder=0.05,
        cut_every_ms=4000,
        crash_every_ms=2500,
        pause_every_ms=6000,
        wipe_every_ms=9000,
        rot_every_ms=1200,
        misdirect_every_ms=5000,
        io_error_every_ms=8000,
        coordinator_crash_every_ms=5000,
        command_every_ms=2500,
        messages_min=30_000,
        elections_min=8,
        changes_min=4,
        ambush=0.2,
    )


@dataclass(slots=True)
class Tally:
    """What the clients got."""

    acknowledged: int = 0
    records: int = 0
    reads: int = 0
    longest_pause_us: int = 0
    last_reply_us: int = 0
    offsets: list[int] = field(default_factory=list)
    found: int = 0
    trimmed: int = 0
    linearizable: bool = False
    equal: bool = False


class Narrator(Observer):
    """Calls `tell(seconds, topic, text)` for everything worth telling."""

    def __init__(self, tell: Callable[[float, str, str], None]) -> None:
        self.tell = tell
        self.tally = Tally()
        self.before: Shard | None = None

    def _say(self, world: World, topic: str, text: str) -> None:
        self.tell(world.scheduler.now_us / 1e6, topic, text)

    def on_fault(self, world: World, text: str) -> None:
        if text.startswith(STORY_FAULTS):
            self._say(world, "fault", _fault_in_words(text))

    def on_store(self, world: World, version: int, shard: Shard | None) -> None:
        before, self.before = self.before, shard
        if shard is None:
            self._say(world, "delete", "the shard is gone")
        elif before is None:
            nodes = " ".join(member.node for member in shard.ensemble)
            self._say(world, "create", f"a shard on {nodes}")
        elif shard.status is Status.STEADY and before.status is not Status.STEADY:
            members = " ".join(member.node for member in shard.ensemble)
            leader = shard.leader.node if shard.leader else "nobody"
            self._say(world, "elected", f"{leader} leads epoch {shard.epoch} of {members}")
        elif shard.joining != before.joining and shard.joining and not before.joining:
            self._say(world, "change", f"{shard.joining.operation}: {shard.joining.node} joins")
        elif shard.phase != before.phase and shard.change:
            what = f"{shard.change.operation} {_change_in_words(shard)}"
            self._say(world, "change", f"{what}: {shard.phase} in epoch {shard.epoch}")
        elif before.change and not shard.change and shard.ensemble != before.ensemble:
            names = " ".join(member.node for member in shard.ensemble)
            self._say(world, "change", f"{before.change.operation} done, now on {names}")

    def on_reply(self, world: World, client: int, operation: Operation) -> None:
        tally = self.tally
        now_us = world.scheduler.now_us
        if operation.kind == "read":
            tally.reads += 1
            return
        tally.acknowledged += 1
        tally.records += operation.count
        if operation.offset is not None:
            tally.offsets.append(operation.offset)
        tally.longest_pause_us = max(tally.longest_pause_us, now_us - tally.last_reply_us)
        tally.last_reply_us = now_us

    def on_end(self, world: World) -> None:
        """Look for every acknowledged batch on the leader's disk, and compare the replicas."""
        record = world.store.record
        if record is None or record.leader is None:
            return
        leader = world.nodes[record.leader.node]
        log, tally = leader.replica.log, self.tally
        tally.trimmed = sum(1 for offset in tally.offsets if offset < log.first)
        for offset in tally.offsets:
            header = log.starting_at(offset)
            if header is not None and leader.disk.read(header) is not None:
                tally.found += 1
        tally.linearizable = check(world.history()) is None
        tally.equal = unsettled(world) is None


def _change_in_words(shard: Shard) -> str:
    change = shard.change
    if change is None:
        return ""
    old = f"-{change.old.node}" if change.old else ""
    new = f"+{change.new.node}" if change.new else ""
    return " ".join(part for part in (old, new) if part)


def _fault_in_words(text: str) -> str:
    words = text.split()
    match words:
        case ["crash", node]:
            return f"{node} is killed; what it had not synced may be lost"
        case ["rot", part, node, base]:
            parts = {"body": "the entry", "header": "the header copy", "both": "entry and header"}
            return f"{node}'s disk damages {parts.get(part, part)} at offset {base}"
        case ["wipe", node]:
            return f"{node} loses its whole disk"
        case ["misdirect", node, "onto", base]:
            return f"{node}'s disk will write an entry over another, at offset {base}"
        case ["pause", who]:
            return f"{who} stands still for a while"
        case ["power", "cut"]:
            return "power cut: every node is killed at once"
        case ["io", "error", node]:
            return f"{node}'s disk answers EIO"
        case ["cut", *rest]:
            return f"network cut: {' '.join(rest)}"
    return text
