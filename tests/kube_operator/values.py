"""Records, specs and places for the pure parts, in few words."""

from __future__ import annotations

from dataclasses import replace

from shardlog.protocol.entry import Member
from shardlog.protocol.history import Span
from shardlog.protocol.messages import CursorStatus, Operation, Reconfiguration, StatusReport
from shardlog.protocol.shard import Joining, Phase, Shard, Status
from shardlog_operator.placing import Place, Places
from shardlog_operator.planning import Situation
from shardlog_operator.spec import ShardSpec


def member(node: str) -> Member:
    return Member(node, 1)


def members(nodes: str) -> tuple[Member, ...]:
    return tuple(member(node) for node in nodes)


def record(
    nodes: str = "abc", leader: str | None = "a", status: Status = Status.STEADY, **fields: object
) -> Shard:
    of = member(leader) if leader else None
    return Shard("orders", status, 4, of, members(nodes), **fields)  # type: ignore[arg-type]


def swapping(old: str, new: str, phase: Phase = Phase.PREPARE, nodes: str = "abc") -> Shard:
    change = Reconfiguration(Operation.SWAP, members(nodes), member(old), member(new))
    return record(nodes, change=change, phase=phase)


def joining(new: str, old: str | None = None, nodes: str = "abc", cancelled: bool = False) -> Shard:
    operation = Operation.SWAP if old else Operation.EXPAND
    way = Joining(operation, member(old) if old else None, new, 1, cancelled)
    return record(nodes, joining=way)


def spec(replicas: int = 3, **fields: object) -> ShardSpec:
    return ShardSpec("orders", "uid-1", 1, replicas, **fields)  # type: ignore[arg-type]


def places(
    alive: str = "abcde",
    lost: dict[str, float] | None = None,
    cordoned: str = "",
    leaving: str = "",
    drained: str = "",
    zones: dict[str, str] | None = None,
    other_pool: str = "",
) -> Places:
    nodes = {}
    for name in {*alive, *(lost or {})}:
        zone = (zones or {}).get(name)
        nodes[name] = Place(
            name,
            pool="other" if name in other_pool else "default",
            lost_s=(lost or {}).get(name),
            cordoned=name in cordoned,
            leaving=name in leaving,
            labels={"zone": zone} if zone else {},
        )
    return Places(nodes, frozenset(drained), node_grace_s=60.0)


def situation(shard: Shard | None, wanted: ShardSpec, there: Places, **hosting: int) -> Situation:
    return Situation(wanted, shard, there, hosting)


def report(
    node: str,
    role: str = "FOLLOWER",
    end: int = 10,
    commit: int = 10,
    acked: dict[str, int] | None = None,
    serving: bool = True,
    lost: str = "",
) -> StatusReport:
    cursors = tuple(
        CursorStatus(member(name), at, False, name in lost) for name, at in (acked or {}).items()
    )
    return StatusReport(
        4, member(node), role, 4, (Span(1, 0), Span(4, 7)), end, commit, member("a"), 5,
        serving and role == "LEADER", serving, members("abc"), cursors,
    )  # fmt: skip


def full(nodes: str, told: list[StatusReport]) -> list[StatusReport]:
    """The same, but `nodes` have no room."""
    return [replace(each, full=each.member.node in nodes) for each in told]


def reports(acked_b: int = 10, acked_c: int = 10) -> list[StatusReport]:
    leader = report("a", "LEADER", acked={"b": acked_b, "c": acked_c})
    return [leader, report("b", end=acked_b), report("c", end=acked_c)]
