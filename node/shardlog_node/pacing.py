"""How fast those that lack old entries are fed: followers that were away, and new nodes.

While clients append nothing there is no reason to hold back.  While they do, every byte that is
read, summed and sent for somebody who is behind is taken from them.  So what a shard sends to
each of them then is a share of what is appended to it: more than all of it, or they would never
catch up, but not much more.  The less is appended to the node the less there is to protect: where
it is little, much more may be sent, or a new replica would wait for no reason.  What is not
committed yet is never held back, nor is anything that is still in memory.

A share that is allowed is not always reached.  Then appends give way (`giving_way`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardlog.protocol.replica import Replica

if TYPE_CHECKING:
    from shardlog_node.host import HostedReplica

SMOOTH_S = 0.3
QUIET_S = 0.1
"""Clients that append nothing for so long have stopped: nobody has to be protected any more."""
BUSY_BYTES_PER_S = 1 << 20
"""A node that is appended less than this is idle."""
LIGHT_BYTES_PER_S = 256 << 20
"""Of all shards together, while next to nothing is appended; less and less as more is."""
HEAVY_BYTES_PER_S = 32 << 20
"""From so much appended to the node on there is nothing but the share."""
LEAST_BYTES_PER_S = 16 << 20
"""Of all shards together, however much is appended to some of them."""
HEARD_MS = 2000
"""Who has not been heard for longer is not fed."""
BURST_BYTES = 1 << 20
BURST_S = 0.25


@dataclass(frozen=True, slots=True)
class PaceLimits:
    """`bytes_per_s_max` is of all shards together, at any time; 0 for no bound."""

    bytes_per_s_max: int = 0
    busy_percent: int = 150


class ShardPace:
    """What is appended to one shard, in bytes a second of late."""

    __slots__ = ("_quiet_s", "_seen_bytes", "appended_per_s")

    def __init__(self) -> None:
        self._seen_bytes = 0
        self._quiet_s = 0.0
        self.appended_per_s = 0.0

    @property
    def protected_per_s(self) -> float:
        """Nothing, once clients have stopped."""
        return self.appended_per_s if self._quiet_s < QUIET_S else 0.0

    def look(self, written_bytes: int, under_way: bool, passed_s: float, leads: bool) -> int:
        """How much is new.  A slow disk is no pause of the clients: something is `under_way`."""
        new = written_bytes - self._seen_bytes if leads else 0
        self._seen_bytes = written_bytes
        self._quiet_s = 0.0 if new or under_way else self._quiet_s + passed_s
        weight = min(passed_s / SMOOTH_S, 1.0)
        self.appended_per_s += (new / passed_s - self.appended_per_s) * weight
        return new


class Pace:
    """Tells replicas how many bytes of old entries they may send until they are told again.

    Those that nobody appends to are looked at only while somebody else's clients have to be
    protected, or there is a bound for all.
    """

    def __init__(self, limits: PaceLimits) -> None:
        self._limits = limits
        self._written: dict[HostedReplica, None] = {}
        self._bounded = False
        self._light_per_s = 0.0
        self.busy = False
        # Those whose clients give way.
        self.narrow: dict[HostedReplica, None] = {}

    def wrote(self, each: HostedReplica) -> None:
        """Entries are on their way to its disk."""
        self._written[each] = None

    def tick(self, replicas: Iterable[HostedReplica], passed_s: float) -> None:
        """`passed_s` since the last time."""
        if passed_s <= 0:
            return
        self._look(passed_s)
        bounded = self.busy or self._limits.bytes_per_s_max > 0
        if bounded:
            hosted = list(replicas)
            hungry = max(sum(map(_is_hungry, hosted)), 1)
            for each in hosted:
                each.replica.feed_bytes = self._fed(each, hungry, passed_s)
        elif self._bounded:
            for each in replicas:
                each.replica.feed_bytes = None
        self._bounded = bounded

    def _look(self, passed_s: float) -> None:
        appended_per_s = 0.0
        for each in list(self._written):
            replica, way = each.replica, each.gate.way
            leads = replica.lead is not None
            store = each.store
            new = each.pace.look(store.written_bytes, bool(store.fresh), passed_s, leads)
            appended_per_s += each.pace.protected_per_s
            ends = each.stopped or each.pace.appended_per_s < 1
            way.look(passed_s, new, replica.log.end, None if ends else _foremost(replica))
            if each.gate.narrow:
                self.narrow[each] = None
            if ends:
                del self._written[each]
        self.busy = appended_per_s >= BUSY_BYTES_PER_S
        self._light_per_s = LIGHT_BYTES_PER_S * max(1 - appended_per_s / HEAVY_BYTES_PER_S, 0.0)

    def _fed(self, each: HostedReplica, hungry: int, passed_s: float) -> int:
        limits = self._limits
        most = limits.bytes_per_s_max / hungry if limits.bytes_per_s_max else float("inf")
        if self.busy:
            share = each.pace.protected_per_s * limits.busy_percent / 100 * _behind(each.replica)
            most = min(most, max(share, max(self._light_per_s, LEAST_BYTES_PER_S) / hungry))
        left = each.replica.feed_bytes or 0
        return int(min(left + most * passed_s, max(BURST_BYTES, most * BURST_S)))


def _is_hungry(each: HostedReplica) -> bool:
    lead = each.replica.lead
    return bool(each.replica.asked) or (lead is not None and lead.starving)


def _behind(replica: Replica) -> int:
    """How many have to be fed, at least one."""
    lead = replica.lead
    return max(len(lead.behind(replica.now_ms, HEARD_MS)), 1) if lead is not None else 1


def _foremost(replica: Replica) -> int | None:
    """Where the one is that is next to catch up: they are fed one before the other."""
    lead = replica.lead
    return max(lead.behind(replica.now_ms, HEARD_MS), default=None) if lead is not None else None
