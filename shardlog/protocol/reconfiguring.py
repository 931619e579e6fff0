"""Reconfigurations, as the coordinator drives them.

A new node is created, installs a snapshot and follows as a standby; all of that may be cancelled
freely.  Then PREPARE is written with a new epoch, the leader is told, and when it answers
"covered" COMMIT is written and sent until it is confirmed.  Every step is written first, so the
next coordinator goes on from whatever it finds.
"""

from __future__ import annotations

from dataclasses import replace

from shardlog.protocol import awaiting, deleting, electing, handing_over, tending
from shardlog.protocol.coordination import (
    AbortChange,
    AcceptLoss,
    Command,
    Contract,
    CreateShard,
    DeleteShard,
    Expand,
    Promote,
    SetRetention,
    Swap,
    TrimShard,
)
from shardlog.protocol.coordinator_state import CoordinatorState, changed
from shardlog.protocol.entry import EntryId, Member
from shardlog.protocol.failures import UnsafeQuorum
from shardlog.protocol.messages import (
    Commit,
    Committed,
    Create,
    Destroy,
    Envelope,
    InstallSnapshot,
    Operation,
    Prepare,
    Prepared,
    Reconfiguration,
    SnapshotInstalled,
    SnapshotOffer,
    SnapshotRequest,
    Trim,
)
from shardlog.protocol.quorum import is_safe
from shardlog.protocol.shard import Joining, Phase, Shard, Status

# --- commands ----------------------------------------------------------------------------------


def obey(c: CoordinatorState, command: Command) -> None:
    """Write the command down, or say why not (O6)."""
    record = c.record
    if isinstance(command, CreateShard):
        _create(c, record, command)
    elif record is None:
        c.reject("there is no such shard")
    elif record.halted:
        c.reject(f"the shard is halted: {record.halted}")
    elif isinstance(command, DeleteShard):
        deleting.obey(c, record)
    elif record.status is Status.DELETING:
        c.reject("the shard is being deleted")
    elif isinstance(command, AcceptLoss):
        _accept_loss(c, record, command.entry)
    elif record.status is not Status.STEADY or record.leader is None:
        c.reject("the shard has no leader now")
    elif isinstance(command, AbortChange):
        _abort(c, record)
    elif isinstance(command, SetRetention):
        _set_retention(c, record, command)
    elif record.change or record.joining:
        c.reject("a reconfiguration is in progress")
    else:
        _change(c, record, command)


def _set_retention(c: CoordinatorState, record: Shard, command: SetRetention) -> None:
    """Members hear of it when they are asked how they are."""
    upkeep, wanted = record.upkeep, (command.bytes_max, command.time_ms)
    if wanted == (upkeep.retention_bytes, upkeep.retention_ms):
        c.accept()
    else:
        later = replace(
            upkeep,
            version=upkeep.version + 1,
            retention_bytes=command.bytes_max,
            retention_ms=command.time_ms,
        )
        c.write(changed(record, upkeep=later))


def _accept_loss(c: CoordinatorState, record: Shard, entry: EntryId) -> None:
    """Only what the shard waits for now; whether a copy turns up the election will see.

    A shard that serves has to elect for it: an election asks everyone.
    """
    if not awaits(c, entry):
        waiting = awaiting.awaited(c)
        found = waiting.entry if waiting else None
        c.reject(f"the shard does not wait for {entry}, but for {found or 'no entry'}")
    elif record.status is Status.STEADY and record.leader is not None:
        electing.start(c, record, preferred=record.leader.node, accepting=entry)
    else:
        c.write(changed(record, accepting=entry))


def awaits(c: CoordinatorState, entry: EntryId) -> bool:
    """Whether the loss of just this entry is what it takes to go on."""
    waiting = awaiting.awaited(c)
    return waiting is not None and waiting.entry == entry


def _create(c: CoordinatorState, record: Shard | None, command: CreateShard) -> None:
    """A number that is not given is a majority; nothing is bent here (rule 6)."""
    size = len(command.nodes)
    replication, fencing = command.quorum.chosen(size)
    if record is not None:
        c.reject("the shard exists")
    elif not size or len(set(command.nodes)) != size:
        c.reject("an ensemble is one or more different nodes")
    elif not is_safe(size, replication, fencing):
        c.reject(
            f"replication {replication} + fencing {fencing} must be more than {size}, "
            f"each from 1 to {size}",
            UnsafeQuorum(size, replication, fencing),
        )
    else:
        members = tuple(Member(node, 0) for node in command.nodes)
        c.write(
            Shard(c.shard, Status.CREATING, 0, None, members, command.quorum, upkeep=command.upkeep)
        )


def _change(c: CoordinatorState, record: Shard, command: Command) -> None:
    nodes = {member.node: member for member in record.ensemble}
    busy = {member.node for member in record.removed}
    if isinstance(command, Swap):
        old = nodes.get(command.old)
        if old is None:
            c.reject(f"{command.old} is not a member")
        elif command.new in busy or (command.new in nodes and command.new != command.old):
            c.reject(f"{command.new} already hosts a replica")
        elif len(nodes) == 1:
            c.reject("the only replica leads: expand, promote, then contract")
        elif command.new == command.old:
            c.reject("a node is swapped for itself only when it has lost its replica")
        else:
            c.write(changed(record, joining=Joining(Operation.SWAP, old, command.new, 0)))
    elif isinstance(command, Expand):
        if command.new in nodes or command.new in busy:
            c.reject(f"{command.new} already hosts a replica")
        else:
            c.write(changed(record, joining=Joining(Operation.EXPAND, None, command.new, 0)))
    elif isinstance(command, Contract):
        _contract(c, record, nodes.get(command.old), command.old)
    elif isinstance(command, Promote):
        _promote(c, record, nodes.get(command.node), command.node)
    elif isinstance(command, TrimShard) and record.leader:
        c.send(record.leader, Trim(record.epoch, command.first))
        c.accept()


def _contract(c: CoordinatorState, record: Shard, old: Member | None, name: str) -> None:
    if old is None:
        c.reject(f"{name} is not a member")
    elif len(record.ensemble) == 1:
        c.reject("the last replica cannot be given up")
    elif removes_leader(record, old):
        c.reject(f"{name} leads: promote another member first")
    else:
        prepare(c, record, Reconfiguration(Operation.CONTRACT, record.ensemble, old, None))


def removes_leader(record: Shard, old: Member | None) -> bool:
    """The leader is never swapped out (rule 11)."""
    return old == record.leader


def _promote(c: CoordinatorState, record: Shard, target: Member | None, name: str) -> None:
    if target is None:
        c.reject(f"{name} is not a member")
    else:
        if target != record.leader:
            handing_over.begin(c, record, target)
        c.accept()


def _abort(c: CoordinatorState, record: Shard) -> None:
    if record.phase is Phase.COMMIT:
        c.reject("too late: COMMIT is written, the change will be completed")
    elif record.change:
        abort(c, record)
    elif record.joining:
        cancel(c, record, record.joining)
    else:
        c.reject("no reconfiguration is in progress")


# --- driving -----------------------------------------------------------------------------------


def drive_change(c: CoordinatorState, record: Shard) -> None:
    """PREPARE until covered, COMMIT until confirmed; a PREPARE that stalls is aborted."""
    if record.change is None or record.leader is None:
        return
    stalled = c.now_ms - c.changed_ms >= c.limits.change_timeout_ms
    if record.phase is Phase.PREPARE and stalled:
        abort(c, record)
    elif c.due_again():
        message = Prepare if record.phase is Phase.PREPARE else Commit
        c.send(record.leader, message(record.epoch, record.change))


def prepare(c: CoordinatorState, record: Shard, change: Reconfiguration) -> None:
    """The metadata first, with a new epoch (O4)."""
    c.write(
        changed(record, epoch=record.epoch + 1, change=change, phase=Phase.PREPARE, joining=None)
    )


def prepared(c: CoordinatorState, record: Shard, envelope: Envelope, message: Prepared) -> None:
    """COMMIT is written only after coverage (rule 8)."""
    if record.phase is not Phase.PREPARE or message.epoch != record.epoch or c.writing:
        return
    if envelope.src == (record.leader and record.leader.node) and message.covered:
        c.write(changed(record, phase=Phase.COMMIT))


def committed(c: CoordinatorState, record: Shard, envelope: Envelope, message: Committed) -> None:
    change = record.change
    if record.phase is not Phase.COMMIT or message.epoch != record.epoch or c.writing:
        return
    if change is None or record.leader != (envelope.src, envelope.src_incarnation):
        return
    gone = (change.old,) if change.old else ()
    c.write(
        changed(
            record,
            ensemble=change.after,
            change=None,
            phase=None,
            removed=(*record.removed, *gone),
            changed_in=record.epoch,
        )
    )


def abort(c: CoordinatorState, record: Shard) -> None:
    """PREPARE only: back to the old ensemble in a new epoch; `tending` tells the leader."""
    joining = electing.resumed(record)
    if joining:
        joining = replace(joining, cancelled=True)
    c.write(
        changed(
            record,
            epoch=record.epoch + 1,
            change=None,
            phase=None,
            joining=joining,
            changed_in=record.epoch,
        )
    )


# --- a node on its way in ------------------------------------------------------------------------


def drive_joining(c: CoordinatorState, record: Shard) -> None:
    """Create, write its incarnation down, install, follow; then PREPARE."""
    joining = record.joining
    if joining is None or record.change or record.leader is None:
        return
    if joining.cancelled:
        if handing_over.leader_knows(c, record):
            cancel(c, record, joining)
    elif c.now_ms - c.changed_ms >= c.limits.join_timeout_ms:
        cancel(c, record, joining)
    elif not joining.incarnation:
        _name(c, record, joining)
    elif c.lost.get(joining.member, 0) >= tending.LOST_REPORTS_MIN:
        # Its replica is gone before it ever counted: make another.
        c.lost.pop(joining.member)
        c.write(changed(record, joining=replace(joining, incarnation=0)))
    elif _caught_up(c, record, joining.member):
        _promote_standby(c, record, joining)
    elif c.due_again():
        if c.installed:
            return
        if c.snapshot is None:
            c.send(record.leader, SnapshotRequest(record.epoch))
        else:
            others = tuple(each for each in record.ensemble if each != joining.old)
            c.send(joining.member, InstallSnapshot(record.epoch, c.snapshot, others))


def _name(c: CoordinatorState, record: Shard, joining: Joining) -> None:
    told = c.created.get(joining.node)
    if told is not None and joining.old == (joining.node, told):
        c.created.clear()
        if tending.is_given_up(c, record, joining.old):
            c.send(joining.old, Destroy())
        else:
            # The replica is there: the refusals were late, or its volume was away for a while.
            c.lost.pop(joining.old, None)
            c.write(changed(record, joining=None))
    elif told is not None:
        c.write(changed(record, joining=replace(joining, incarnation=told)))
    elif c.due_again():
        c.send(Member(joining.node, 0), Create())


def _caught_up(c: CoordinatorState, record: Shard, member: Member) -> bool:
    cursor = handing_over.cursor_of(c, record, member)
    leader = c.seen.get(record.leader) if record.leader else None
    return bool(cursor and leader and not cursor.lost and cursor.acked >= leader.report.commit)


def _promote_standby(c: CoordinatorState, record: Shard, joining: Joining) -> None:
    change = Reconfiguration(joining.operation, record.ensemble, joining.old, joining.member)
    if removes_leader(record, joining.old):
        target = handing_over.successor(c, record)
        if target:
            handing_over.begin(c, record, target)
    elif joining.old and joining.old not in record.ensemble:
        cancel(c, record, joining)
    else:
        prepare(c, record, change)


def offered(c: CoordinatorState, record: Shard, message: SnapshotOffer) -> None:
    if message.epoch == record.epoch:
        c.snapshot = message.snapshot


def installed(c: CoordinatorState, record: Shard, envelope: Envelope, _: SnapshotInstalled) -> None:
    if record.joining and record.joining.member == (envelope.src, envelope.src_incarnation):
        if not c.installed:
            c.changed_ms = c.now_ms  # next it is to follow, which takes its time too
        c.installed = True


def cancel(c: CoordinatorState, record: Shard, joining: Joining) -> None:
    """Free of cost: the new node never counted."""
    gone = (joining.member,) if joining.incarnation else ()
    c.write(changed(record, joining=None, removed=(*record.removed, *gone)))
