"""How closely a coordinator looks at its shard.

A shard at rest has a leader that has just said that it serves and hears its quorum, and nothing is
under way.  It is asked how it is now and then only; one process carries a thousand of these.  As
soon as anything is off it is looked at closely again: because a member says something else than
before, because the record changes or somebody wants something, or because the driver was told.  A
driver looks at nodes rather than at shards, so that it notices at once if one of them falls silent.

None of this decides anything.  Silence is counted only while one looks: whoever was at rest begins
to count when it is woken, so a leader is never deposed because nobody has asked.  And whoever is
not woken looks by itself after `rest_ms`.

A member that does not answer does not keep a shard from resting, as long as the leader works: a
node may be gone for good.  One that answers, and does not follow as it should, does.
"""

from __future__ import annotations

from shardlog.protocol.coordinator_state import CoordinatorState
from shardlog.protocol.messages import StatusReport
from shardlog.protocol.shard import Shard, Status


def look(c: CoordinatorState, record: Shard) -> bool:
    """Whether it is time to ask all members how they are."""
    resting = at_rest(c, record)
    if resting:
        c.healthy_ms = c.now_ms
    pace_ms = c.limits.rest_ms if resting else c.limits.status_ms
    return c.polled_ms < 0 or c.now_ms - c.polled_ms >= pace_ms


def alert(c: CoordinatorState) -> None:
    """Something has changed, or may have."""
    if c.record is not None and at_rest(c, c.record):
        c.healthy_ms = c.now_ms
    c.alert_until_ms = c.now_ms + c.limits.alert_ms


def at_rest(c: CoordinatorState, record: Shard) -> bool:
    """The leader has answered last that all is well, nobody else said no, nothing is under way."""
    leader = record.leader
    if leader is None or record.status is not Status.STEADY or c.now_ms < c.alert_until_ms:
        return False
    if record.change or record.joining or c.target or c.lost or c.unheeded_ms >= 0:
        return False
    own = c.seen.get(leader)
    if own is None or own.at_ms < c.polled_ms or leader in c.draining:
        return False
    answered = [each for each in map(c.seen.get, record.ensemble) if each is not None]
    return all(is_well(record, each.report) for each in answered if each.at_ms >= c.polled_ms)


def is_well(record: Shard, report: StatusReport) -> bool:
    """Whether the member does what the record expects of it."""
    if report.epoch != record.epoch:
        return False
    if report.member == record.leader:
        serves = report.role == "LEADER" and report.serving and report.quorum_fresh
        return serves and report.awaited is None
    return report.role == "FOLLOWER" and report.leader == record.leader
