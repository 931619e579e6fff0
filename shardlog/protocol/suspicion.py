"""When to depose a leader: only on corroborated evidence (rule 20, T11).

That the coordinator cannot reach a leader says little: the link between the two may be cut while
the shard works.  A leader works as long as enough followers hear it for a replication quorum; and
since it marks its heartbeats as worthless once it no longer hears such a quorum itself, followers
cannot be fooled by a link that is cut one way only.

Silence takes its time to be told from slowness.  A process that was killed need not be waited for
as long: its machine says at once that nobody listens at its address.  That alone deposes nobody
either; so many followers have to say that they no longer hear it that it cannot commit any more.
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


def given_up(
    leader: Member,
    ensemble: Ensemble,
    policy: QuorumPolicy,
    seen: Mapping[Member, Seen],
    since_ms: int,
    silence_ms: int,
) -> bool:
    """Whether followers that reported after `since_ms` leave the leader without a quorum.

    A follower speaks against it that has not heard it for `silence_ms`, by its own clock, and for
    as much longer as a leader may take that has nothing to tell.
    """
    against = {
        member
        for member, each in seen.items()
        if member != leader
        and each.at_ms >= since_ms
        and not (each.report.leader == leader and _hears(each.report, silence_ms))
    }
    hearing = [member for member in ensemble if member not in against]
    return not reached(policy.of(len(ensemble)).replication, ensemble, hearing)


def _hears(report: StatusReport, silence_ms: int) -> bool:
    return 0 <= report.heard_ms_ago < silence_ms + report.slack_ms


def election_possible(
    ensembles: Sequence[Ensemble],
    policy: QuorumPolicy,
    seen: Mapping[Member, Seen],
    fresh_since_ms: int,
) -> bool:
    """Whether enough members are in reach for an election to end: else it would only do harm."""
    reachable = {member for member, each in seen.items() if each.at_ms >= fresh_since_ms}
    return all(reached(policy.of(len(each)).fencing, each, reachable) for each in ensembles)
