"""From the number of replicas that is wanted to the next command, one step at a time.

Pure: whoever reconciles asks again when the record has changed, and any number of them may ask at
once, because all come to the same answer and only one compare-and-swap stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from shardlog.protocol.coordination import Command, Contract, Expand, Promote
from shardlog.protocol.placement import Candidate, to_add, to_remove
from shardlog.protocol.shard import Shard, Status

NO_DOMAINS: Mapping[str, str] = MappingProxyType({})


class TooFewNodes(Exception):  # noqa: N818 - named after what is the matter
    """More replicas are wanted than there are nodes to host them."""

    def __init__(self, wanted: int, there: int) -> None:
        super().__init__(f"{wanted} replicas need {wanted} nodes, there are {there}")
        self.wanted = wanted
        self.there = there


def count_replicas(shards: Iterable[Shard]) -> Counter[str]:
    """How many replicas each node hosts, those on their way in or out among them."""
    counts: Counter[str] = Counter()
    for shard in shards:
        hosts = {member.node for member in (*shard.ensemble, *shard.removed)}
        if shard.change and shard.change.new:
            hosts.add(shard.change.new.node)
        if shard.joining:
            hosts.add(shard.joining.node)
        counts.update(hosts)
    return counts


def choose_nodes(
    wanted: int,
    nodes: Sequence[str],
    replicas_per_node: Mapping[str, int],
    domains: Mapping[str, str] = NO_DOMAINS,
) -> tuple[str, ...]:
    """Where to create a shard: spread over failure domains, the nodes with the fewest replicas."""
    _require_some(wanted)
    candidates = candidates_of(nodes, replicas_per_node, domains)
    chosen: list[str] = []
    while len(chosen) < wanted:
        node = to_add(candidates, chosen)
        if node is None:
            raise TooFewNodes(wanted, len(chosen))
        chosen.append(node)
    return tuple(chosen)


def next_command(
    shard: Shard,
    wanted: int,
    nodes: Sequence[str],
    replicas_per_node: Mapping[str, int],
    domains: Mapping[str, str] = NO_DOMAINS,
) -> Command | None:
    """The next step; None if there is none, or none can be taken now.

    `nodes` are those that may host replicas: members on others are the first to go.
    """
    _require_some(wanted)
    ready = shard.status is Status.STEADY and shard.leader and not shard.halted
    if not ready or shard.change or shard.joining:
        return None
    candidates = candidates_of(nodes, replicas_per_node, domains)
    if len(shard.ensemble) < wanted:
        return _expand(shard, candidates)
    if len(shard.ensemble) > wanted:
        return _contract(shard, candidates)
    return None


def _expand(shard: Shard, candidates: Sequence[Candidate]) -> Command | None:
    """A node whose former replica is still being destroyed cannot host another one yet."""
    taken = {member.node for member in (*shard.ensemble, *shard.removed)}
    node = to_add(candidates, taken)
    return Expand(node) if node else None


def _contract(shard: Shard, candidates: Sequence[Candidate]) -> Command | None:
    """The leader is never given up: where it is the one to go, another leads first (rule 11)."""
    members = [member.node for member in shard.ensemble]
    leader = shard.leader.node if shard.leader else None
    allowed = [each.node for each in candidates]
    strangers = [node for node in members if node not in allowed]
    if strangers == [leader]:
        successors = [each for each in candidates if each.node in members]
        successor = min(successors, key=lambda each: (each.replicas, each.node), default=None)
        return Promote(successor.node) if successor else None
    node = to_remove(candidates, members, leader)
    return Contract(node) if node else None


def candidates_of(
    nodes: Iterable[str], replicas_per_node: Mapping[str, int], domains: Mapping[str, str]
) -> list[Candidate]:
    """A node of which nothing else is said is a failure domain of its own."""
    return [
        Candidate(node, domains.get(node, node), replicas_per_node.get(node, 0)) for node in nodes
    ]


def _require_some(wanted: int) -> None:
    if wanted < 1:
        raise ValueError(f"{wanted} replicas: a shard has one at least")
