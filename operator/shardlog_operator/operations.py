"""ShardOperations: what a person asks for once, carried to its end whoever begins it.

Pure.  The phase Running is written before anything is asked of the coordinator, and what was asked
for is recognised in the record, so an operator that finds a half-done operation asks again or sees
that it is done.  A change that was seen under way (`started`) and is gone without effect was given
up: by a person, who does not want it any more; or because a node was too slow, and then it is begun
again, but not for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from shardlog.protocol.coordination import AbortChange, AcceptLoss, Command, Promote, Swap
from shardlog.protocol.entry import EntryId
from shardlog.protocol.messages import Operation as Change
from shardlog.protocol.shard import Phase, Shard, Status
from shardlog_operator.placing import node_for
from shardlog_operator.planning import Situation, described
from shardlog_operator.spec import Operation, OperationPhase, OperationSpec

PATIENCE_S = 60.0
"""A leader that nobody catches up with, or a command that is refused, is not asked for ever.

What had to be waited for before does not count, nor does the time while no operator ran.
"""

BEGUN_AGAIN_MAX = 3


@dataclass(frozen=True, slots=True)
class Past:
    """What is known of an operation beside its status; none of it has to outlive an operator."""

    # For how long it has been asked for in vain.
    tried_s: float = 0.0
    # How often it was begun again after it had been given up.
    begun_again: int = 0
    # Whether a person has aborted what the shard was at since the operation was asked for.
    aborted: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where an operation stands, and what to ask for now."""

    phase: OperationPhase
    message: str
    command: Command | None = None
    # The change is under way.
    started: bool = False
    # It is gone on with for `PATIENCE_S` at most.
    bounded: bool = False
    # The Shard's number of replicas is not to be pursued further until its spec changes.
    give_up_scaling: bool = False


def _runs(
    message: str, command: Command | None = None, *, started: bool = False, bounded: bool = False
) -> Verdict:
    return Verdict(OperationPhase.RUNNING, message, command, started, bounded or bool(command))


def _failed(message: str) -> Verdict:
    return Verdict(OperationPhase.FAILED, message)


def _done(message: str) -> Verdict:
    return Verdict(OperationPhase.SUCCEEDED, message)


def judge(asked: OperationSpec, situation: Situation | None, past: Past) -> Verdict:
    """`situation` is None if there is no Shard of that name."""
    if situation is None:
        return _failed(f"there is no Shard {asked.shard}")
    record = situation.record
    if record is None:
        return _runs("the shard is not created yet")
    if record.halted and asked.operation is not Operation.ACCEPT_LOSS:
        return _failed(f"the shard is halted: {record.halted}")
    if record.status is Status.DELETING or situation.spec.deleting:
        return _failed("the shard is being deleted")
    if asked.operation is Operation.ACCEPT_LOSS:
        return _accept_loss(asked, record, situation, past)
    if situation.spec.paused:
        return _runs("the Shard is paused")
    match asked.operation:
        case Operation.PROMOTE:
            return _promote(asked, record, past)
        case Operation.SWAP:
            return _swap(asked, record, situation, past)
        case Operation.ABORT:
            return _abort(asked, record, situation)
    return _failed(f"{asked.operation} is not known here")


def _unready(record: Shard) -> str:
    if record.status is not Status.STEADY or record.leader is None:
        return f"a leader is elected in epoch {record.epoch}"
    if record.change or record.joining:
        return f"another change is under way: {described(record)}"
    return ""


# --- promote -------------------------------------------------------------------------------------


def _promote(asked: OperationSpec, record: Shard, past: Past) -> Verdict:
    node = asked.node or ""
    steady = record.status is Status.STEADY
    if steady and record.leader is not None and record.leader.node == node:
        return _done(f"{node} leads epoch {record.epoch}")
    if node not in {member.node for member in record.final_ensemble}:
        return _failed(f"{node} is not a member")
    unready = _unready(record)
    if unready:
        return _runs(unready)
    if past.tried_s >= PATIENCE_S:
        return _failed(f"{node} has not caught up with the leader within {PATIENCE_S:.0f} s")
    return _runs(f"{node} shall lead", Promote(node))


# --- swap ----------------------------------------------------------------------------------------


def _swap(asked: OperationSpec, record: Shard, situation: Situation, past: Past) -> Verdict:
    old = asked.old or ""
    members = {member.node for member in record.ensemble}
    if _is_under_way(asked, record):
        return _runs(described(record), started=True)
    if old not in members:
        begun = asked.started or (asked.phase is OperationPhase.RUNNING and asked.new is None)
        if begun or asked.new in members:
            return _done(f"the members are {', '.join(sorted(members))}")
        return _failed(f"{old} is not a member")
    if asked.started and past.aborted:
        return _failed(f"it was aborted: {old} is still a member")
    if asked.started and past.begun_again >= BEGUN_AGAIN_MAX:
        return _failed(f"it was given up {1 + BEGUN_AGAIN_MAX} times: {old} is still a member")
    unready = _unready(record)
    if unready:
        return _runs(unready)
    if len(members) == 1:
        return _failed("the only replica cannot be swapped: scale up first")
    new = asked.new or node_for(
        situation.spec, record, situation.places, situation.hosting, instead_of=old
    )
    if new is None:
        return _runs(f"there is no node for the replica of {old}")
    if new in members:
        return _failed(f"{new} is a member already")
    if new not in situation.places.nodes:
        return _failed(f"there is no node {new}")
    return _runs(f"{old} is swapped for {new}", Swap(old, new))


def _is_under_way(asked: OperationSpec, record: Shard) -> bool:
    """This very swap: a member may also move elsewhere, or be made again where it is."""
    change, joining = record.change, record.joining
    if change is not None:
        operation, old, new = change.operation, change.old, change.new and change.new.node
    elif joining is not None and not joining.cancelled:
        operation, old, new = joining.operation, joining.old, joining.node
    else:
        return False
    if operation is not Change.SWAP or old is None or old.node != asked.old:
        return False
    return new != old.node if asked.new is None else new == asked.new


# --- abort ---------------------------------------------------------------------------------------


def _abort(asked: OperationSpec, record: Shard, situation: Situation) -> Verdict:
    """What is given up is not wanted any more either, or it would be begun again at once."""
    spec = situation.spec
    scaling = len(record.ensemble) != spec.replicas and not spec.scaling_aborted
    if record.phase is Phase.COMMIT:
        return _failed("too late: COMMIT is written, the change will be completed")
    if record.change or (record.joining and not record.joining.cancelled):
        found = _runs(f"given up: {described(record)}", AbortChange(), started=True)
        return replace(found, give_up_scaling=scaling)
    if scaling:
        found = _runs(f"given up: scaling to {spec.replicas}", started=True)
        return replace(found, give_up_scaling=True)
    if asked.started or spec.scaling_aborted or record.joining:
        return _done(f"the members are {', '.join(member.node for member in record.ensemble)}")
    return _failed("no reconfiguration is in progress")


# --- accept-loss ---------------------------------------------------------------------------------


def _accept_loss(asked: OperationSpec, record: Shard, situation: Situation, past: Past) -> Verdict:
    """Only what the shard waits for; that takes an election, which may find a copy after all."""
    assert asked.entry is not None
    entry, awaited = EntryId(*asked.entry), situation.awaited
    if record.accepting == entry:
        return _runs(f"{entry} is given up in epoch {record.epoch}", started=True)
    if awaited == entry:
        return _runs(f"{entry} is given up", AcceptLoss(entry), started=True)
    known = record.status is Status.STEADY and record.leader is not None and situation.heard
    if known and awaited is None and asked.started:
        return _done(f"epoch {record.epoch} began without {entry}, or with a copy of it")
    if awaited is not None or known or past.tried_s >= PATIENCE_S:
        return _failed(f"the shard does not wait for {entry}, but for {awaited or 'no entry'}")
    return _runs(f"whether the shard waits for {entry} is not known yet", bounded=True)


# --- drain ---------------------------------------------------------------------------------------


def judge_drain(
    asked: OperationSpec, shards: Iterable[Shard], unreadable: Collection[str] = ()
) -> Verdict:
    """It lasts for as long as the operation is there; it has succeeded when nothing is left.

    Of a shard whose record is `unreadable`, that of a newer operator say, nobody knows where it is.
    """
    left = sorted(shard.name for shard in shards if asked.node in hosts(shard))
    if not left and unreadable:
        return _runs(f"records that cannot be read: {', '.join(sorted(unreadable)[:5])}")
    if not left:
        return _done(f"no replica is left on {asked.node}")
    shown = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
    return _runs(f"replicas left on {asked.node}: {shown}", started=True)


def hosts(shard: Shard) -> set[str]:
    """Nodes where a replica is, or is to be."""
    found = {member.node for member in (*shard.ensemble, *shard.removed)}
    if shard.change and shard.change.new:
        found.add(shard.change.new.node)
    if shard.joining:
        found.add(shard.joining.node)
    return found
