"""Rules taken away, one at a time: a simulator that misses none of them may be believed.

A mutant replaces a named rule of the protocol by something plausible and wrong.  Each must be
caught by an outside checker under the default random options: not by an assertion inside a
machine, nor by a scenario written for it.  The rules are ordinary functions in `protocol`, so
nothing there exists for the sake of mutants.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shardlog.protocol import (
    answering,
    changing,
    choice,
    commit,
    coverage,
    electing,
    fencing,
    following,
    leadership,
    leading,
    losing,
    reconfiguring,
    serving,
    tending,
)
from shardlog.protocol.cursor import Cursor
from shardlog.protocol.effects import Format, Superblock
from shardlog.protocol.entry import Header, Member, Seal, marker
from shardlog.protocol.failures import Refusal, StaleEpoch
from shardlog.protocol.history import OPEN_END, History, clip, last_epoch
from shardlog.protocol.leadership import Leadership
from shardlog.protocol.log import Log, Mark
from shardlog.protocol.messages import Append, BecomeLeader, Envelope, FenceAnswer
from shardlog.protocol.quorum import Ensemble, QuorumPolicy, reached, replicated_end
from shardlog.protocol.replica_state import ReplicaState
from shardlog.protocol.sessions import admit
from shardlog.protocol.shard import Shard
from shardlog.protocol.states import Cause, Role
from shardlog.sim.hole_mutants import HOLES
from shardlog.sim.mutant import Mutant, always
from shardlog.sim.repair_mutants import BY_TEST, REPAIR
from shardlog.sim.store import Store

# --- wrong rules -------------------------------------------------------------------------------


def _oxia_divergence(mine: History, mine_end: int, theirs: History, theirs_end: int) -> int:
    """The Oxia seed: up to the leader's last entry at or below the follower's last epoch."""
    mine, theirs = clip(mine, mine_end), clip(theirs, theirs_end)
    head = last_epoch(mine)
    later = [span.first for span in theirs if span.epoch > head]
    return min([mine_end, theirs_end, *later])


def _longest(log: choice.Possible) -> tuple[int, int]:
    return 0, log.may_end


def _corrupt_is_absent(self: choice.Possible, epoch: int, offset: int) -> bool:
    slot = self.slot_at(offset)
    if slot is not None and slot.mark is not Mark.PRESENT:
        return True
    return offset >= self.end or self.epoch_at(offset) != epoch


def _anyone_addressed(r: ReplicaState, envelope: Envelope, from_client: bool) -> bool:
    """A wiped volume takes itself for the member it once held."""
    if r.role is Role.NOT_MEMBER and envelope.dst_incarnation:
        r.blank(envelope.dst_incarnation)
        r.become(Cause.CREATE)
        block = Superblock(envelope.dst_incarnation, 0, 0, (), 0, 0, (), None)
        r.emit(Format(block))
    return r.role is not Role.NOT_MEMBER


def _log_end(r: ReplicaState) -> int:
    return r.log.end


def _take_anything(log: Log, header: Header) -> Refusal | None:
    return None


def _append_again(lead: Leadership, message: Append) -> int | Refusal | None:
    known = admit(lead.tip, message.session, message.request)
    return None if isinstance(known, int) else known


def _count_everyone(
    policy: QuorumPolicy,
    ensembles: tuple[Ensemble, ...],
    acked: dict[Member, int],
    epoch_start: int,
    before: int,
) -> int:
    end = min(
        replicated_end(policy.of(len(each)).replication, acked.values()) for each in ensembles
    )
    return end if end > before and end > epoch_start else before


def _standby_may_ack(r: ReplicaState) -> bool:
    return r.syncing is None


def _lead_again(r: ReplicaState, message: BecomeLeader, cut: int) -> Refusal | None:
    return StaleEpoch(r.epoch) if message.epoch != r.epoch or r.lead else None


def _one_ensemble(self: Shard) -> tuple[Ensemble, ...]:
    return (self.ensemble,)


def _old_ensemble_decides(self: Leadership) -> tuple[Ensemble, ...]:
    return (self.ensemble,)


def _quorum_of_the_union(
    answered: Any, ensembles: tuple[Ensemble, ...], policy: QuorumPolicy
) -> bool:
    """The shard's fencing quorum, from whomever: the policy is not bent to the larger union."""
    union = tuple(dict.fromkeys(member for each in ensembles for member in each))
    return reached(policy.of(len(ensembles[0])).fencing, union, answered)


def _leaving_counts(self: Leadership, me: Member, own_end: int) -> dict[Member, int]:
    ends = {m: each.acked for m, each in self.cursors.items() if leadership.counts(each)}
    return ends | {me: own_end}


def _announced_at_once(self: Cursor, cut: int) -> None:
    self.announced, self.cut, self.sent_ms = True, cut, -1
    if cut != OPEN_END:
        self.next = self.at = cut


def _from_any_leader(r: ReplicaState, envelope: Envelope, epoch: int) -> bool:
    """Entries are taken from whoever has the higher epoch, with or without its history."""
    leader = Member(envelope.src, envelope.src_incarnation)
    if (
        epoch < r.epoch
        or r.lead
        or r.syncing
        or (epoch == r.epoch and r.role in following.FOLLOWING)
    ):
        return epoch == r.epoch and r.role in following.FOLLOWING and r.leader == leader
    r.epoch, r.leader = epoch, leader
    r.become(Cause.ANNOUNCE)
    r.persist()
    return True


def _damage_hidden(self: ReplicaState) -> FenceAnswer:
    """The answer of a replica that has forgotten what it cannot read, and all behind it."""
    answer = _FENCE_ANSWER(self)
    bad = [slot.base for slot in answer.slots if slot.mark is not Mark.PRESENT]
    end = max(min([answer.end, *bad]), answer.commit)
    slots = tuple(slot for slot in answer.slots if slot.mark is Mark.PRESENT and slot.base < end)
    history = clip(answer.history, end)
    return replace(
        answer, end=end, history=history, slots=slots, open_tail=False, head=0, damaged=()
    )


_FENCE_ANSWER = ReplicaState.fence_answer


def _unchained(seal: Seal, lost: Header, parent: int, timestamp_ms: int) -> Header:
    """A marker as if it were an entry like any other."""
    return marker(seal, lost._replace(checksum=0), parent, timestamp_ms)


def _kinds(*mutants: Mutant) -> dict[str, Mutant]:
    return {mutant.name: mutant for mutant in mutants}


MUTANTS = _kinds(
    Mutant(
        "commit_any_epoch",
        "entries of older epochs are counted by themselves",
        ("O3",),
        22,
        ((commit, "of_current_epoch", always(True)),),
        "losses",
    ),
    Mutant(
        "oxia_truncation",
        "the Oxia seed's truncation rule in place of the divergence of histories",
        ("N4",),
        8,
        (
            (leading, "divergence", _oxia_divergence),
            (following, "divergence", _oxia_divergence),
        ),
    ),
    Mutant(
        "longest_log_leads",
        "the longest log wins an election, whatever its last entry's epoch",
        ("N3",),
        13,
        ((choice, "rank", _longest),),
    ),
    Mutant(
        "fence_not_persisted",
        "a fence is answered before the promise is on disk",
        ("N9",),
        2,
        ((fencing, "persist_promise", always(None)),),
    ),
    Mutant(
        "ack_before_sync",
        "entries are acknowledged, and counted, before they are synced",
        ("N9", "T1"),
        1,
        ((ReplicaState, "acked_end", _log_end),),
    ),
    Mutant(
        "nack_quorum_ignored",
        "an entry without a valid copy is cut at once",
        ("T2",),
        18,
        ((choice, "nacked", always(True)),),
    ),
    Mutant(
        "corrupt_is_absent",
        "a damaged entry counts as one that was never there",
        ("T2",),
        18,
        ((choice.Possible, "never_had", _corrupt_is_absent),),
    ),
    Mutant(
        "wiped_disk_votes",
        "an emptied volume under an old name goes on as that member",
        ("T5",),
        15,
        ((fencing, "is_addressed", _anyone_addressed),),
    ),
    Mutant(
        "old_ensemble_fenced",
        "an election in COMMIT fences the old ensemble only",
        ("O4",),
        22,
        ((Shard, "ensembles", property(_one_ensemble)),),
    ),
    Mutant(
        "union_fenced",
        "an election in COMMIT is content with one fencing quorum out of the union",
        ("O4",),
        48,
        ((choice, "fenced_enough", _quorum_of_the_union),),
    ),
    Mutant(
        "commit_uncovered",
        "COMMIT is written without coverage",
        ("O5",),
        3,
        ((coverage, "is_covered", always(True)),),
    ),
    Mutant(
        "old_ensemble_commits",
        "between covered and Commit the old ensemble alone commits",
        ("O4",),
        1,
        ((Leadership, "deciding_ensembles", _old_ensemble_decides),),
    ),
    Mutant(
        "leaving_node_counts",
        "the leaving node's acks count through a whole change, and the old ensemble alone commits",
        ("O4", "O5"),
        1,
        (
            (Leadership, "counted", _leaving_counts),
            (Leadership, "deciding_ensembles", _old_ensemble_decides),
        ),
    ),
    Mutant(
        "prepare_before_commit",
        "a change is prepared before anything of the tenure is committed",
        ("O5",),
        58,
        ((changing, "tenure_committed", always(True)),),
    ),
    Mutant(
        "blind_writes",
        "metadata is written without a compare",
        ("O7",),
        1,
        ((Store, "accepts", always(True)),),
    ),
    Mutant(
        "append_unannounced",
        "entries are sent and taken before the history has been announced",
        ("N5",),
        2,
        (
            (Cursor, "unannounce", _announced_at_once),
            (following, "_from_my_leader", _from_any_leader),
        ),
    ),
    Mutant(
        "chain_unchecked",
        "entries are appended whatever their parent and offset",
        ("T1", "N8"),
        4,
        ((following, "refusal_to_append", _take_anything),),
    ),
    Mutant(
        "standby_acks",
        "a standby acks, and is counted",
        ("T12",),
        17,
        (
            (following, "may_ack", _standby_may_ack),
            (leadership, "counts", always(True)),
            (leading, "committed_end", _count_everyone),
        ),
    ),
    Mutant(
        "retry_appended_again",
        "a retried request is appended once more",
        ("T6",),
        2,
        ((serving, "admitted", _append_again),),
    ),
    Mutant(
        "no_epoch_start",
        "a new leader writes no entry of its own",
        ("O3",),
        25,
        ((leading, "start_epoch", always(None)),),
    ),
    Mutant(
        "late_fencers_dropped",
        "who answers a fence late is never added",
        ("O2",),
        2079,
        ((electing, "add_late", always(None)),),
    ),
    Mutant(
        "leader_swapped_out",
        "the leader itself may be swapped out",
        ("O4",),
        2,
        (
            (reconfiguring, "removes_leader", always(False)),
            (changing, "removes_leader", always(False)),
        ),
    ),
    Mutant(
        "leads_again",
        "a restarted leader may lead the same epoch again",
        ("O1",),
        18,
        ((leading, "refusal_to_lead", _lead_again),),
    ),
    Mutant(
        "read_unconfirmed",
        "a leader serves reads without asking whether it still leads",
        ("O9",),
        306,
        ((answering, "confirmed", always(True)),),
    ),
    Mutant(
        "opened_with_holes",
        "a new leader opens its epoch before it has what it must keep",
        ("T3", "T13"),
        4,
        ((leading, "missing_from", always(None)),),
    ),
    Mutant(
        "damage_hidden",
        "a fence answer ends where the first entry cannot be read",
        ("T2", "N2"),
        2,
        ((ReplicaState, "fence_answer", _damage_hidden),),
    ),
    Mutant(
        "loss_unasked",
        "an election that waits gives up the entry of its own accord",
        ("T3",),
        0,
        ((electing, "may_be_given_up", always(True)),),
    ),
    Mutant(
        "loss_breaks_the_chain",
        "a marker of what was given up has a checksum of its own",
        ("T1", "T3"),
        14,
        ((losing, "marker", _unchained),),
    ),
    *REPAIR,
    *HOLES,
    Mutant(
        "lost_members_forgotten",
        "a member that lost its disk is never swapped back in",
        ("T5",),
        12,
        ((tending, "tend_lost", always(False)),),
    ),
)

ALL_MUTANTS = MUTANTS | BY_TEST
"""Also those that the simulator does not show."""
