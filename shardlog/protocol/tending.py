"""The steady state: look after the leader, the followers, and what is left over.

Every member is asked how it is; a leader is deposed only on corroborated evidence.  A member
without a follow cursor is fenced again at the same epoch, which it answers only if it is Fenced,
and is then added.  A member that has no replica any more is swapped for itself.
"""

from __future__ import annotations

from shardlog.protocol import contradiction, electing, pacing
from shardlog.protocol.coordinator_state import CoordinatorState, changed
from shardlog.protocol.entry import Member
from shardlog.protocol.failures import (
    BelowCommit,
    NoReplica,
    NotReady,
    OtherElection,
    StaleEpoch,
)
from shardlog.protocol.history import EPOCH_MAX, same_election
from shardlog.protocol.messages import (
    Abort,
    Create,
    Created,
    CursorStatus,
    Destroy,
    Destroyed,
    Envelope,
    Fence,
    Operation,
    Refused,
    StatusReport,
    StatusRequest,
)
from shardlog.protocol.quorum import replicated_end
from shardlog.protocol.shard import Joining, Shard, Status
from shardlog.protocol.suspicion import Seen, election_possible, given_up, leader_works
from shardlog.protocol.upkeep import USUAL

BAD_REPORTS_MAX = 2
LOST_REPORTS_MIN = 3


# --- creation ----------------------------------------------------------------------------------


def drive_creating(c: CoordinatorState, record: Shard) -> None:
    """All incarnations stand in the metadata before the first election (rule 12)."""
    unknown = [member for member in record.ensemble if not member.incarnation]
    if not unknown:
        electing.start(c, record)
    elif all_created(c, record):
        ensemble = tuple(
            Member(member.node, member.incarnation or c.created[member.node])
            for member in record.ensemble
        )
        c.write(changed(record, ensemble=ensemble))
    elif c.due_again():
        for member in unknown:
            if member.node not in c.created:
                c.send(member, Create())


def all_created(c: CoordinatorState, record: Shard) -> bool:
    return all(each.incarnation or each.node in c.created for each in record.ensemble)


def created(c: CoordinatorState, record: Shard, envelope: Envelope, message: Created) -> None:
    c.created[envelope.src] = message.incarnation
    c.unmade.pop(envelope.src, None)


# --- watching ----------------------------------------------------------------------------------


def poll(c: CoordinatorState, record: Shard) -> None:
    c.polled_ms = c.now_ms
    joining = (record.joining.member,) if record.joining and record.joining.incarnation else ()
    new = (record.change.new,) if record.change and record.change.new else ()
    upkeep = record.upkeep if record.upkeep != USUAL else None
    for member in dict.fromkeys((*record.ensemble, *joining, *new)):
        c.send(member, StatusRequest(record.epoch, upkeep))
    for member in record.removed:
        c.send(member, Destroy())


def reported(c: CoordinatorState, record: Shard, report: StatusReport) -> None:
    c.lost.pop(report.member, None)
    if report.draining:
        c.draining.add(report.member)
    else:
        c.draining.discard(report.member)
    why = contradiction.of_report(record, report)
    if why is not None:
        contradiction.halt(c, record, why)
        return
    if report.epoch > record.epoch:
        overtaken(c, record, report.epoch)
    elif report.epoch == record.epoch and not same_election(report.election, record.election):
        used_before(c, record, report.epoch)
    if report.asked != record.epoch:
        return
    before = c.seen.get(report.member)
    if before and pacing.is_well(record, before.report) != pacing.is_well(record, report):
        pacing.alert(c)
    c.seen[report.member] = Seen(report, c.now_ms)
    further = before is None or report.end > before.report.end or _follows_now(before, report)
    if record.joining and report.member == record.joining.member and further:
        c.changed_ms = c.now_ms  # as long as it gets further it is not given up
    if record.status is not Status.STEADY or report.member != record.leader:
        return
    c.unheeded_ms = -1
    if report.role == "LEADER" or report.epoch < record.epoch:
        c.bad_reports = 0
    else:
        c.bad_reports += 1


def _follows_now(before: Seen, report: StatusReport) -> bool:
    """Between the snapshot and the first entries behind it nothing else shows that it goes on."""
    return report.role == "STANDBY" and before.report.role != report.role


def unheeded(c: CoordinatorState, member: Member) -> None:
    """Nobody listens where the leader was: that it is gone its followers have to confirm."""
    if c.record and c.record.leader == member and c.unheeded_ms < 0:
        pacing.alert(c)
        c.unheeded_ms = c.now_ms


def overtaken(c: CoordinatorState, record: Shard, epoch: int) -> None:
    """A node knows a higher epoch than we do: read again; if the metadata is older, believe it.

    A record that came back from an old backup must never be acted on below what nodes promised
    (rule 21), so the next epoch is chosen above it.  Where there is none above it, the node is
    damaged, and the others go on without it.
    """
    if epoch >= EPOCH_MAX:
        return
    c.load()
    if c.now_ms - c.changed_ms >= c.limits.election_timeout_ms and not c.writing:
        electing.start(c, record, above=epoch)


def used_before(c: CoordinatorState, record: Shard, epoch: int) -> None:
    """The record's epoch was used by an election that the record does not know of: go above it."""
    if c.writing or epoch != record.epoch:
        return
    if record.status in (Status.ELECTION, Status.STEADY):
        electing.start(c, record, preferred=record.preferred, above=epoch)


def refused(c: CoordinatorState, record: Shard, envelope: Envelope, message: Refused) -> None:
    refusal = message.refusal
    if isinstance(refusal, StaleEpoch) and refusal.epoch > record.epoch:
        overtaken(c, record, refusal.epoch)
    elif isinstance(refusal, OtherElection):
        used_before(c, record, refusal.epoch)
    elif isinstance(refusal, BelowCommit) and message.request in ("AddFollower", "BecomeLeader"):
        if message.epoch == record.epoch:
            why = contradiction.of_committed(envelope.src, refusal.commit)
            contradiction.halt(c, record, why)
    elif isinstance(refusal, NotReady) and message.request == "Create":
        c.unmade[envelope.src] = refusal.reason
    elif isinstance(refusal, NoReplica):
        there = refusal.incarnation
        for member in record.removed:
            if member == (envelope.src, refusal.asked) and member.incarnation != there:
                c.gone.add(member)
        for member in record.ensemble:
            _count_lost(c, member, envelope, refusal)
        if record.joining and record.joining.incarnation:
            _count_lost(c, record.joining.member, envelope, refusal)


def _count_lost(c: CoordinatorState, member: Member, envelope: Envelope, no: NoReplica) -> None:
    """Count an answer to a message for just this incarnation, which is not there.

    A late one may be from before the replica was made, so one alone proves nothing.
    """
    if member == (envelope.src, no.asked) and member.incarnation != no.incarnation:
        c.lost[member] = c.lost.get(member, 0) + 1


def destroyed(c: CoordinatorState, record: Shard, envelope: Envelope, message: Destroyed) -> None:
    c.gone.add(Member(envelope.src, message.incarnation))


# --- judging -----------------------------------------------------------------------------------


def must_elect(c: CoordinatorState, record: Shard) -> bool:
    """Whether the leader has to be replaced."""
    leader = record.leader
    if leader is None:
        return True
    since = c.now_ms - c.limits.leader_timeout_ms
    if leader_works(leader, record.epoch, record.ensemble, record.quorum, c.seen, since):
        c.healthy_ms = c.now_ms
    silent = c.now_ms - c.healthy_ms >= c.limits.leader_timeout_ms
    suspect = silent or c.bad_reports >= BAD_REPORTS_MAX or leader in lost_members(c, record)
    suspect = suspect or _is_gone(c, record, leader)
    return suspect and election_possible(record.ensembles, record.quorum, c.seen, since)


def _is_gone(c: CoordinatorState, record: Shard, leader: Member) -> bool:
    """By two witnesses that know nothing of each other: its machine, and its followers."""
    if c.unheeded_ms < 0:
        return False
    return given_up(leader, record.ensemble, record.quorum, c.seen, c.unheeded_ms, c.limits.gone_ms)


def lost_members(c: CoordinatorState, record: Shard) -> list[Member]:
    """Members to swap for themselves: without a replica, or below what they acknowledged."""
    return [
        member
        for member in record.ensemble
        if c.lost.get(member, 0) >= LOST_REPORTS_MIN or is_given_up(c, record, member)
    ]


def is_given_up(c: CoordinatorState, record: Shard, member: Member) -> bool:
    """Whether the member holds less than it acknowledged (rule 15), and can be spared.

    What it still has is destroyed with it, so the others have to hold all that is committed: a
    replication quorum, or all of them where there are fewer.
    """
    leader = c.seen.get(record.leader) if record.leader else None
    if leader is None:
        return False
    cursors, commit = leader.report.cursors, leader.report.commit
    if not any(each.lost and each.member == member for each in cursors):
        return False
    ends = {each.member: each.acked for each in cursors if not (each.lost or each.standby)}
    ends[leader.report.member] = commit
    others = [each for each in record.ensemble if each != member]
    enough = min(record.quorum.of(len(record.ensemble)).replication, len(others))
    return replicated_end(enough, (ends.get(each, 0) for each in others)) >= commit


def tend_followers(c: CoordinatorState, record: Shard) -> None:
    """Fence again whoever has no cursor: a replica answers only if it is Fenced."""
    leader = c.seen.get(record.leader) if record.leader else None
    if leader is None or leader.report.role != "LEADER":
        return
    if leader.report.epoch < record.epoch and record.change is None and record.leader:
        c.send(record.leader, Abort(record.epoch, record.ensemble))
        return
    with_cursor = {each.member for each in leader.report.cursors if not is_silent(c, each)}
    wanted = set(record.ensemble)
    if record.joining and c.installed:
        wanted.add(record.joining.member)
    if record.change and record.change.new:
        wanted.add(record.change.new)
    for member in sorted(wanted - with_cursor - {record.leader}):
        c.send(member, Fence(record.epoch, record.election))


def is_silent(c: CoordinatorState, cursor: CursorStatus) -> bool:
    """A follower that was started again somewhere else waits for a leader that looks for it here.

    It is Fenced then, answers, and the leader is told where it is; any other refuses.
    """
    return cursor.heard_ms_ago >= c.limits.leader_timeout_ms and not cursor.lost


def tend_lost(c: CoordinatorState, record: Shard) -> bool:
    """Swap a member that lost its replica for itself, under a new incarnation."""
    if record.change or record.joining:
        return False
    for member in lost_members(c, record):
        if member != record.leader and len(record.ensemble) > 1:
            again = Joining(Operation.SWAP, member, member.node, 0)
            c.write(changed(record, joining=again))
            return True
    return False


def tend_removed(c: CoordinatorState, record: Shard) -> bool:
    """Replicas that are gone for good leave the record."""
    left = tuple(member for member in record.removed if member not in c.gone)
    if left == record.removed:
        return False
    c.write(changed(record, removed=left))
    return True
