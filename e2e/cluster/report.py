"""What the scenarios came to, as a person would ask: how long no write got through, how long until
all was well again, how many elections.  It is written as text and as JSON when the run ends."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Line:
    """`epochs` counts elections and changes of the ensemble, each of which begins one.

    `ready_s` is from the last fault on, or where there is none from the making of the Shard on.
    """

    scenario: str
    records: int
    reads: int
    pause_ms: float
    ready_s: float | None
    elections: int
    epochs: int
    proofs: tuple[str, ...]
    took_s: float


@dataclass(slots=True)
class Report:
    lines: list[Line] = field(default_factory=list)
    failures: dict[str, dict[str, str]] = field(default_factory=dict)

    def passed(self, line: Line) -> None:
        self.lines.append(line)

    def failed(self, scenario: str, why: str, diagnostics: Path) -> None:
        self.failures[scenario] = {"why": why, "diagnostics": str(diagnostics)}

    def text(self) -> str:
        rows = [
            "| scenario | records | reads | longest write pause | until Ready | elections "
            "| new epochs |",
            "|---|---:|---:|---:|---:|---:|---:|",
        ]
        for line in self.lines:
            ready = "" if line.ready_s is None else f"{line.ready_s:.1f} s"
            rows.append(
                f"| {line.scenario} | {line.records} | {line.reads} "
                f"| {line.pause_ms / 1000:.2f} s | {ready} | {line.elections} | {line.epochs} |"
            )
        for scenario, failure in self.failures.items():
            rows.append(f"FAILED {scenario}: {failure['why']} (see {failure['diagnostics']})")
        return "\n".join(rows) + "\n"

    def write(self, directory: Path) -> None:
        document = {"scenarios": [asdict(line) for line in self.lines], "failures": self.failures}
        (directory / "e2e-report.json").write_text(json.dumps(document, indent=2) + "\n")
        (directory / "e2e-report.txt").write_text(self.text())
