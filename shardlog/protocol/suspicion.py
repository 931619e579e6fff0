"""When to depose a leader: only on corroborated evidence (rule 20, T11).

That the coordinator cannot reach a leader says little: the link between the two may be cut while
the shard works.  A leader works as long as enough followers hear it for a replication quorum; and
since it marks its heartbeats as worthless once it no longer hears such a quorum itself, followers
cannot be fooled by a link that is cut one way only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shardlog.protocol.entry import Member
from shardlog.protocol.messages import StatusReport
from shardlog.protocol.quorum import Ensemble, QuorumPolicy, reached


class Seen(NamedTuple):
    """A report, and when it came in by the coordinator's own clock."""

    report: StatusReport
    at_ms: int


def leader_works(
    leader: Member,
    epoch: int,
    ensemble: Ensemble,
    policy: QuorumPolicy,
    seen: Mapping[Member, Seen],
    fresh_since_ms: int,
) -> bool:
    """Whether fresh reports show that the leader can serve."""
    own = seen.get(leader)
    fresh = own is not None and own.at_ms >= fresh_since_ms and own.report.epoch >= epoch
    if own and fresh and own.report.serving and own.report.quorum_fresh:
        return True
    hearing = {
        member
        for member, each in seen.items()
        if each.report.leader == leader
        and member != leader
        and each.report.heard_ms_ago >= 0
        and each.at_ms - each.report.heard_ms_ago >= fresh_since_ms
    }
    quorum = policy.of(len(ensemble)).replication
    return quorum > 1 and reached(quorum, ensemble, hearing | {leader})


def election_possible(
    ensembles: Sequence[Ensemble],
    policy: QuorumPolicy,
    seen: Mapping[Member, Seen],
    fresh_since_ms: int,
) -> bool:
    """Whether enough members are in reach for an election to end: else it would only do harm."""
    reachable = {member for member, each in seen.items() if each.at_ms >= fresh_since_ms}
    return all(reached(policy.of(len(each)).fencing, each, reachable) for each in ensembles)
