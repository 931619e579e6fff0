"""One reconfiguration, played as often as it has steps, with a death after each."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from scenarios.words import member, members, stage_of
from shardlog.sim.stage import WRITE

if TYPE_CHECKING:
    from scenarios.script import Director

CHANGE_MS_MAX = 20_000
UNREMARKABLE = ("StatusRequest", "StatusReport", "Heartbeat")


class Play:
    """One reconfiguration on a stage of its own, with a write before it and one after."""

    def __init__(self, director: "Director", command: str) -> None:
        self.director = director
        self.command = command
        self.stage = director.stage
        self._do("start A B C", "append x at A", "run 100")

    def _do(self, *commands: str) -> None:
        for command in commands:
            self.director.perform(command)

    def _settled(self) -> bool:
        record = self.stage.record
        if record is None or record.leader is None or not self.stage.nodes[record.leader.node].up:
            return False
        return not (record.change or record.joining or record.removed)

    def _run(self) -> None:
        """Until the change is over, or for long enough."""
        for _ in range(CHANGE_MS_MAX // 500):
            self._do("run 500")
            if self._settled():
                return

    def steps_of(self, victim: str) -> list[tuple[str, int]]:
        """Every write, and the first message of each kind."""
        before = len(self.stage.acts)
        self._do(self.command)
        self._run()
        kinds = [kind for name, kind in self.stage.acts[before:] if name == victim]
        steps: list[tuple[str, int]] = []
        for kind in kinds:
            if kind == WRITE:
                steps.append((kind, 1 + sum(1 for each, _ in steps if each == WRITE)))
            elif kind not in UNREMARKABLE and (kind, 1) not in steps:
                steps.append((kind, 1))
        return steps

    def without(self, victim: str, kind: str, count: int, back_ms: int) -> tuple[str, ...]:
        """A row of the table: the victim is gone, and what comes of it."""
        self._do(f"crash {victim} after {kind} {count}", self.command)
        for _ in range(CHANGE_MS_MAX // 50):
            if not self.stage.actor(victim).up:
                break
            self._do("run 50")
        label = kind
        if kind == WRITE and self.stage.record:
            label = f"writing v{self.stage.version}: {stage_of(self.stage.record)}"
        if victim in self.stage.operators:
            self._do("boot op2")
        if back_ms:
            self._do(f"run {back_ms}", f"restart {victim}")
        self._run()
        return (label, *self._end())

    def _end(self) -> tuple[str, ...]:
        record = self.stage.record
        assert record is not None
        left = [str(record.phase)] if record.phase else []
        left += [f"joining {record.joining.node}"] if record.joining else []
        left += [f"to destroy {members(record.removed)}"] if record.removed else []
        return (
            str(record.epoch),
            member(record.leader),
            members(record.ensemble),
            ", ".join(left) or "-",
            self._read(record.leader.node if record.leader else ""),
        )

    def _read(self, leader: str) -> str:
        if not leader or not self.stage.nodes[leader].up:
            return "nothing, for there is no leader"
        self._do(f"append y at {leader}", "run 200", f"read from 0 at {leader}")
        found = re.search(r"read (.+); commit", "\n".join(self.director.perform("run 200")))
        return found[1] if found else "nothing"


def table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
