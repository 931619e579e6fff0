"""Reconfigurations, as the leader carries them out.

Prepare raises the epoch, stops counting the leaving node, and lets the new one ack for the final
ensemble only.  "Covered" means that a replication quorum of the final ensemble holds everything
committed so far; the coordinator writes COMMIT only then (rule 8).  From that word on, until
Commit or Abort, an entry needs both ensembles.

A leader accepts Prepare only after it has committed an entry of its own tenure.  Before that, its
commit offset may lag behind what an earlier leader acknowledged, and covering the former would
not cover the latter (docs/decisions/0003-prepare-needs-a-commit-of-the-tenure.md).
"""

from __future__ import annotations

from shardlog.protocol import coverage, leading
from shardlog.protocol.effects import Barrier
from shardlog.protocol.failures import Illegal, NotReady, Refusal, StaleEpoch, StandbyLagging
from shardlog.protocol.history import Span, extended
from shardlog.protocol.leadership import Leadership
from shardlog.protocol.messages import (
    Abort,
    Aborted,
    Commit,
    Committed,
    Envelope,
    Membership,
    PauseWrites,
    Prepare,
    Prepared,
    Reconfiguration,
    WritesPaused,
)
from shardlog.protocol.replica_state import ReplicaState


def prepare(r: ReplicaState, envelope: Envelope, message: Prepare) -> None:
    lead = r.lead
    if lead and lead.change == message.change and r.epoch == message.epoch:
        if lead.opened == r.epoch:
            r.answer(envelope, Prepared(r.epoch, coverage.cover(r, lead)))
        return
    refusal = refusal_to_prepare(r, message)
    if refusal or lead is None:
        r.refuse(envelope, refusal or leading.not_leading(r, message.epoch))
        return
    lead.change, lead.covered = message.change, False
    joining = message.change.new
    if joining:
        lead.cursors[joining].standby = False
    raise_epoch(r, lead, message.epoch, envelope.src)


def refusal_to_prepare(r: ReplicaState, message: Prepare) -> Refusal | None:
    lead, change = r.lead, message.change
    if lead is None or not lead.serving:
        return leading.not_leading(r, message.epoch)
    if message.epoch <= r.epoch:
        return StaleEpoch(r.epoch)
    if removes_leader(r, change):
        return Illegal("the leader is never swapped out: hand over first")
    if lead.change is not None or change.before != lead.ensemble:
        return NotReady("another change, or another ensemble, is in force here")
    if not tenure_committed(r, lead):
        return NotReady("nothing of this tenure is committed yet")
    return _refusal_of_new(r, lead, change)


def tenure_committed(r: ReplicaState, lead: Leadership) -> bool:
    """Whether our commit offset has passed all that earlier leaders may have acknowledged."""
    return r.commit > lead.tenure_first


def removes_leader(r: ReplicaState, change: Reconfiguration) -> bool:
    return change.old == r.member


def _refusal_of_new(r: ReplicaState, lead: Leadership, change: Reconfiguration) -> Refusal | None:
    """The new node has caught up as a standby before it may count (T12)."""
    if change.new is None:
        return None
    cursor = lead.cursors.get(change.new)
    if cursor is None or not cursor.announced or cursor.lost or cursor.snapshot:
        return NotReady("the new node is not a standby yet")
    most = r.limits.standby_lag_entries_max
    lag = len(r.log.between(cursor.at, r.log.end, most + 1))
    return StandbyLagging(lag) if lag > most else None


def raise_epoch(r: ReplicaState, lead: Leadership, epoch: int, operator: str) -> None:
    """Every rise of the epoch is written down, announced, and opened by an entry (rule 4)."""
    r.epoch = r.led = epoch
    r.membership = Membership(epoch, r.election, lead.members())
    r.history = extended(r.history, Span(epoch, r.log.end, r.election))
    r.persist()
    r.emit(Barrier())
    leading.open_epoch(r, lead, operator)


def commit(r: ReplicaState, envelope: Envelope, message: Commit) -> None:
    lead = r.lead
    if lead is None or message.epoch != r.epoch:
        r.refuse(envelope, leading.not_leading(r, message.epoch))
        return
    if lead.change is None and lead.ensemble == message.change.after:
        r.answer(envelope, Committed(r.epoch))
        return
    if lead.change != message.change or not lead.covered or lead.opened != r.epoch:
        r.refuse(envelope, NotReady("not prepared and covered here"))
        return
    lead.ensemble = message.change.after
    lead.change, lead.covered = None, False
    if message.change.old:
        lead.cursors.pop(message.change.old, None)
    r.answer(envelope, Committed(r.epoch))
    leading.advance(r, lead)


def abort(r: ReplicaState, envelope: Envelope, message: Abort) -> None:
    """Take the old node back; the new one goes on as a standby (rule 9)."""
    lead = r.lead
    if lead is None or not lead.serving or message.epoch < r.epoch:
        r.refuse(envelope, leading.not_leading(r, message.epoch))
        return
    if lead.ensemble != message.ensemble:
        r.refuse(envelope, Illegal("another ensemble is in force here"))
        return
    if message.epoch == r.epoch:
        if lead.change is None and lead.opened == r.epoch:
            r.answer(envelope, Aborted(r.epoch))
        return
    joining = lead.change.new if lead.change else None
    if joining and joining in lead.cursors:
        lead.cursors[joining].standby = True
    lead.change, lead.covered = None, False
    raise_epoch(r, lead, message.epoch, envelope.src)


def pause_writes(r: ReplicaState, envelope: Envelope, message: PauseWrites) -> None:
    """Before a hand-over: let the target catch up with a log that stands still."""
    lead = r.lead
    if lead is None or not lead.serving or message.epoch != r.epoch:
        r.refuse(envelope, leading.not_leading(r, message.epoch))
        return
    if lead.paused_until_ms < r.now_ms:
        lead.paused_until_ms = r.now_ms + r.limits.pause_ms
    cursor = lead.cursors.get(message.target)
    caught_up = cursor is not None and cursor.announced and cursor.acked == r.log.end
    r.answer(envelope, WritesPaused(r.epoch, message.target, caught_up))
