"""Evidence that a shard's record is not of the past that its replicas lived through (rule 21).

A metadata store that was restored from a backup knows nothing of what was done since.  An epoch
that was used meanwhile is told by the election's id, and the coordinator goes above it.  A change
of the ensemble that the record does not know of cannot be mended: the shard halts.
"""

from __future__ import annotations

from shardlog.protocol.coordinator_state import CoordinatorState, changed
from shardlog.protocol.entry import Member
from shardlog.protocol.messages import FenceAnswer, StatusReport
from shardlog.protocol.quorum import Ensemble, always_meet
from shardlog.protocol.shard import Phase, Shard
from shardlog.protocol.states import Role

ADVICE = (
    "the metadata is older than the replicas, or a tail was given up that is there after all: "
    "restore a later backup of it, or make the shard again from a snapshot"
)


def halt(c: CoordinatorState, record: Shard, why: str) -> None:
    """Do nothing more for the shard; nodes go on as they are."""
    if not c.writing:
        c.write(changed(record, halted=f"{why}; {ADVICE}"))


def of_report(record: Shard, report: StatusReport) -> str | None:
    """What a report says of a leader or an ensemble that the record cannot know of."""
    node, leader = report.member.node, report.leader
    leads = report.role == Role.LEADER
    if report.epoch > record.epoch:
        if leads and not _known(record).issuperset(report.ensemble):
            return f"{node} leads another ensemble"
        if leader is not None and leader not in _known(record):
            return f"{node} follows {leader.node}, which is of another ensemble"
    elif leads and report.asked == record.epoch and _left_behind(record, report):
        return f"{node} leads another ensemble"
    return None


def _left_behind(record: Shard, report: StatusReport) -> bool:
    """Whether the leader has completed a change of which the record says that it did not get far.

    COMMIT is written before the leader is told of it, and what was aborted never came so far.  Who
    leads an epoch from before the last change was deposed meanwhile, and has not heard of it.
    """
    if record.change is None:
        later = record.changed_in <= report.epoch < record.epoch
        return later and not _known(record).issuperset(report.ensemble)
    preparing = record.phase is Phase.PREPARE and report.epoch == record.epoch
    return preparing and set(report.ensemble) == set(record.change.after)


def of_answer(record: Shard, answer: FenceAnswer) -> str | None:
    """What the answer to a fence says of an ensemble that came after the record's.

    One that the record does not know; or one so much smaller that what it committed need not be
    held by those who decide this election.
    """
    told = answer.membership
    if told is None or told.epoch <= record.changed_in:
        return None
    if record.change is not None and set(told.ensemble) == set(record.change.after):
        # The change that is under way: its leader tells the ensemble that it leads to.
        return None
    known = _known(record)
    strange = [member for member in told.ensemble if member not in known]
    if strange:
        what = f"told of {strange[0]}, which the record does not know"
    elif any(always_meet(record.quorum, each, told.ensemble) for each in record.ensembles):
        # An election fences a quorum of each of the record's ensembles: one that meets is enough.
        return None
    else:
        what = f"told of an ensemble of {len(told.ensemble)}"
    return f"{answer.member.node} was {what}, in epoch {told.epoch}"


def of_committed(node: str, commit: int) -> str:
    """What it means that a member has committed what the elected leader lacks."""
    return f"a member has committed offsets below {commit} that {node}, the leader, lacks"


def _known(record: Shard) -> set[Member]:
    new = record.change.after if record.change else ()
    members: Ensemble = (*record.ensemble, *new)
    return set(members)
