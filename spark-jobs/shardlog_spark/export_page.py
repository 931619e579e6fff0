"""What an export has done, as text for terminals and as a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise

from shardlog_spark.charts import Mark, columns
from shardlog_spark.export_book import Run
from shardlog_spark.profile_page import card, document
from shardlog_spark.profile_text import time_text

SHOWN = 60


def text(out: str, runs: Sequence[Run]) -> str:
    """The last run in a few lines; all of them in one."""
    if not runs:
        return f"{out}: nothing to export"
    last = runs[-1]
    lines = [f"{out}: {_sum(runs, 'rows'):,} rows of {len(runs)} runs, "
             f"{_sum(runs, 'rejects'):,} rejects, {_sum(runs, 'late'):,} late"]  # fmt: skip
    for shard, end in sorted(last.ends.items()):
        lines.append(
            f"  {shard:24} [{last.starts.get(shard, 0):,}, {end['offset']:,}): "
            f"{last.rows.get(shard, 0):,} rows, {last.rejects.get(shard, 0):,} rejects, "
            f"{last.late.get(shard, 0):,} late"
        )
    return "\n".join(lines)


def page(out: str, runs: Sequence[Run]) -> str:
    """One HTML file that needs nothing else."""
    last = runs[-SHOWN:]
    facts = [
        ("Rows of each run", lambda run: sum(run.rows.values())),
        ("Rejects of each run", lambda run: sum(run.rejects.values())),
        ("Late records of each run", lambda run: sum(run.late.values())),
        ("Minutes since the run before", _minutes(runs)),
    ]
    cards = [card(title, _plot(title, last, of)) for title, of in facts]
    rows = "".join(
        f"<tr><td>{run.number}</td><td>{time_text(run.until_ms)}</td><td>{escape(shard)}</td>"
        f'<td class="number">{run.starts.get(shard, 0):,}</td>'
        f'<td class="number">{end["offset"]:,}</td>'
        f'<td class="number">{run.rows.get(shard, 0):,}</td>'
        f'<td class="number">{run.rejects.get(shard, 0):,}</td>'
        f'<td class="number">{run.late.get(shard, 0):,}</td></tr>'
        for run in reversed(last)
        for shard, end in sorted(run.ends.items())
    )
    heads = "".join(
        f'<th class="number">{name}</th>' for name in ("from", "to", "rows", "rejects", "late")
    )
    table = f"<table><tr><th>run</th><th>begun</th><th>shard</th>{heads}</tr>{rows}</table>"
    cards.append(card("Runs", f'<div class="scroll">{table}</div>', wide=True))
    return document(f"Export to {out}", f"<div class=cards>{''.join(cards)}</div>")


def _plot(title: str, runs: Sequence[Run], of: Callable[[Run], float]) -> str:
    return columns(title, [
        Mark(str(run.number), of(run), f"run {run.number}, {time_text(run.until_ms)}: {of(run):,g}")
        for run in runs
    ])  # fmt: skip


def _minutes(runs: Sequence[Run]) -> Callable[[Run], float]:
    """How old what was published was, at most, before each run."""
    before = {run.number: earlier.until_ms for earlier, run in pairwise(runs)}
    return lambda run: round((run.until_ms - before.get(run.number, run.until_ms)) / 60_000, 1)


def _sum(runs: Sequence[Run], name: str) -> int:
    return sum(sum(getattr(run, name).values()) for run in runs)
