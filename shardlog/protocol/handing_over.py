"""Leadership handed over, because somebody asked, the leader is to leave, or its node is to stop.

Writes pause until the successor holds everything, then an election prefers it (rule 11).  Nothing
is lost if any of this fails: a pause ends by itself, and an election chooses well without us.

A node that is about to stop says so in its status, for as long as it runs.  Whoever leads there
hands over to a member that is not to stop itself and has caught up; if there is none yet, the
leader goes on, and it is tried again with every report.
"""

from __future__ import annotations

from shardlog.protocol import electing
from shardlog.protocol.coordinator_state import CoordinatorState
from shardlog.protocol.entry import Member
from shardlog.protocol.messages import CursorStatus, PauseWrites, WritesPaused
from shardlog.protocol.shard import Shard, Status


def begin(c: CoordinatorState, record: Shard, target: Member) -> None:
    if c.target != target:
        c.target, c.paused_ms = target, c.now_ms
        _ask_to_pause(c, record, target)


def _ask_to_pause(c: CoordinatorState, record: Shard, target: Member) -> None:
    if record.leader:
        c.send(record.leader, PauseWrites(record.epoch, target))


def drive(c: CoordinatorState, record: Shard) -> None:
    """Asked again for a while; then the leader goes on as if nothing had been asked."""
    if c.target is None:
        return
    if c.now_ms - c.paused_ms >= c.limits.pause_ms:
        c.target = None
    elif c.due_again():
        _ask_to_pause(c, record, c.target)


def paused(c: CoordinatorState, record: Shard, message: WritesPaused) -> None:
    """The target holds everything: elect it."""
    if message.epoch != record.epoch or record.status is not Status.STEADY or c.writing:
        return
    if message.caught_up and message.target == c.target and record.change is None:
        electing.start(c, record, preferred=message.target.node)


def relieve(c: CoordinatorState, record: Shard) -> None:
    """The leader's node is about to stop.  A change in progress is let finish first."""
    if record.leader not in c.draining or record.change or c.target:
        return
    leader = c.seen.get(record.leader) if record.leader else None
    target = successor(c, record)
    cursor = cursor_of(c, record, target) if target else None
    if leader and target and cursor and cursor.acked >= leader.report.commit:
        begin(c, record, target)


# --- who could lead ------------------------------------------------------------------------------


def successor(c: CoordinatorState, record: Shard) -> Member | None:
    """The member that is closest behind the leader; among equals one that leads little else."""
    cursors = [cursor_of(c, record, member) for member in record.ensemble]
    known = [each for each in cursors if each and not each.lost and each.member not in c.draining]

    def merit(each: CursorStatus) -> tuple[int, int, Member]:
        return each.acked, -c.leaders.get(each.member.node, 0), each.member

    best = max(known, key=merit, default=None)
    return best.member if best else None


def cursor_of(c: CoordinatorState, record: Shard, member: Member) -> CursorStatus | None:
    leader = c.seen.get(record.leader) if record.leader else None
    if leader is None or not leader_knows(c, record):
        return None
    return next((each for each in leader.report.cursors if each.member == member), None)


def leader_knows(c: CoordinatorState, record: Shard) -> bool:
    """Whether the leader has followed the record to its epoch: an abort, say."""
    leader = c.seen.get(record.leader) if record.leader else None
    return leader is not None and leader.report.epoch == record.epoch
