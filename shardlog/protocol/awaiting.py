"""What a shard waits for, for people and for the operator that reports it.

An election that waits says so itself.  A shard that serves may wait as well: an entry is damaged at
its leader, and no follower has supplied it.  Readers of that one entry are refused meanwhile.  And
a replica may wait to be made, until there is room for it.
"""

from __future__ import annotations

from shardlog.protocol import stakes
from shardlog.protocol.choice import Waiting
from shardlog.protocol.coordinator_state import CoordinatorState
from shardlog.protocol.entry import Header, Member
from shardlog.protocol.shard import Shard, Status


def awaited(c: CoordinatorState) -> Waiting | None:
    """As this coordinator sees it; None if nothing is, or if another one drives the election."""
    record = c.record
    if record is None:
        return None
    if record.status is Status.ELECTION:
        return c.election.waiting if c.election else None
    return unrepaired(c, record) or unmade(c, record)


def unmade(c: CoordinatorState, record: Shard) -> Waiting | None:
    """Nodes that were asked for a replica, and say why there is none yet."""
    new = [Member(record.joining.node, 0)] if record.joining else []
    asked = [each for each in (*record.ensemble, *new) if not each.incarnation]
    members = tuple(each for each in asked if each.node in c.unmade)
    return Waiting(None, c.unmade[members[0].node], members) if members else None


def unrepaired(c: CoordinatorState, record: Shard) -> Waiting | None:
    """The entry that a leader which serves cannot repair, and who might still have it."""
    own = c.seen.get(record.leader) if record.leader else None
    if record.status is not Status.STEADY or own is None or own.report.awaited is None:
        return None
    heard = {member: each.report for member, each in c.seen.items()}
    members = tuple(
        member
        for member in record.ensemble
        if member not in heard or heard[member].bad or member == record.leader
    )
    return Waiting(own.report.awaited, "the leader's copy is bad and nobody supplies it", members)


def at_stake(c: CoordinatorState) -> Header | None:
    """What would be lost if the entry that an election waits for were given up now."""
    waiting = awaited(c)
    if waiting is None or waiting.entry is None or c.election is None:
        return None
    return stakes.loss_of(waiting.entry, c.election.answers)
