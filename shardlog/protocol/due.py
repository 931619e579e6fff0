"""When a coordinator needs its next tick.

A tick that comes earlier does nothing, so a driver of many shards may sleep until then.  Whatever
comes in may change it, and the driver asks again after each step.
"""

from __future__ import annotations

from shardlog.protocol import deleting, electing, pacing, tending
from shardlog.protocol.coordinator_state import CoordinatorState
from shardlog.protocol.shard import Shard, Status


def due_ms(c: CoordinatorState) -> int | None:
    """When a tick is needed, by the machine's own time; None if none is.

    What is due at once, or may be at any moment, is due with the driver's next tick.
    """
    record = c.record
    if c.version < 0:
        return c.now_ms
    if c.writing:
        return c.wrote_ms + c.limits.write_timeout_ms
    if record is None or record.halted:
        return None
    if record.status is Status.STEADY:
        return c.polled_ms + c.limits.rest_ms if pacing.at_rest(c, record) else c.now_ms
    if record.status is Status.ELECTION:
        return _election_due_ms(c, record)
    creating = record.status is Status.CREATING
    if tending.all_created(c, record) if creating else deleting.can_go_on(c, record):
        return c.now_ms
    return _again_ms(c, c.sent_ms)


def _election_due_ms(c: CoordinatorState, record: Shard) -> int:
    election, limits = c.election, c.limits
    if election is None or not electing.owns(c, record):
        return c.changed_ms + limits.election_timeout_ms
    again_ms = _again_ms(c, election.sent_ms)
    if election.asked is None:
        return again_ms
    return min(again_ms, election.started_ms + limits.election_timeout_ms)


def _again_ms(c: CoordinatorState, sent_ms: int) -> int:
    return c.now_ms if sent_ms < 0 else sent_ms + c.limits.resend_ms
