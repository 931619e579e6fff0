"""What to do next for one shard: from what is wanted and what is, to one command, or why none.

Pure and driven by levels: whoever reconciles asks again whenever something has changed, so nothing
has to be remembered, and an operator that was killed half way is followed by one that comes to the
same next step.  At most one thing is done at a time; the coordinator carries it to its end.

The order is that of urgency: a shard that is not there is made; one that cannot be changed now is
waited for; a node that must not stay is left (leader first); then the number of replicas is brought
to what is wanted; then leaders are moved away from pods that are about to restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardlog.coordinator.scaling import TooFewNodes, choose_nodes, next_command
from shardlog.process.quantities import duration_text
from shardlog.protocol.coordination import (
    Command,
    Contract,
    CreateShard,
    Expand,
    Promote,
    SetRetention,
    Swap,
)
from shardlog.protocol.entry import EntryId
from shardlog.protocol.shard import Shard, Status
from shardlog.protocol.upkeep import Upkeep
from shardlog_operator.placing import WORDS, Places, alive_members, node_for, successor
from shardlog_operator.spec import ShardSpec


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that a plan depends on.  `hosting` counts replicas by node, over all shards."""

    spec: ShardSpec
    record: Shard | None
    places: Places
    hosting: Mapping[str, int]
    # The entry that the shard waits for: no copy of it is known.
    awaited: EntryId | None = None
    # Whether the leader has said since the epoch began how it is: only then `awaited` is known.
    heard: bool = True


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why nothing is done though something is wanted; `reason` is CamelCase, for programs."""

    reason: str
    message: str
    # Whether a person should look: it does not pass by itself.
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A command with its reason, or what is waited for, or neither: all is as it shall be."""

    command: Command | None = None
    reason: str = ""
    message: str = ""
    waiting: Waiting | None = None
    # When to look again though nothing was heard, in seconds.
    again_s: float | None = None


def plan(situation: Situation) -> Plan:
    spec, record = situation.spec, situation.record
    if record is None:
        return _create(situation)
    if record.halted:
        return _wait("Halted", record.halted, stuck=True)
    if record.status is Status.DELETING:
        return _wait("RecordDeleting", _deleting(record), stuck=True)
    if record.status is Status.CREATING:
        return _wait("Creating", _creating(record))
    if record.status is not Status.STEADY or record.leader is None:
        return _wait("Electing", f"a leader is elected in epoch {record.epoch}")
    retaining = None if spec.paused else _retain(spec, record)
    if retaining is not None:
        return retaining
    if record.change or record.joining:
        return _wait("Reconfiguring", described(record))
    if spec.paused:
        return _wait("Paused", "spec.paused is true: nothing but failover is done")
    return (
        _leave(situation, record)
        or _scale(situation, record)
        or _relieve(situation, record)
        or _grace(situation, record)
        or Plan()
    )


def _wait(reason: str, message: str, *, stuck: bool = False) -> Plan:
    return Plan(waiting=Waiting(reason, message, stuck))


def _deleting(record: Shard) -> str:
    nodes = ", ".join(sorted({member.node for member in record.removed}))
    return f"what an earlier Shard of this name left on {nodes} has to be destroyed first"


def _creating(record: Shard) -> str:
    asked = [member.node for member in record.ensemble if not member.incarnation]
    if not asked:
        return "its first election begins"
    return f"replicas are made on {', '.join(asked)}"


def described(record: Shard) -> str:
    """The change under way, in words."""
    if record.change and record.phase:
        change = record.change
        nodes = [each.node for each in (change.old, change.new) if each]
        return f"{change.operation.value} {' by '.join(nodes)}: {record.phase.value}"
    if record.joining:
        state = "is given up" if record.joining.cancelled else "catches up"
        return f"{record.joining.operation.value}: {record.joining.node} {state}"
    return ""


# --- a shard that is not there -------------------------------------------------------------------


def _create(situation: Situation) -> Plan:
    spec, places = situation.spec, situation.places
    if spec.paused:
        return _wait("Paused", "spec.paused is true: it is created when that is taken back")
    try:
        nodes = choose_nodes(
            spec.replicas, places.usable(spec), situation.hosting, places.domains(spec)
        )
    except TooFewNodes as failure:
        return _wait("TooFewNodes", _too_few(spec, failure.there), stuck=True)
    told = f"created on {', '.join(nodes)}"
    return Plan(CreateShard(nodes, spec.quorum, spec.upkeep), "Creating", told)


def _too_few(spec: ShardSpec, there: int) -> str:
    return (
        f"{spec.replicas} replicas need {spec.replicas} nodes of the pool {spec.pool} that are "
        f"alive and neither drained nor cordoned; there are {there}"
    )


# --- what is kept --------------------------------------------------------------------------------


def _retain(spec: ShardSpec, record: Shard) -> Plan | None:
    """Also while replicas move: a volume that runs full cannot wait for that."""
    wanted, upkeep = spec.upkeep, record.upkeep
    if (wanted.retention_bytes, wanted.retention_ms) == (
        upkeep.retention_bytes,
        upkeep.retention_ms,
    ):
        return None
    command = SetRetention(wanted.retention_bytes, wanted.retention_ms)
    return Plan(command, "Retaining", f"{retention_text(wanted)} is kept from now on")


def retention_text(upkeep: Upkeep) -> str:
    bounds = [f"{upkeep.retention_bytes} bytes"] if upkeep.retention_bytes else []
    if upkeep.retention_ms:
        bounds.append(f"what is younger than {duration_text(upkeep.retention_ms)}")
    return " of ".join(bounds) or "everything"


# --- a node that must not stay -------------------------------------------------------------------


def _leave(situation: Situation, record: Shard) -> Plan | None:
    """One that is lost first; the leader last, since it is to lead until all else is done."""
    places = situation.places
    leader = record.leader.node if record.leader else None
    found = [(places.must_leave(member.node), member.node) for member in record.ensemble]
    going = [(reason, node) for reason, node in found if reason]
    if not going:
        return None
    reason, node = min(going, key=lambda each: (each[0] != "NodeLost", each[1] == leader, each[1]))
    assert reason is not None
    if node == leader:
        return _move_leader(situation, record, reason, f"{node} {WORDS[reason]}") or _replace(
            situation, record, node, reason
        )
    return _replace(situation, record, node, reason)


def _move_leader(situation: Situation, record: Shard, reason: str, why: str) -> Plan | None:
    """Leadership is handed over before anything else is done to its node (rule 11)."""
    target = successor(record, situation.places, situation.hosting)
    if target is None:
        return None
    return Plan(Promote(target), reason, f"{target} shall lead: {why}")


def _replace(situation: Situation, record: Shard, node: str, reason: str) -> Plan:
    spec, places = situation.spec, situation.places
    why = f"{node} {WORDS[reason]}"
    leads = record.leader is not None and record.leader.node == node
    if len(record.ensemble) > spec.replicas and not leads:
        return Plan(Contract(node), reason, f"{node} is given up: {why}")
    new = node_for(spec, record, places, situation.hosting, node)
    if new is None:
        return _wait(
            "NoNodeToSwap", f"{why}, and there is no other node for its replica", stuck=True
        )
    if len(record.ensemble) == 1:
        return Plan(Expand(new), reason, f"{new} is added: {why}, and it has the only replica")
    needed = record.quorum.of(len(record.ensemble)).replication
    if len(alive_members(record, places, but=node)) + 1 < needed:
        return _wait(
            "QuorumAtRisk",
            f"{why}; a swap needs {needed - 1} other members that are alive",
            stuck=True,
        )
    return Plan(Swap(node, new), reason, f"{node} is swapped for {new}: {why}")


# --- the number of replicas ----------------------------------------------------------------------


def _scale(situation: Situation, record: Shard) -> Plan | None:
    spec, places = situation.spec, situation.places
    size = len(record.ensemble)
    if size == spec.replicas:
        return None
    if spec.scaling_aborted:
        told = f"scaling to {spec.replicas} was aborted; any change of the spec takes it up again"
        return _wait("Aborted", told)
    nodes = [
        *places.usable(spec),
        *(each.node for each in record.ensemble if places.is_alive(each.node)),
    ]
    command = next_command(
        record,
        spec.replicas,
        list(dict.fromkeys(nodes)),
        situation.hosting,
        places.domains(spec),
    )
    goal = f"{size} of {spec.replicas} replicas"
    if command is None and size < spec.replicas:
        there = len({*places.usable(spec), *(each.node for each in record.ensemble)})
        return _wait("TooFewNodes", _too_few(spec, there), stuck=True)
    if command is None:
        return _wait("CannotContract", f"{goal}: no member can be given up", stuck=True)
    return Plan(command, "Scaling", f"{_action(command)}: {goal}")


def _action(command: Command) -> str:
    match command:
        case Expand(new):
            return f"{new} is added"
        case Contract(old):
            return f"{old} is given up"
        case Promote(node):
            return f"{node} shall lead"
    return type(command).__name__


# --- pods that restart ---------------------------------------------------------------------------


def _relieve(situation: Situation, record: Shard) -> Plan | None:
    leader = record.leader.node if record.leader else None
    place = situation.places.nodes.get(leader or "")
    if leader is None or place is None or not place.leaving:
        return None
    return _move_leader(situation, record, "NodeRestarts", f"the pod of {leader} is to restart")


def _grace(situation: Situation, record: Shard) -> Plan | None:
    """Nothing is done yet for a node that is lost; say so, and come back."""
    left = {
        member.node: seconds
        for member in record.ensemble
        if (seconds := situation.places.grace_left_s(member.node)) is not None
    }
    if not left:
        return None
    node = min(left, key=lambda each: (left[each], each))
    told = f"{node} is lost, and is waited for before it is swapped"
    return Plan(waiting=Waiting("NodeLost", told), again_s=left[node])
