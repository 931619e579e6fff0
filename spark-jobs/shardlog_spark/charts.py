"""Plots as SVG, by hand: a page with them needs no library and no network.

Colours come from the page, so that they fit its light and its dark look.  Every mark has a title
that a browser shows when it is pointed at, and every plot one for those who do not see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, WIDE, HEIGHT = 480, 1000, 200
"""About as many pixels as they get on a page, so that letters have their size."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 30
_GRID_LINES = 4
_LABELS_MAX = 6
_LETTER = 7
_BAR_ROW = 24


@dataclass(frozen=True, slots=True)
class Mark:
    """A column or a bar: its label on the axis, its value, and what is told about it."""

    label: str
    value: float
    told: str


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of the axis from `start` to `end`."""

    label: str
    start: float
    end: float
    told: str


def columns(title: str, marks: Sequence[Mark]) -> str:
    """Upright, one beside the other, with a scale on the left."""
    top = nice_top(max((mark.value for mark in marks), default=0))
    inner_width, inner_height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
    step = inner_width / max(1, len(marks))
    parts = [_grid(top, inner_height)]
    every = -(-len(marks) // _LABELS_MAX)
    for number, mark in enumerate(marks):
        height = inner_height * mark.value / top
        x, y = _LEFT + number * step, _TOP + inner_height - height
        parts.append(
            f'<rect class="mark" x="{x + step * 0.08:.1f}" y="{y:.1f}" width="{step * 0.84:.1f}" '
            f'height="{height:.1f}"><title>{escape(mark.told)}</title></rect>'
        )
        middle = x + step / 2
        if number % every == 0 and middle + len(mark.label) * _LETTER / 2 < WIDTH:
            parts.append(
                f'<text class="axis" x="{middle:.1f}" y="{HEIGHT - 10}" '
                f'text-anchor="middle">{escape(mark.label)}</text>'
            )
    return _svg(title, WIDTH, HEIGHT, parts)


def bars(title: str, marks: Sequence[Mark]) -> str:
    """Lying, one below the other, each with its label before it and its value behind."""
    most = max((mark.value for mark in marks), default=0) or 1
    label_width, value_width = 130, 70
    inner = WIDTH - label_width - value_width
    parts = []
    for number, mark in enumerate(marks):
        y = number * _BAR_ROW
        length = inner * mark.value / most
        parts.append(
            f'<text class="label" x="{label_width - 8}" y="{y + 16}" text-anchor="end">'
            f"{escape(_cut(mark.label, 16))}</text>"
            f'<rect class="mark" x="{label_width}" y="{y + 4}" width="{max(1.0, length):.1f}" '
            f'height="{_BAR_ROW - 8}"><title>{escape(mark.told)}</title></rect>'
            f'<text class="axis" x="{label_width + length + 6:.1f}" y="{y + 16}">'
            f"{mark.value:,.0f}</text>"
        )
    return _svg(title, WIDTH, max(1, len(marks)) * _BAR_ROW, parts)


def bands(title: str, found: Sequence[Band], ends: tuple[str, str]) -> str:
    """On one line in time, two shades in turns; a gap between them is shown as one."""
    start = min(band.start for band in found)
    span = max(band.end for band in found) - start or 1
    inner = WIDE - 2 * _RIGHT
    parts = []
    for number, band in enumerate(found):
        x = _RIGHT + inner * (band.start - start) / span
        width = max(2.0, inner * (band.end - band.start) / span)
        kind = "mark" if number % 2 == 0 else "mark other"
        parts.append(
            f'<rect class="{kind}" x="{x:.1f}" y="6" width="{width:.1f}" height="34">'
            f"<title>{escape(band.told)}</title></rect>"
        )
        if width > 9 * len(band.label):
            parts.append(
                f'<text class="on" x="{x + width / 2:.1f}" y="28" text-anchor="middle">'
                f"{escape(band.label)}</text>"
            )
    parts.append(f'<text class="axis" x="{_RIGHT}" y="58">{escape(ends[0])}</text>')
    parts.append(
        f'<text class="axis" x="{WIDE - _RIGHT}" y="58" text-anchor="end">{escape(ends[1])}</text>'
    )
    return _svg(title, WIDE, 66, parts)


def nice_top(most: float) -> float:
    """A round number at or above it, which the grid divides evenly."""
    if most <= 0:
        return 1
    power = 1.0
    while power * 10 <= most:
        power *= 10
    while power > most:
        power /= 10
    return next(power * each for each in (1, 2, 4, 8, 10) if power * each >= most)


def _grid(top: float, inner_height: float) -> str:
    found = []
    for number in range(_GRID_LINES + 1):
        y = _TOP + inner_height * (1 - number / _GRID_LINES)
        found.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="axis" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
            f"{_short(top * number / _GRID_LINES)}</text>"
        )
    return "".join(found)


def _short(value: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g}"


def _cut(label: str, most: int) -> str:
    return label if len(label) <= most else f"{label[: most - 1]}…"


def _svg(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
    )
