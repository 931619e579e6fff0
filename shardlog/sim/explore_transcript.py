"""A path through a world as text: one line for each action, and what it changed."""

from __future__ import annotations

from collections.abc import Iterator

from shardlog.protocol.coordination import Commanded
from shardlog.protocol.effects import Received, Tick
from shardlog.protocol.shard import Shard
from shardlog.sim.explore_cells import Action
from shardlog.sim.explore_coordinators import Learn, Polled, Suspect
from shardlog.sim.explore_world import State, World
from shardlog.sim.trace import shown
from shardlog.sim.trace import state as replica_state


def told(world: World, before: State | None, action: Action, after: State | None) -> Iterator[str]:
    """The action, then every end and the metadata, as far as they changed."""
    names = _names(world)
    if before is None:
        yield "begins with"
    else:
        yield f"{names[action.at]:4s} {_event(world, action)}"
    if after is None:
        return
    for at, name in names.items():
        if at >= world.nodes:
            continue
        if before is None or world.machine(before, at) != world.machine(after, at):
            replica = world.known.replicas.values[world.machine(after, at)]
            yield f"       {name:4s} {replica_state(replica)}"
    if before is None or before[world.at_store] != after[world.at_store]:
        store = world.known.stores.values[after[world.at_store]]
        assert store.record is not None
        yield f"       meta {_record(store.record)}"


def _names(world: World) -> dict[int, str]:
    return {end: name for name, end in sorted(world.known.ends.items(), key=lambda each: each[1])}


def _event(world: World, action: Action) -> str:
    if action.event < 0:
        return "** crashes, and comes back"
    event = world.known.inputs.values[action.event]
    crash = "** crashes while it takes: " if action.crashed else ""
    match event:
        case Received():
            return f"{crash}<- {event.envelope.src} {shown(event.envelope.message)}"
        case Suspect():
            return f"{crash}suspects the leader"
        case Learn():
            return f"{crash}reads the record"
        case Polled():
            return f"{crash}looks after the shard"
        case Commanded():
            return f"{crash}is told: {shown(event.command)}"
        case Tick():
            return f"{crash}asks for what it lacks"
    return f"{crash}{shown(event)}"


def _record(record: Shard) -> str:
    """A record in one line."""
    ensemble = " ".join(str(member) for member in record.ensemble)
    parts = [f"{record.status} e{record.epoch} [{ensemble}]"]
    if record.leader:
        parts.append(f"leader {record.leader}")
    if record.change:
        after = " ".join(str(member) for member in record.change.after)
        parts.append(f"{record.phase} {record.change.operation} to [{after}]")
    if record.joining:
        cancelled = ", cancelled" if record.joining.cancelled else ""
        parts.append(f"{record.joining.member} joins{cancelled}")
    if record.removed:
        parts.append("removed " + " ".join(str(member) for member in record.removed))
    return ", ".join(parts)
