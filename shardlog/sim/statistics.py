"""Counts of what happened, so that a run that tested nothing is noticed."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from shardlog.protocol.shard import Phase, Shard, Status


@dataclass(slots=True)
class Statistics:
    """All counters of one run, or of many runs added up."""

    messages: int = 0
    elections: int = 0
    changes: dict[str, int] = field(default_factory=dict)
    crashes: int = 0
    coordinator_crashes: int = 0
    faults: int = 0
    disk_faults: int = 0
    lost_disks: int = 0
    clock_steps: int = 0
    conflicts: int = 0
    store_unanswered: int = 0
    store_late: int = 0
    operations: int = 0
    sessions_lost: int = 0
    accepted: int = 0
    rejected: int = 0
    out_of_reach: int = 0
    deletions: int = 0
    drains: int = 0
    handed_over: int = 0
    destroyed: int = 0
    given_up: int = 0
    damaged: int = 0
    virtual_ms: int = 0
    restores: int = 0
    halts: int = 0
    parted: int = 0

    @property
    def changes_done(self) -> int:
        """Finished, not given up."""
        return sum(count for kind, count in self.changes.items() if kind != "abort")

    @property
    def size(self) -> tuple[int, int, int]:
        """Messages, elections, reconfigurations finished: what makes a run worth its while."""
        return self.messages, self.elections, self.changes_done

    def count(self, before: Shard | None, after: Shard) -> None:
        """The record changed."""
        if before is None:
            return
        if after.status is Status.STEADY and before.status is not Status.STEADY:
            self.elections += 1
        if before.change is not None and after.change is None:
            done = before.phase is Phase.COMMIT and after.ensemble == before.change.after
            kind = before.change.operation.value if done else "abort"
            self.changes[kind] = self.changes.get(kind, 0) + 1

    def add(self, other: Statistics) -> None:
        for each in fields(self):
            if each.name != "changes":
                total = getattr(self, each.name) + getattr(other, each.name)
                setattr(self, each.name, total)
        for kind, count in other.changes.items():
            self.changes[kind] = self.changes.get(kind, 0) + count

    def lines(self) -> list[str]:
        changes = " ".join(f"{kind} {count}" for kind, count in sorted(self.changes.items()))
        return [
            f"{each.name.replace('_', ' ')}: "
            + (
                f"{changes or 'none'}"
                if each.name == "changes"
                else f"{getattr(self, each.name):,}"
            )
            for each in fields(self)
        ]
