"""The commit rule: when an entry is safe for ever.

An entry is committed when a replication quorum holds it durably *and* it is of the leader's own
epoch; everything before it is committed with it.  An entry of an older epoch that merely sits on
a quorum may still be overwritten (Raft's figure 8), so it is never counted by itself.  While a
reconfiguration is between "covered" and its end, both ensembles must hold the entry (rule 7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardlog.protocol.entry import Member
from shardlog.protocol.quorum import Ensemble, QuorumPolicy, replicated_end


def committed_end(
    policy: QuorumPolicy,
    ensembles: Sequence[Ensemble],
    acked: Mapping[Member, int],
    epoch_start: int,
    commit: int,
) -> int:
    """The new commit offset, never below `commit`.

    `acked` maps each member that counts to the end of what it holds durably; `epoch_start` is
    the offset of the current epoch's first entry.
    """
    end = min(
        replicated_end(policy.of(len(ensemble)).replication, (acked.get(m, 0) for m in ensemble))
        for ensemble in ensembles
    )
    return end if end > commit and of_current_epoch(end, epoch_start) else commit


def of_current_epoch(end: int, epoch_start: int) -> bool:
    """Whether the entry that ends at `end` was written in the epoch that began at `epoch_start`."""
    return end > epoch_start
