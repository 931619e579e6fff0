"""Which nodes may host replicas of a shard, and which must not any more, and why.

Pure: every operator that sees the same nodes comes to the same answer.  A node that is lost is left
alone for a grace period, since most come back; one that a person drains, or whose machine is
cordoned, is left at once, but nothing is taken from it before another holds it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from shardlog.coordinator.scaling import candidates_of
from shardlog.protocol.placement import Candidate, to_add
from shardlog.protocol.shard import Shard
from shardlog_operator.spec import ShardSpec


@dataclass(frozen=True, slots=True)
class Place:
    """A node as far as placement cares; `lost_s` is for how long it has not been alive."""

    node: str
    pool: str = "default"
    lost_s: float | None = None
    cordoned: bool = False
    # Its pod is about to go, or next in a roll: it comes back, but shall not lead meanwhile.
    leaving: bool = False
    machine: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        return self.lost_s is None

    def domain(self, topology_key: str) -> str:
        """What is known of the machine decides; a node of which nothing is known stands alone."""
        return self.labels.get(topology_key) or self.machine or self.node


@dataclass(frozen=True, slots=True)
class Places:
    """All nodes there are, and those that somebody drains."""

    nodes: Mapping[str, Place]
    drained: frozenset[str] = frozenset()
    node_grace_s: float = 60.0

    def usable(self, spec: ShardSpec) -> list[str]:
        """Those that may host one more replica, in the order of their names."""
        return [
            name
            for name, place in sorted(self.nodes.items())
            if place.pool == spec.pool
            and place.alive
            and not place.cordoned
            and not place.leaving
            and name not in self.drained
        ]

    def domains(self, spec: ShardSpec) -> dict[str, str]:
        return {name: place.domain(spec.topology_key) for name, place in self.nodes.items()}

    def is_alive(self, node: str) -> bool:
        place = self.nodes.get(node)
        return place is not None and place.alive

    def may_lead(self, node: str) -> bool:
        place = self.nodes.get(node)
        fit = place is not None and place.alive and not place.cordoned and not place.leaving
        return fit and node not in self.drained

    def must_leave(self, node: str) -> str | None:
        """Why a replica must not stay on a node; None if it may."""
        place = self.nodes.get(node)
        if place is not None and place.lost_s is not None and place.lost_s >= self.node_grace_s:
            return "NodeLost"
        if node in self.drained:
            return "NodeDrained"
        if place is not None and place.cordoned:
            return "NodeCordoned"
        return None

    def grace_left_s(self, node: str) -> float | None:
        """How long a lost node is still waited for."""
        place = self.nodes.get(node)
        if place is None or place.lost_s is None or place.lost_s >= self.node_grace_s:
            return None
        return self.node_grace_s - place.lost_s


WORDS = {
    "NodeLost": "is lost for longer than the grace period",
    "NodeDrained": "is drained",
    "NodeCordoned": "stands on a machine that is cordoned",
}


def candidates(
    spec: ShardSpec, places: Places, hosting: Mapping[str, int], also: Collection[str] = ()
) -> list[Candidate]:
    """The usable nodes, and `also` others, whose failure domains count though they are not."""
    names = dict.fromkeys([*places.usable(spec), *sorted(also)])
    return candidates_of(names, hosting, places.domains(spec))


def node_for(
    spec: ShardSpec, shard: Shard, places: Places, hosting: Mapping[str, int], instead_of: str
) -> str | None:
    """Where a replica goes that leaves `instead_of`; None if there is no node for it now."""
    staying = [member.node for member in shard.ensemble if member.node != instead_of]
    barred = {member.node for member in (*shard.ensemble, *shard.removed)}
    usable = set(places.usable(spec)) - barred
    known = [
        each
        for each in candidates(spec, places, hosting, also=staying)
        if each.node in usable or each.node in staying
    ]
    return to_add(known, staying)


def successor(shard: Shard, places: Places, replicas: Mapping[str, int]) -> str | None:
    """The member to lead in place of the leader: one on a node that stays."""
    leader = shard.leader.node if shard.leader else None
    fit = [each.node for each in shard.ensemble if each.node != leader]
    fit = [node for node in fit if places.may_lead(node) and not places.must_leave(node)]
    return min(fit, key=lambda node: (replicas.get(node, 0), node), default=None)


def alive_members(shard: Shard, places: Places, but: str = "") -> Sequence[str]:
    nodes = [member.node for member in shard.ensemble if member.node != but]
    return [node for node in nodes if places.is_alive(node)]
