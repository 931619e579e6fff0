"""How far a leader may drop the past: whole entries, committed, applied and durable here."""

from __future__ import annotations

from shardlog.protocol import following
from shardlog.protocol.leadership import Leadership
from shardlog.protocol.replica_state import ReplicaState


def trim_more(r: ReplicaState, lead: Leadership) -> None:
    """Up to an entry boundary at or below what is wanted, and below what is applied.

    What is not durable here yet is trimmed when it is.  The last committed entry stays: its
    timestamp is the one that the next must not fall below (T10), and what stands behind it may
    never reach another replica.
    """
    last = r.log.covering(r.commit - 1)
    stays = last.base if last is not None else r.log.first
    wanted = min(lead.trimmed, r.sessions.applied, r.durable_end, stays)
    holding = r.log.covering(wanted)
    if holding is None and wanted < r.log.end:
        return  # nobody can tell where the entry begins
    if wanted == lead.trimmed:
        lead.trimmed = 0
    first = wanted if holding is None else holding.base
    if first > r.log.first:
        following.trim(r, first)
        r.owes_sync = True
