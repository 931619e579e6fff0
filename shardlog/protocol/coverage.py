"""Coverage: when a reconfiguration may be committed (rule 8).

COMMIT is the point of no return, so it may be written only when the ensemble that it leads to
already holds everything that the shard has promised.
"""

from __future__ import annotations

from shardlog.protocol.leadership import Leadership
from shardlog.protocol.messages import Reconfiguration
from shardlog.protocol.quorum import replicated_end
from shardlog.protocol.replica_state import ReplicaState


def cover(r: ReplicaState, lead: Leadership) -> bool:
    """Whether COMMIT may be written; once said, it is binding."""
    if lead.change and not lead.covered:
        lead.covered = is_covered(r, lead, lead.change)
    return lead.covered


def is_covered(r: ReplicaState, lead: Leadership, change: Reconfiguration) -> bool:
    """Everything committed is durable on a replication quorum of the final ensemble (rule 8)."""
    after = change.after
    ends = lead.counted(r.member, r.acked_end())
    quorum = lead.policy.of(len(after)).replication
    return replicated_end(quorum, (ends.get(member, 0) for member in after)) >= r.commit
