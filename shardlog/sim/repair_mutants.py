"""Rules of sync, repair, reconfiguration and trimming, taken away one at a time.

`BY_TEST` are those that the simulator does not show, because its disks do not break in that way or
other writes hide the harm: a test that carries their id has to notice
(`tests/protocol/test_mutants.py`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shardlog.protocol import electing, fencing, following, leading, losing, reconfiguring, replica
from shardlog.protocol.coordinator_state import CoordinatorState, Election
from shardlog.protocol.cursor import Cursor
from shardlog.protocol.effects import (
    Barrier,
    Limits,
    Recovered,
    Superblock,
    TrimLog,
    TruncateLog,
    WriteEntries,
)
from shardlog.protocol.entry import Member, Seal
from shardlog.protocol.failures import BelowCommit
from shardlog.protocol.log import Archive
from shardlog.protocol.messages import Announce, Envelope, Heartbeat, Trim
from shardlog.protocol.replica import Replica
from shardlog.protocol.replica_state import Due, ReplicaState
from shardlog.protocol.shard import Phase, Shard
from shardlog.protocol.states import Role
from shardlog.protocol.sync import Extent, Negotiated, Plan, negotiate
from shardlog.sim import disk
from shardlog.sim.mutant import Mutant, always
from shardlog.sim.recovery import Found, classify
from shardlog.sim.slot import Part, Slot

_RESTART: Any = Replica.restart
_ADOPT: Any = vars(following)["_adopt"]
_CONFIRM: Any = Cursor.confirm
_START: Any = electing.start
_CUT: Any = vars(following)["_cut"]
_HANDLERS = replica.HANDLERS


def _sync_ends_early(r: ReplicaState) -> bool:
    """The first sync is taken for the last, and the table of sessions is not taken over."""
    if r.syncing is None:
        return False
    r.syncing = None
    r.persist()
    follows = r.role in following.FOLLOWING
    r.sync(Due.FOLLOWING if follows else Due.INSTALLED, end=r.log.end)
    return True


def _forget_uncommitted(
    cls: type[Replica],
    shard: str,
    node: str,
    limits: Limits,
    seal: Seal,
    found: Recovered,
    archive: Archive | None = None,
) -> object:
    """What is not known to be committed is left on the disk, and not taken up again."""
    commit = found.superblock.commit
    headers = tuple(header for header in found.headers if header.end <= commit)
    marks = tuple((base, mark) for base, mark in found.marks if base < commit)
    whole = found.headers and found.headers[-1].count and archive is None
    kept = replace(found, headers=headers, marks=marks) if whole else found
    return _RESTART.__func__(cls, shard, node, limits, seal, kept, archive)


def _adopt_then_cut(r: ReplicaState, leader: Member, message: Announce, cut: int) -> None:
    """The same effects in another order, and nothing between them."""
    before = len(r.out)
    _ADOPT(r, leader, message, cut)
    new = r.out[before:]
    later = [each for each in new if isinstance(each, TruncateLog)]
    first = [each for each in new if not isinstance(each, TruncateLog | Barrier)]
    r.out[before:] = [*first, *later]


def _send_all_again(
    self: Cursor, acked: int, at: int, now_ms: int, resend_ms: int, passed: bool = False
) -> None:
    began = not self.announced
    _CONFIRM(self, acked, at, now_ms, resend_ms, passed)
    if began:
        self.next = 0


def _abandon_commit(c: CoordinatorState, record: Shard, **more: Any) -> None:
    """A change in COMMIT is given up as if it were in PREPARE."""
    in_commit = record.phase is Phase.COMMIT
    _START(c, replace(record, phase=Phase.PREPARE) if in_commit else record, **more)


def _context_ahead(self: ReplicaState) -> None:
    entries, self.gathered = tuple(self.gathered), []
    self.out.append(WriteEntries(entries, self.log.end))


def _trim_without_table(r: ReplicaState, first: int) -> None:
    r.log.trim(first)
    r.rewrites = [rewrite for rewrite in r.rewrites if rewrite.base >= first]
    r.emit(TrimLog(first, r.log.boundary))


def _torn_is_corrupt(
    superblock: Superblock, first: int, boundary: int, stable: dict[int, Slot]
) -> Found:
    """Bad bytes are taken for damage, whether their id was ever written or not.

    On the disk everything stays as it was: there a blank can still be told from a fault.
    """
    taken = {
        base: Slot(slot.entry, Part.BAD, Part.BAD) if slot.blank else slot
        for base, slot in stable.items()
    }
    found = classify(superblock, first, boundary, taken)
    slots = {base: stable.get(base, slot) for base, slot in found.slots.items()}
    return replace(found, slots=slots)


def _cut_by_a_fence(r: ReplicaState) -> None:
    """A fence takes away what may never have been committed, as an announcement would."""
    _CUT(r, r.commit)
    r.persist()


def _trimmed_while_fenced(r: ReplicaState, envelope: Envelope, message: Heartbeat | Trim) -> None:
    """What is committed and applied is dropped when told so, in whatever role."""
    wanted = message.first
    droppable = r.log.first < wanted <= r.sessions.applied and r.log.is_boundary(wanted)
    if r.role is Role.FENCED and droppable:
        following.trim(r, wanted)
    _HANDLERS[type(message)](r, envelope, message)


_OBEDIENT = {**_HANDLERS, Heartbeat: _trimmed_while_fenced, Trim: _trimmed_while_fenced}


def _always_start_over(source: Extent, destination: Extent) -> Negotiated | BelowCommit:
    plan = negotiate(source, destination)
    if isinstance(plan, Negotiated) and plan.plan is Plan.TAIL:
        return Negotiated(Plan.WIPE, source.first, source.end)
    return plan


def _syncing_may_ack(r: ReplicaState) -> bool:
    return r.role is Role.FOLLOWER


def _resume(c: CoordinatorState, record: Shard) -> bool:
    if c.election is None or c.election.epoch != record.epoch:
        c.election = Election(record.epoch, c.now_ms)
    return True


REPAIR = (
    Mutant(
        "sync_ends_early",
        "a sync counts as done when the first of it is durable",
        ("V8",),
        1,
        ((following, "_finish_sync", _sync_ends_early),),
    ),
    Mutant(
        "uncommitted_forgotten",
        "a restart takes up only what is known to be committed",
        ("V10",),
        1,
        ((Replica, "restart", classmethod(_forget_uncommitted)),),
    ),
    Mutant(
        "adopted_before_cut",
        "a history is adopted before what parts from it is cut",
        ("N6",),
        15,
        ((following, "_adopt", _adopt_then_cut),),
    ),
    Mutant(
        "sent_from_the_start",
        "a follower is sent the whole log, whatever it holds",
        ("N7",),
        11,
        ((Cursor, "confirm", _send_all_again),),
    ),
    Mutant(
        "commit_abandoned",
        "an election gives up a change in COMMIT, too",
        ("O4",),
        4,
        ((electing, "start", _abandon_commit),),
    ),
    Mutant(
        "unready_promoted",
        "a new node is taken in before it has been a standby",
        ("T12",),
        1,
        ((reconfiguring, "_caught_up", always(True)),),
    ),
    Mutant(
        "context_ahead",
        "the commit context that rides along reaches to the end of what is written",
        ("V2",),
        2,
        ((ReplicaState, "write_gathered", _context_ahead),),
    ),
    Mutant(
        "torn_is_corrupt",
        "a write that a power cut left torn counts as an entry that was there",
        ("rule_14",),
        95,
        ((disk, "classify", _torn_is_corrupt),),
    ),
    Mutant(
        "cut_while_fenced",
        "a fence cuts what is not known to be committed",
        ("M5",),
        1,
        ((fencing, "persist_promise", _cut_by_a_fence),),
    ),
)

BY_TEST = {
    "election_resumed": Mutant(
        "election_resumed",
        "a coordinator goes on with an election that it finds",
        ("O1",),
        0,
        ((electing, "owns", _resume),),
    ),
    "always_started_over": Mutant(
        "always_started_over",
        "a follower that lacks a tail is made to start over from a snapshot, and acks meanwhile",
        ("V7", "V9"),
        0,
        (
            (leading, "negotiate", _always_start_over),
            (following, "may_ack", _syncing_may_ack),
        ),
    ),
    "trimmed_without_table": Mutant(
        "trimmed_without_table",
        "the past is dropped before the table of sessions is kept",
        ("V3",),
        0,
        ((following, "trim", _trim_without_table),),
    ),
    "lost_acks_forgiven": Mutant(
        "lost_acks_forgiven",
        "a follower that comes back below its last ack counts as before",
        ("T5",),
        0,
        ((leading, "is_lost", always(False)),),
    ),
    "sessions_survive_a_loss": Mutant(
        "sessions_survive_a_loss",
        "behind a loss of which no header is left the table of sessions is not started over",
        ("hole_4_11",),
        0,
        ((losing, "leaves_sessions_in_doubt", always(False)),),
    ),
    "trimmed_while_fenced": Mutant(
        "trimmed_while_fenced",
        "a fenced replica trims when it is told to",
        ("M5",),
        0,
        ((replica, "HANDLERS", _OBEDIENT),),
    ),
}
