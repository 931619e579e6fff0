"""What was wrong once and is mended: each bug as a mutant, which the simulator has to notice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shardlog.protocol import (
    answering,
    contradiction,
    electing,
    following,
    history,
    leading,
    losing,
    reconfiguring,
    replica,
    replica_state,
    serving,
    sessions,
    stakes,
    tending,
    trimming,
)
from shardlog.protocol.choice import Possible
from shardlog.protocol.coordinator_state import CoordinatorState, changed
from shardlog.protocol.entry import EntryId, Header, Kind, Member
from shardlog.protocol.failures import NoReplica, Refusal
from shardlog.protocol.leadership import Leadership, PendingRead
from shardlog.protocol.log import Log
from shardlog.protocol.messages import Destroy, Envelope, FenceAnswer, Progress
from shardlog.protocol.replica_state import ReplicaState
from shardlog.protocol.sessions import SessionTable
from shardlog.protocol.shard import Joining, Shard
from shardlog.protocol.states import Role
from shardlog.sim import checkers
from shardlog.sim.mutant import Mutant, always


def _offset_of(register: Header) -> int:
    return register.base


_APPLY: Any = ReplicaState.apply
_ADD_CURSOR: Any = leading.add_cursor
_NAME: Any = vars(reconfiguring)["_name"]
_ADVANCE: Any = leading.advance
_FOLD: Any = SessionTable.fold
_HANDLERS = replica.HANDLERS
_LOSS_OF: Any = stakes.loss_of
_STANDS: Any = vars(losing)["_stands"]
_STRETCHES: Any = vars(stakes)["_stretches"]


def _doubt_breaks_promises(
    r: ReplicaState, lead: Leadership, answer: FenceAnswer, standby: bool
) -> Refusal | None:
    cursor = lead.cursors.get(answer.member)
    promised = cursor.promised if cursor else 0
    refusal: Refusal | None = _ADD_CURSOR(r, lead, answer, standby)
    if cursor is not None:
        cursor.promised = promised
    return refusal


def _count_any_refusal(
    c: CoordinatorState, member: Member, envelope: Envelope, no: NoReplica
) -> None:
    if member.node == envelope.src and member.incarnation != no.incarnation:
        c.lost[member] = c.lost.get(member, 0) + 1


def _name_or_destroy(c: CoordinatorState, record: Shard, joining: Joining) -> None:
    """A replica that is there after all goes, because it was said to be lost."""
    told = c.created.get(joining.node)
    if told is not None and joining.old == (joining.node, told):
        c.created.clear()
        c.send(joining.old, Destroy())
    else:
        _NAME(c, record, joining)


def _commit_silently(r: ReplicaState, lead: Leadership, commit: int) -> None:
    r.advance_commit(commit)


def _advance_and_answer(r: ReplicaState, lead: Leadership) -> None:
    before = r.commit
    _ADVANCE(r, lead)
    answering.answer_committed(r, lead, before)


def _ack_at_odds(r: ReplicaState) -> bool:
    return r.role is Role.FOLLOWER and r.syncing is None


def _confirmed_by_the_last_beat(r: ReplicaState, lead: Leadership, read: PendingRead) -> bool:
    return lead.echoed_by_quorum(r.member, read.beat - 1)


def _trim_to_the_commit(r: ReplicaState, lead: Leadership) -> None:
    last = r.log.headers[-1].base if r.log.headers else r.log.first
    wanted = min(lead.trimmed, r.sessions.applied, r.durable_end, last)
    holding = r.log.covering(wanted)
    if wanted == lead.trimmed:
        lead.trimmed = 0
    first = wanted if holding is None else holding.base
    if r.log.first < first and (holding is not None or wanted >= r.log.end):
        following.trim(r, first)
        r.owes_sync = True


def _fold_over_gaps(self: SessionTable, headers: Iterable[Header]) -> None:
    for header in headers:
        if header.kind is Kind.UNKNOWN:
            return
        self.applied = header.base
        _FOLD(self, (header,))


def _marked_in_any_case(entry: EntryId, answers: Mapping[Member, FenceAnswer]) -> Header | None:
    lost: Header | None = _LOSS_OF(entry, answers)
    if lost is None or lost.count:
        return lost
    logs = [Possible(answer) for answer in answers.values()]
    ends = [slot.end for slot in _STRETCHES(entry, logs) if slot.end]
    return lost._replace(count=min(ends) - entry.offset) if ends else lost


def _changed_keeping(record: Shard, **fields: Any) -> Shard:
    """What was given up before under the same name stays beside it."""
    if "losses" in fields and "status" not in fields:
        fields["losses"] = (*record.losses, fields["losses"][-1])
    return changed(record, **fields)


def _still_syncing(r: ReplicaState, envelope: Envelope, message: Progress) -> None:
    """Only an ack tells that a replica has all of a snapshot, and a standby sends none."""
    member = Member(envelope.src, envelope.src_incarnation)
    cursor = r.lead.cursors.get(member) if r.lead is not None else None
    snapshot = cursor.snapshot if cursor is not None else None
    _HANDLERS[Progress](r, envelope, message)
    if cursor is not None:
        cursor.snapshot = snapshot


def _stands_unmarked(log: Log, lost: Header) -> bool:
    there = log.covering(lost.base)
    return _STANDS(log, lost) and there is not None and there.kind is not Kind.LOST


UNNAMED = tuple(
    (module, "same_election", always(True))
    for module in (electing, history, leading, replica_state, tending)
)


def _by_own_limits(self: ReplicaState) -> None:
    table, own = self.sessions, self.limits
    named = table.limits
    mine = named._replace(sessions_max=own.sessions_max, replies_max=own.replies_max)
    table.limits = mine
    _APPLY(self)
    if table.limits is mine:
        table.limits = named


HOLES = (
    Mutant(
        "election_unnamed",
        "a promise is to an epoch, whichever election began it",
        ("rule_21_H4_1",),
        13,
        UNNAMED,
        "restores",
    ),
    Mutant(
        "ensemble_forgotten",
        "what a fenced replica was told of its ensemble contradicts nothing",
        ("rule_21_H4_2",),
        53,
        ((contradiction, "of_answer", always(None)),),
        "restores",
    ),
    Mutant(
        "retry_taken_on_trust",
        "whatever comes under a used number is answered as a retry",
        ("S04",),
        2,
        ((serving, "is_same_request", always(True)),),
        "sessions",
    ),
    Mutant(
        "session_named_by_offset",
        "a session is named by the offset of its entry alone",
        ("hole_4_3",),
        1,
        tuple((module, "session_of", _offset_of) for module in (checkers, serving, sessions)),
        "losses",
    ),
    Mutant(
        "limits_of_the_release",
        "each replica keeps as many sessions and replies as its own release says",
        ("hole_4_12",),
        1,
        ((ReplicaState, "apply", _by_own_limits),),
        "sessions",
    ),
    Mutant(
        "registration_not_remembered",
        "a registration that is sent again opens another session",
        ("B2",),
        26,
        ((SessionTable, "opened_with", always(None)),),
        "sessions",
    ),
    Mutant(
        "acks_off_the_chain",
        "who holds another entry goes on acknowledging, and elections have no names",
        ("T1_H4_10",),
        11,
        (*UNNAMED, (following, "may_ack", _ack_at_odds)),
        "restores",
    ),
    Mutant(
        "loss_never_withdrawn",
        "what was given up and is there after all stays given up",
        ("rule_23_H4_4",),
        8,
        ((losing, "needless", always(())),),
        "losses",
    ),
    Mutant(
        "marker_of_any_checksum",
        "a marker is put where nobody knows the checksum of what was lost",
        ("T3_without_any_checksum",),
        15,
        ((stakes, "loss_of", _marked_in_any_case),),
        "losses",
    ),
    Mutant(
        "applied_over_a_gap",
        "sessions are folded on behind a stretch that cannot be read",
        ("T6_nothing_is_applied",),
        57,
        ((SessionTable, "fold", _fold_over_gaps),),
        "losses",
    ),
    Mutant(
        "permit_of_a_tail_kept",
        "a tail stays given up where the log goes on behind a marker",
        ("rule_23_a_tail",),
        16,
        ((losing, "_stands", _stands_unmarked), (electing, "changed", _changed_keeping)),
        "losses",
    ),
    Mutant(
        "standby_never_synced",
        "a standby that started over behind a snapshot is never taken in",
        ("V7_H4_5",),
        3,
        ((replica, "HANDLERS", {**_HANDLERS, Progress: _still_syncing}),),
        "retention",
    ),
    Mutant(
        "destroyed_standby_fed",
        "a leader goes on feeding a standby whose replica was destroyed",
        ("H4_8",),
        1,
        ((leading, "_forget_standby", always(None)),),
        "retention",
    ),
    Mutant(
        "doubt_is_a_lost_disk",
        "a follower that says that its tail is in doubt is held to what it acknowledged",
        ("rule_15_H4_6",),
        29,
        ((leading, "add_cursor", _doubt_breaks_promises),),
        "relaxed",
    ),
    Mutant(
        "late_refusals_counted",
        "refusals of an earlier incarnation speak of the present one, which goes",
        ("rule_12_H4_7",),
        5,
        (
            (tending, "_count_lost", _count_any_refusal),
            (reconfiguring, "_name", _name_or_destroy),
        ),
        "identity",
    ),
    Mutant(
        "false_alarm_destroys",
        "a replica whose volume was away goes when that is back",
        ("rule_12_a_false_alarm",),
        11,
        ((reconfiguring, "_name", _name_or_destroy),),
        "identity",
    ),
    Mutant(
        "waiter_stranded",
        "what a syncing follower tells of the commit offset answers nobody",
        ("rule_18_H4_9",),
        1,
        (
            (leading, "commit_to", _commit_silently),
            (leading, "advance", _advance_and_answer),
        ),
        "retention",
    ),
    Mutant(
        "read_by_an_older_beat",
        "a read is confirmed by a heartbeat that was sent before it came",
        ("O9",),
        1,
        ((answering, "confirmed", _confirmed_by_the_last_beat),),
    ),
    Mutant(
        "trimmed_to_the_commit",
        "the last committed entry is trimmed where more is written behind it",
        ("T10_the_last_committed",),
        10,
        ((trimming, "trim_more", _trim_to_the_commit),),
        "retention",
    ),
)
