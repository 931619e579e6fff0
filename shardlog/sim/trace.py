"""A readable record of a run: one line for each thing that happened.

    virtual ms  who  what happened                              state after, if it has one

The same seed gives the same bytes, in any process: nothing here depends on the order of a set,
on an address or on a string's hash.  A recorder costs several times what the run costs, so it is
attached for replays only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, TextIO

from shardlog.protocol.coordination import CoordinatorEffect, CoordinatorEvent
from shardlog.protocol.coordinator import Coordinator
from shardlog.protocol.effects import Effect, Event, Received, Send, Tick
from shardlog.protocol.entry import Entry, EntryId, Header, Kind, Member
from shardlog.protocol.history import Span, written
from shardlog.protocol.messages import Envelope, Slot
from shardlog.protocol.replica import Replica
from shardlog.protocol.sessions import Session
from shardlog.protocol.shard import Shard
from shardlog.sim.linearizability import Operation
from shardlog.sim.observer import Observer

if TYPE_CHECKING:
    from shardlog.sim.world import World

KINDS = {Kind.DATA: "d", Kind.EPOCH_START: "e", Kind.REGISTER: "r", Kind.UNKNOWN: "?",
         Kind.LOST: "x"}  # fmt: skip


def shown(value: object) -> str:
    """Any value of the protocol, short."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case Enum():
            return value.name
        case Member() | EntryId() | Span():
            return str(value)
        case Session():
            return f"{value.id}:{value.last}"
        case Entry():
            return shown(value.header)
        case Header():
            return f"{value.epoch}.{value.base}+{value.count}{KINDS[value.kind]}"
        case Slot():
            return f"{value.epoch}.{value.base}-{value.end}{value.mark.name[0]}"
        case bytes():
            return value.hex()
        case tuple() if value and all(isinstance(each, Span) for each in value):
            return written(value)
        case tuple() | list():
            return "[" + " ".join(shown(each) for each in value) + "]"
        case Envelope():
            return f"{value.src}>{value.dst} {shown(value.message)}"
        case _ if is_dataclass(value):
            parts = (f"{each.name}={shown(getattr(value, each.name))}" for each in fields(value))
            return f"{type(value).__name__}({' '.join(parts)})"
    return str(value)


def state(replica: Replica) -> str:
    """A replica in one line."""
    log = replica.log
    marks = "".join(f" {base}{log.marks[base].name[0]}" for base in sorted(log.marks))
    return (
        f"{replica.role} e{replica.epoch} [{log.first},{log.end}) commit {replica.commit} "
        f"durable {replica.durable_end} {written(replica.history)}{marks}"
    )


class Recorder(Observer):
    """Writes to `out` as the run goes, so that a crash leaves all that led to it."""

    def __init__(self, out: TextIO) -> None:
        self.out = out

    def _line(self, world: World, who: str, what: str, after: str = "") -> None:
        now_us = world.scheduler.now_us
        tail = f"  | {after}" if after else ""
        self.out.write(f"{now_us // 1000:7d}.{now_us % 1000:03d} {who:4s} {what}{tail}\n")

    def _effects(self, world: World, who: str, effects: Sequence[object]) -> None:
        """Messages are told when they are delivered; here, that they left."""
        for effect in effects:
            if isinstance(effect, Send):
                what = f"-> {effect.envelope.dst} {type(effect.envelope.message).__name__}"
            else:
                what = f"!! {shown(effect)}"
            self._line(world, who, f"    {what}")

    def on_step(
        self, world: World, node: str, replica: Replica, event: Event, effects: Sequence[Effect]
    ) -> None:
        if isinstance(event, Tick) and not effects:
            return
        self._line(world, node, _event(event), state(replica))
        self._effects(world, node, effects)

    def on_coordinator(
        self,
        world: World,
        name: str,
        coordinator: Coordinator,
        event: CoordinatorEvent,
        effects: Sequence[CoordinatorEffect],
    ) -> None:
        if isinstance(event, Tick) and not effects:
            return
        self._line(world, name, _event(event), f"version {coordinator.version}")
        self._effects(world, name, effects)

    def on_store(self, world: World, version: int, shard: Shard | None) -> None:
        self._line(world, "meta", f"version {version} {shown(shard)}")

    def on_reply(self, world: World, client: int, operation: Operation) -> None:
        self._line(world, f"c{client}", f"learned {shown(operation)}")

    def on_crash(self, world: World, name: str) -> None:
        self._line(world, name, "** crashed")

    def on_restart(self, world: World, name: str) -> None:
        node = world.nodes.get(name)
        self._line(world, name, "** restarted", state(node.replica) if node else "")

    def on_wipe(self, world: World, name: str) -> None:
        self._line(world, name, "** lost its disk")

    def on_fault(self, world: World, text: str) -> None:
        self._line(world, "**", text)


def _event(event: Event | CoordinatorEvent) -> str:
    if isinstance(event, Received):
        return f"<- {event.envelope.src} {shown(event.envelope.message)}"
    return shown(event)
