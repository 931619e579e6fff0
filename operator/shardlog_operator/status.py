"""A Shard's status: what the record, the replicas' own reports and the plan say, for people.

Pure.  Nothing is ever decided by a status: the record in the metadata store is the truth, and a
status that was lost is written again from it.  Positions change with every append, so they alone
are not worth a write; `is_worth_writing` says when one is due.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardlog.protocol.entry import Member
from shardlog.protocol.messages import StatusReport
from shardlog.protocol.shard import Shard, Status
from shardlog_operator.ailing import FULL, Ailments
from shardlog_operator.conditions import Condition, Truth, merged
from shardlog_operator.planning import Plan, described
from shardlog_operator.spec import ShardSpec

Json = Any
POSITIONS = ("head", "commit", "lag")


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a record cannot be acted on at all by this operator."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Observed:
    """What is known of a shard when its status is made.

    `reports` are None while nobody was asked.  `committed_before` is how far the leader had
    committed at an earlier look: whoever holds that keeps up, however much is written meanwhile.
    """

    spec: ShardSpec
    record: Shard | None
    plan: Plan
    reports: Sequence[StatusReport] | None = None
    committed_before: int | None = None
    trouble: Trouble | None = None
    election_waits: str = ""
    selector: str = ""
    ailments: Ailments = ()

    @property
    def leader_report(self) -> StatusReport | None:
        """Of the leader that the record names, if it knows that it leads."""
        record = self.record
        if record is None or record.leader is None or self.reports is None:
            return None
        of_leader = (each for each in self.reports if each.member == record.leader)
        return next((each for each in of_leader if each.role == "LEADER"), None)

    @property
    def behind(self) -> tuple[str, ...] | None:
        """Nodes of members that do not hold all that is committed; None if nobody can tell."""
        report, record = self.leader_report, self.record
        if report is None or record is None:
            return None
        needed = min(report.commit, self.committed_before or report.commit)
        fine = {each.member for each in report.cursors if not each.lost and each.acked >= needed}
        fine.add(report.member)
        return tuple(each.node for each in record.ensemble if each not in fine)

    @property
    def too_full(self) -> bool:
        """Whether so many members wait for room that nothing can be appended."""
        if self.record is None:
            return False
        size = len(self.record.ensemble)
        full = {each.member for each in self.reports or () if each.full}
        room = [each for each in self.record.ensemble if each not in full]
        return len(room) < self.record.quorum.of(size).replication

    @property
    def fully_replicated(self) -> bool:
        return self.behind == ()


def build(seen: Observed, before: Json, at: str) -> Json:
    """The whole status; what is not known now is left out, but for an unreadable record."""
    spec, record = seen.spec, seen.record
    conditions = merged(before.get("conditions") or (), _conditions(seen), spec.generation, at)
    told: Json = {
        "observedGeneration": spec.generation,
        "phase": phase(seen, before),
        "selector": seen.selector,
        "conditions": conditions,
    }
    waiting = waiting_for(seen)
    if waiting:
        told["waitingFor"] = waiting
    if record is None:
        if seen.trouble is None:
            return told | {"replicas": 0}
        kept = {name: value for name, value in before.items() if name not in told}
        return {name: value for name, value in kept.items() if name != "waitingFor"} | told
    told |= {
        "epoch": record.epoch,
        "replicas": len(record.ensemble),
        "ensemble": ensemble(seen),
    }
    if record.leader:
        told["leader"] = record.leader.node
    change = _reconfiguration(record)
    if change:
        told["reconfiguration"] = change
    report = seen.leader_report
    if report is not None:
        told["commitOffset"] = report.commit
        told["history"] = [{"epoch": each.epoch, "first": each.first} for each in report.history]
    elif before.get("epoch") == record.epoch:
        told |= {name: before[name] for name in ("commitOffset", "history") if name in before}
    return told


def phase(seen: Observed, before: Json) -> str:
    spec, record = seen.spec, seen.record
    if spec.deleting:
        return "Deleting"
    if record is None:
        if seen.trouble is not None:
            return str(before.get("phase") or "Pending")
        return "Paused" if spec.paused else "Pending"
    if record.halted:
        return "Halted"
    match record.status:
        case Status.CREATING:
            return "Creating"
        case Status.ELECTION:
            return "Electing"
        case Status.DELETING:
            return "Deleting"
    if record.change or record.joining:
        return "Reconfiguring"
    if spec.paused:
        return "Paused"
    scaling = len(record.ensemble) != spec.replicas and not spec.scaling_aborted
    return "Reconfiguring" if scaling else "Steady"


def waiting_for(seen: Observed) -> str:
    if seen.trouble is not None:
        return seen.trouble.message
    if seen.ailments:
        return seen.ailments[0].message
    if seen.election_waits:
        return seen.election_waits
    return seen.plan.waiting.message if seen.plan.waiting else ""


# --- members -------------------------------------------------------------------------------------


def ensemble(seen: Observed) -> list[Json]:
    """Members, then who is on its way in, then who is still to be destroyed."""
    record = seen.record
    assert record is not None
    found = [_member(seen, each, _role(record, each)) for each in record.ensemble]
    new = record.change.new if record.change else None
    if new is not None and new not in record.ensemble:
        found.append(_member(seen, new, "Standby"))
    if record.joining is not None and record.joining.member not in record.ensemble:
        found.append(_member(seen, record.joining.member, "Standby"))
    found += [_member(seen, each, "Leaving") for each in record.removed]
    return found


def _role(record: Shard, member: Member) -> str:
    if member == record.leader:
        return "Leader"
    if record.change and record.change.old == member:
        return "Leaving"
    return "Follower" if record.leader else "Unknown"


def _member(seen: Observed, member: Member, role: str) -> Json:
    told: Json = {"node": member.node, "role": role, "incarnation": str(member.incarnation)}
    report = next((each for each in seen.reports or () if each.member == member), None)
    if report is None:
        return told | {"state": "NoAnswer" if seen.reports is not None else "Unknown"}
    leading = seen.leader_report
    told |= {"state": _state(report), "head": report.end, "commit": report.commit}
    if leading is not None:
        told["lag"] = max(0, leading.end - report.end)
    return told


def _state(report: StatusReport) -> str:
    """LEADER as Leader, by the replica's own word."""
    if report.full:
        return "Full"
    if report.draining:
        return "Draining"
    return report.role.capitalize()


def _reconfiguration(record: Shard) -> Json:
    change, joining = record.change, record.joining
    if change is not None and record.phase is not None:
        told: Json = {
            "operation": change.operation.value.capitalize(),
            "phase": record.phase.value.capitalize(),
        }
        old, new = change.old, change.new.node if change.new else None
    elif joining is not None:
        told = {
            "operation": joining.operation.value.capitalize(),
            "phase": "Cancelled" if joining.cancelled else "Joining",
        }
        old, new = joining.old, joining.node
    else:
        return None
    if old is not None:
        told["oldNode"] = old.node
    if new is not None:
        told["newNode"] = new
    return told


# --- conditions ----------------------------------------------------------------------------------


def _conditions(seen: Observed) -> list[Condition]:
    if seen.trouble is not None:
        reason, message = seen.trouble.reason, seen.trouble.message
        names = ("Ready", "Available", "FullyReplicated")
        found = [Condition(name, Truth.UNKNOWN, reason, message) for name in names]
        return [*found, Condition("Reconfiguring", Truth.FALSE, reason, message)]
    available, replicated = _available(seen), _fully_replicated(seen)
    found = [_ready(seen, available), available, replicated, _reconfiguring(seen)]
    if seen.record is not None and seen.record.halted:
        found.append(Condition("Halted", Truth.TRUE, "Halted", seen.record.halted))
    return found


def _ready(seen: Observed, available: Condition) -> Condition:
    """Whether the shard serves as its spec asks for."""
    spec, record, waiting = seen.spec, seen.record, seen.plan.waiting
    if spec.deleting:
        return Condition("Ready", Truth.FALSE, "Deleting", "its deletion was asked for")
    if record is None:
        reason, message = (waiting.reason, waiting.message) if waiting else ("Creating", "")
        return Condition("Ready", Truth.FALSE, reason, message)
    if record.halted:
        return Condition("Ready", Truth.FALSE, "Halted", record.halted)
    if available.status is not Truth.TRUE:
        return Condition("Ready", available.status, available.reason, available.message)
    if seen.ailments:
        worst = seen.ailments[0]
        return Condition("Ready", Truth.FALSE, worst.reason, worst.message)
    size = len(record.ensemble)
    if size != spec.replicas:
        reason = waiting.reason if waiting else "Scaling"
        message = f"{size} of {spec.replicas} replicas"
        told = f"{message}: {waiting.message}" if waiting else message
        return Condition("Ready", Truth.FALSE, reason, told)
    return Condition("Ready", Truth.TRUE, "AsWanted", available.message)


def _available(seen: Observed) -> Condition:
    """Whether it can be appended to."""
    record = seen.record
    if record is None:
        return Condition("Available", Truth.FALSE, "NotCreated", "there is no shard yet")
    if record.status is Status.DELETING:
        return Condition("Available", Truth.FALSE, "Deleting", "its replicas are destroyed")
    if record.leader is None or record.status is not Status.STEADY:
        if seen.ailments:
            worst = seen.ailments[0]
            return Condition("Available", Truth.FALSE, worst.reason, worst.message)
        told = seen.election_waits or f"a leader is elected in epoch {record.epoch}"
        reason = "Creating" if record.status is Status.CREATING else "Electing"
        return Condition("Available", Truth.FALSE, reason, told)
    leader, report = record.leader.node, seen.leader_report
    if report is None:
        told = f"{leader} leads epoch {record.epoch}, and does not say so now"
        return Condition("Available", Truth.UNKNOWN, "NoAnswer", told)
    if seen.too_full:
        told = next(each.message for each in seen.ailments if each.reason == FULL)
        return Condition("Available", Truth.FALSE, FULL, told)
    if report.serving and report.quorum_fresh:
        told = f"{leader} leads epoch {record.epoch}"
        return Condition("Available", Truth.TRUE, "LeaderServes", told)
    told = f"{leader} leads epoch {record.epoch}, and does not hear a quorum"
    return Condition("Available", Truth.FALSE, "NoQuorum", told)


def _fully_replicated(seen: Observed) -> Condition:
    name, record = "FullyReplicated", seen.record
    if record is None:
        return Condition(name, Truth.FALSE, "NotCreated", "there is no shard yet")
    size, wanted = len(record.ensemble), seen.spec.replicas
    if size < wanted:
        return Condition(name, Truth.FALSE, "TooFewReplicas", f"{size} of {wanted} replicas")
    behind = seen.behind
    for worst in seen.ailments:
        if worst.reason != FULL or behind:
            return Condition(name, Truth.FALSE, worst.reason, worst.message)
    if behind is None:
        return Condition(name, Truth.UNKNOWN, "NoAnswer", "the leader does not say")
    if behind:
        told = f"not all that is committed is held by {', '.join(behind)}"
        return Condition(name, Truth.FALSE, "ReplicasBehind", told)
    return Condition(name, Truth.TRUE, "AllCaughtUp", f"{size} replicas hold all that is committed")


def _reconfiguring(seen: Observed) -> Condition:
    record, waiting = seen.record, seen.plan.waiting
    if record is not None and (record.change or record.joining):
        operation = (record.change or record.joining).operation  # type: ignore[union-attr]
        reason = operation.value.capitalize()
        return Condition("Reconfiguring", Truth.TRUE, reason, described(record))
    if waiting is not None and waiting.reason == "Aborted":
        return Condition("Reconfiguring", Truth.FALSE, waiting.reason, waiting.message)
    return Condition("Reconfiguring", Truth.FALSE, "NoChange", "")


# --- writing -------------------------------------------------------------------------------------


def without_positions(status: Json) -> Json:
    """What a person would call a change."""
    members = [
        {name: value for name, value in each.items() if name not in POSITIONS}
        for each in status.get("ensemble") or ()
    ]
    rest = {name: value for name, value in status.items() if name != "commitOffset"}
    return rest | {"ensemble": members}


def is_worth_writing(before: Json, now: Json, positions_due: bool) -> bool:
    if without_positions(before) != without_positions(now):
        return True
    return positions_due and before != now
