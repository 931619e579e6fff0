"""What one sees of the demonstration: a line for each act, and the act that is on.

On a terminal the last line moves; elsewhere, as in CI, every act is one line when it is over.
Everything that stays is kept, and can be written as a picture.
"""

from __future__ import annotations

import io
import re
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

if TYPE_CHECKING:
    from shardlog.demo.story import Outcome

WIDTH = 80
TITLE_WIDTH, DETAIL_WIDTH = 21, 48
_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


class DemoScreen:
    """Shows acts; to be entered while they are on."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True, emoji=False)
        self._kept = Console(
            record=True, file=io.StringIO(), width=WIDTH, highlight=False, force_terminal=True
        )
        self._live: Live | None = None
        self._title = ""
        self._begun = 0.0
        utf = self._console.encoding.lower().startswith("utf")
        self._tick = "✓" if utf else "+"
        self._spinner = Spinner("dots" if utf else "line", style="cyan")

    def __enter__(self) -> Self:
        self._print("[bold]Shardlog[/bold]: a replicated log, on this machine, with real processes")
        self._print("")
        if self._console.is_terminal:
            self._live = Live(console=self._console, transient=True, refresh_per_second=10)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """An act that did not come to its end is shown as such."""
        if self._live is not None:
            self._live.stop()
        if value is not None and self._title:
            self.failed("")

    # --- acts ------------------------------------------------------------------------------------

    def begin(self, title: str) -> None:
        self._title = title
        self._begun = time.monotonic()
        self.live("")

    def live(self, text: str) -> None:
        if self._live is not None:
            shown = Text.assemble((f"{self._title:{TITLE_WIDTH}}", "bold"), text)
            self._spinner.update(text=shown)
            self._live.update(self._spinner)

    def done(self, detail: str) -> None:
        self._end(f"[green]{self._tick}[/green]", detail)

    def failed(self, detail: str) -> None:
        self._end("[red]x[/red]", detail)

    def _end(self, mark: str, detail: str) -> None:
        self._line(mark, detail)
        self._title = ""
        self.live("")

    def _line(self, mark: str, detail: str) -> None:
        padding = " " * max(0, DETAIL_WIDTH - len(Text.from_markup(detail)))
        seconds = f"{time.monotonic() - self._begun:5.1f} s"
        self._print(
            f"{mark} [bold]{self._title:{TITLE_WIDTH}}[/bold]{detail}{padding} [dim]{seconds}[/dim]"
        )

    # --- the end ---------------------------------------------------------------------------------

    def report(self, outcome: Outcome, seconds: float) -> None:
        findings, pauses = outcome.findings, outcome.pauses_s
        assert findings is not None, "the story ends with a check, or fails"
        failover = pauses.pop("failover")
        rows = [
            ("records acknowledged", f"{findings.acknowledged:,}"),
            ("read back", f"{findings.found:,}"),
            ("lost, doubled, moved, foreign", self._counts(outcome)),
            ("without an ack, leader killed", f"{failover:.2f} s"),
            ("without an ack, replicas changed", f"{max(pauses.values()):.2f} s at most"),
            ("all of it", f"{seconds:.0f} s"),
        ]
        self._print("")
        for label, value in rows:
            self._print(f"  {label:34}[bold]{value}[/bold]")
        self._print("")
        if findings.is_good:
            self._print(
                "[green]Every acknowledged record was read back exactly once, and in order.[/green]"
            )
            return
        self._print("[bold red]FAILED: the log is not what was acknowledged.[/bold red]")
        for complaint in findings.complaints():
            self._print(f"[red]  {complaint}[/red]")

    def _counts(self, outcome: Outcome) -> str:
        findings = outcome.findings
        assert findings is not None
        kinds = (findings.missing, findings.doubled, findings.moved, findings.foreign)
        return ", ".join(f"[red]{len(each):,}[/red]" if each else "0" for each in kinds)

    def save_svg(self, path: Path) -> None:
        """One that fetches no fonts from elsewhere."""
        picture = self._kept.export_svg(title="make demo")
        path.write_text(_FONT.sub("", picture), encoding="utf-8")

    def _print(self, markup: str) -> None:
        for console in (self._console, self._kept):
            console.print(markup)
