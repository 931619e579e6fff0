"""Placement: which node to add, and which to give up.

Spread first (as few replicas of a shard as possible in one failure domain), then load, then name,
so that every coordinator that looks at the same cluster chooses the same node.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node, the failure domain it stands in, and how many replicas it hosts."""

    node: str
    domain: str
    replicas: int


def to_add(candidates: Sequence[Candidate], ensemble: Collection[str]) -> str | None:
    """The node that should host one more replica of a shard that is on `ensemble`."""
    taken = [each.domain for each in candidates if each.node in ensemble]
    free = [each for each in candidates if each.node not in ensemble]
    best = min(
        free, key=lambda each: (taken.count(each.domain), each.replicas, each.node), default=None
    )
    return best.node if best else None


def to_remove(
    candidates: Sequence[Candidate], ensemble: Sequence[str], leader: str | None
) -> str | None:
    """The member that the shard should give up: never the leader."""
    known = {each.node: each for each in candidates}
    domains = [known[node].domain for node in ensemble if node in known]

    def cost(node: str) -> tuple[int, int, str]:
        place = known.get(node)
        if place is None:
            return (-len(domains) - 1, 0, node)
        return (-domains.count(place.domain), -place.replicas, node)

    return min((node for node in ensemble if node != leader), key=cost, default=None)
