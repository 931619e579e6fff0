"""The comparison as tables: a row for each figure, a column for each system, and the ratios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .arithmetic import best, ratio
from .plan import RATE_HIGH, RATE_LOW

NONE = "-"
OURS = "shardlog"
SUSTAINED_MIN = 0.97


@dataclass(frozen=True, slots=True)
class Column:
    """A system with its figures; the yardstick is one too."""

    name: str
    title: str
    syncs: bool
    figures: Mapping[str, float]
    missing: Mapping[str, str]
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    figure: str
    title: str
    unit: str
    more_is_better: bool
    decimals: int = 0
    needs_rate: int = 0
    """The figure counts only where so many records a second were reached."""


def _offered(rate: int) -> list[Row]:
    return [
        Row(f"offered_{rate}_{key}", f"{rate:,}/s offered, {words}", "ms", False, 1, rate)
        for key, words in (("p50", "p50"), ("p99", "p99"), ("p999", "p99.9"))
    ]


ROWS = [
    Row("saturated_128", "saturated append, 128 B, one client", "records/s", True),
    Row("saturated_1024", "saturated append, 1 KiB, one client", "records/s", True),
    Row("independent", "64 connections, one append in flight each", "appends/s", True),
    Row("lone_p50", "lone append, p50", "ms", False, 2),
    *_offered(RATE_LOW),
    *_offered(RATE_HIGH),
    Row("tail_p50", f"due to read by a tail at {RATE_LOW:,}/s, p50", "ms", False, 1, RATE_LOW),
    Row("tail_p99", "the same, p99", "ms", False, 1, RATE_LOW),
    Row("tail_saturated", "read by a tailing reader beside a saturated writer", "records/s", True),
    Row("cold_read", "cold read of the log from its beginning", "records/s", True),
    Row("pause", "no acknowledgement after kill -9 of the leader", "s", False, 2),
    Row("cpu_saturated", "CPU of all servers, saturated", "s per million", False, 1),
    Row("cpu_offered", f"the same at {RATE_HIGH:,}/s", "s per million", False, 1, RATE_HIGH),
    Row("cpu_client", "CPU of the client, saturated", "s per million", False, 1),
    Row("resident", "memory of all servers", "MiB", False),
]  # fmt: skip


def value_of(column: Column, row: Row) -> float | None:
    """None also for a latency under a rate that was not reached."""
    if row.needs_rate:
        reached = column.figures.get(f"offered_{row.needs_rate}_reached", row.needs_rate)
        if reached < SUSTAINED_MIN * row.needs_rate:
            return None
    return column.figures.get(row.figure)


def cell(column: Column, row: Row) -> str:
    found = value_of(column, row)
    if found is not None:
        return f"{found:,.{row.decimals}f}"
    if row.figure in column.figures:
        reached = column.figures[f"offered_{row.needs_rate}_reached"]
        return f"{reached:,.0f}/s only"
    return NONE


def ratio_cell(columns: Sequence[Column], row: Row, others: Sequence[Column]) -> str:
    ours = next((each for each in columns if each.name == OURS), None)
    if ours is None:
        return NONE
    found = best([value_of(each, row) for each in others], more_is_better=row.more_is_better)
    told = ratio(value_of(ours, row), found, more_is_better=row.more_is_better)
    return NONE if told is None else f"{told:.2f}"


def table(columns: Sequence[Column], bare: Column | None) -> list[str]:
    """In Markdown.  `bare` is the yardstick."""
    others = [each for each in columns if not each.name.startswith(OURS)]
    syncing = [each for each in others if each.syncs]
    shown = [*([bare] if bare else []), *columns]
    headings = ["what", "unit", *(each.title for each in shown),
                "to the best that syncs", "to the best"]  # fmt: skip
    lines = [_line(headings), "|---|---|" + "---:|" * (len(headings) - 2)]
    for row in ROWS:
        cells = [cell(each, row) for each in shown]
        ratios = [ratio_cell(columns, row, syncing), ratio_cell(columns, row, others)]
        lines.append(_line([row.title, row.unit, *cells, *ratios]))
    return lines


def sweep(
    columns: Sequence[Column], heading: str, rows: Sequence[tuple[str, str]], decimals: int = 0
) -> list[str]:
    """Rows of (title, figure); none if nobody has any of them."""
    kept = [each for each in columns if any(figure in each.figures for _, figure in rows)]
    if not kept:
        return []
    lines = [_line([heading, *(each.title for each in kept)]), "|---:|" + "---:|" * len(kept)]
    for title, figure in rows:
        cells = [
            f"{each.figures[figure]:,.{decimals}f}" if figure in each.figures else NONE
            for each in kept
        ]
        lines.append(_line([title, *cells]))
    return lines


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
