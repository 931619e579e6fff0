"""What replicas say of themselves: asked when something has changed, is not well, or it is time.

One silence is no news: a call may be late because this process is.  And what was heard a while ago
is no reason to write a status: another operator may have asked since, and two that believe their
own old answers would correct each other for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shardlog.coordinator.driver import Control
from shardlog.coordinator.host import CoordinatorHost
from shardlog.coordinator.reporting import ask_members
from shardlog.protocol.messages import StatusReport
from shardlog.protocol.shard import Shard
from shardlog_operator.ailing import Ailments, ailments, described
from shardlog_operator.planning import Plan
from shardlog_operator.rolling import Replication
from shardlog_operator.settings import OperatorSettings
from shardlog_operator.spec import ShardSpec
from shardlog_operator.status import Observed, Trouble

LOOK_MIN_S = 1.0
FRESH_S = 0.5
SILENT_MIN = 2
"""So many times in a row a leader has to be silent before it counts."""
UNWELL_MAX = 20
NEVER_S = -1e9


@dataclass(slots=True)
class Heard:
    """Of one shard: the record that its replicas were asked about, when, and what they said."""

    record: Shard | None = None
    asked_s: float = NEVER_S
    reports: list[StatusReport] | None = None
    # In a row: looks without a word of the leader, and looks at which not all was well.
    silent: int = 0
    unwell: int = 0
    # How far the leader had committed, with its epoch: at the last look, and at the one before.
    committed: tuple[int, int] | None = None
    committed_before: int | None = None
    # That were told of.
    ailments: Ailments = ()

    def forget(self) -> None:
        """Something happened to a node: ask again, as if for the first time."""
        self.asked_s, self.unwell = NEVER_S, 0


class Looking:
    def __init__(
        self,
        settings: OperatorSettings,
        host: CoordinatorHost,
        control: Control,
        clock_s: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._host = host
        self._control = control
        self._clock_s = clock_s
        # Told after each look, for the gates.
        self.looked: Callable[[], None] = lambda: None
        self._replication: dict[str, tuple[Shard, tuple[str, ...] | None]] = {}

    async def ask(self, record: Shard | None, heard: Heard, *, at_once: bool = False) -> bool:
        """Whether anybody was asked."""
        wait_s = FRESH_S if at_once else self.pause_s(heard)
        same = record is heard.record
        if record is None or (same and self._clock_s() - heard.asked_s < wait_s):
            return False
        fresh = await ask_members(self._host.name, self._control, record)
        leads = any(each.member == record.leader and each.role == "LEADER" for each in fresh)
        heard.silent = 0 if leads else heard.silent + 1
        if leads or not same or heard.silent >= SILENT_MIN:
            heard.reports = fresh
        heard.record, heard.asked_s = record, self._clock_s()
        _remember_commit(record, heard)
        seen = Observed(ShardSpec(record.name, "", 0), record, Plan(), heard.reports,
                        heard.committed_before)  # fmt: skip
        well = seen.fully_replicated and not heard.silent
        heard.unwell = 0 if well else min(heard.unwell + 1, UNWELL_MAX)
        self._replication[record.name] = (record, seen.behind)
        self.looked()
        return True

    def pause_s(self, heard: Heard) -> float:
        """What is not well is asked about soon, and then less and less often."""
        usual_s = self._settings.positions_s
        return min(LOOK_MIN_S * 1.5**heard.unwell, usual_s) if heard.unwell else usual_s

    def observed(
        self,
        spec: ShardSpec,
        record: Shard | None,
        decided: Plan,
        trouble: Trouble | None,
        heard: Heard,
    ) -> Observed:
        reports = heard.reports if record is not None else None
        waiting = self._host.waiting(spec.name)
        return Observed(
            spec,
            record,
            decided,
            reports,
            heard.committed_before,
            trouble,
            described(waiting) if waiting is not None else "",
            f"{self._settings.node_selector},shardlog.dev/pool={spec.pool}",
            ailments(record, waiting, reports or (), heard.ailments),
        )

    def forget(self, name: str) -> None:
        self._replication.pop(name, None)

    def replication(self) -> dict[str, Replication] | None:
        """Of every shard, for the gates; None while the records have not been read."""
        if not self._host.begun.is_set():
            return None
        found = {name: Replication(None, None) for name in self._host.unreadable}
        for name, record in self._host.shards.items():
            asked, behind = self._replication.get(name, (None, None))
            members = frozenset(each.node for each in record.ensemble)
            found[name] = Replication(members, behind if asked is record else None)
        return found


def _remember_commit(record: Shard, heard: Heard) -> None:
    leader = (each for each in heard.reports or () if each.member == record.leader)
    report, before = next(leader, None), heard.committed
    heard.committed = (report.epoch, report.commit) if report else None
    same = before is not None and report is not None and before[0] == report.epoch
    heard.committed_before = before[1] if before is not None and same else None
