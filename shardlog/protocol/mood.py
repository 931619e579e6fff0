"""What a coordinator would want to hear of at once, if it changed.

A replica judges nothing (rule 20): it says whether something is different from before, and the
coordinator asks what.  Where a log ends does not matter here; who leads, who is heard and who is
about to stop does.
"""

from __future__ import annotations

from typing import NamedTuple

from shardlog.protocol.replica_state import ReplicaState
from shardlog.protocol.states import Role

SILENT_BEATS = 4
"""A follower that has missed so many heartbeats says so."""


class Mood(NamedTuple):
    role: Role
    epoch: int
    # Of a leader: it serves, and hears a replication quorum.  Of a follower: it hears its leader.
    content: bool
    draining: bool


def mood_of(r: ReplicaState, clock_ms: int) -> Mood:
    """By the node's clock as it is now."""
    now_ms = max(r.now_ms, clock_ms + r.set_back_ms)
    return Mood(r.role, r.epoch, _content(r, now_ms), r.draining)


def _content(r: ReplicaState, now_ms: int) -> bool:
    lead, limits = r.lead, r.limits
    if lead is not None:
        return lead.serving and lead.quorum_fresh(r.member, now_ms, limits)
    if r.role is Role.FENCED:
        return False
    silence_ms = SILENT_BEATS * limits.heartbeat_ms + r.slack_ms
    return r.heard_ms >= 0 and now_ms - r.heard_ms < silence_ms
