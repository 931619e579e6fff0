"""The figures as pictures: SVG, the same bytes for the same figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .arithmetic import slope
from .table import OURS, SUSTAINED_MIN, Column

Points = list[tuple[float, float]]
COLOURS = {
    "shardlog": "#0b6e4f", "shardlog-relaxed": "#6bbf9b", "kafka": "#8c8c8c",
    "kafka-flush": "#3d3d3d", "nats": "#7fb2e5", "nats-sync": "#1f5fa8", "etcd": "#d98c21",
}  # fmt: skip


def plots(columns: Sequence[Column], directory: Path) -> list[tuple[str, str]]:
    """Those there are figures for: the name of each file, and what it shows."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "shardlog"
    directory.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, title, draw in _ALL:
        figure, axes = _empty(title)
        if draw(axes, columns):
            figure.savefig(directory / name, metadata={"Date": None, "Creator": None})
            drawn.append((name, title))
        _close(figure)
    return drawn


def _empty(title: str) -> tuple[Any, Any]:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 4.2), layout="constrained")
    axes.set_title(title, fontsize=11)
    axes.grid(True, which="both", linewidth=0.3)
    axes.set_axisbelow(True)
    return figure, axes


def _close(figure: Any) -> None:
    from matplotlib import pyplot

    pyplot.close(figure)


def _lines(axes: Any, columns: Sequence[Column], points: Callable[[Column], Points], x: str,
           y: str, *, slopes: bool = True) -> bool:  # fmt: skip
    """One line for each system; the legend names its slope on logarithmic axes."""
    drawn = False
    for column in columns:
        found = points(column)
        if not found:
            continue
        power = slope(found) if slopes else None
        label = column.title if power is None else f"{column.title} (slope {power:+.2f})"
        width = 2 if column.name == OURS else 1
        axes.plot(
            *zip(*found, strict=True), marker="o", label=label, linewidth=width,
            color=COLOURS.get(column.name),
        )  # fmt: skip
        drawn = True
    axes.set(xlabel=x, ylabel=y, xscale="log", yscale="log")
    if drawn:
        axes.legend(fontsize=8)
    return drawn


def _bars(axes: Any, columns: Sequence[Column], figure: str, x: str) -> bool:
    kept = [each for each in columns if figure in each.figures]
    values = [each.figures[figure] for each in kept]
    bars = axes.barh([each.title for each in kept], values,
                     color=[COLOURS.get(each.name) for each in kept])  # fmt: skip
    axes.bar_label(bars, [f"{value:.2f}" for value in values], padding=3, fontsize=8)
    axes.invert_yaxis()
    axes.set(xlabel=x)
    return bool(kept)


def _numbered(column: Column, prefix: str, suffix: str = "") -> Points:
    """Figures whose name has a number between these."""
    found: Points = []
    for name, value in column.figures.items():
        if name.startswith(prefix) and name.endswith(suffix):
            number = name[len(prefix) : len(name) - len(suffix) or None]
            if number.isdigit() and value > 0:
                found.append((float(number), value))
    return sorted(found)


def _latency(axes: Any, columns: Sequence[Column]) -> bool:
    def points(column: Column) -> Points:
        return [
            (rate, p99)
            for rate, p99 in _numbered(column, "offered_", "_p99")
            if column.figures.get(f"offered_{rate:.0f}_reached", rate) >= SUSTAINED_MIN * rate
        ]

    return _lines(axes, columns, points, "records/s offered and reached", "p99, ms", slopes=False)


def _shards(axes: Any, columns: Sequence[Column]) -> bool:
    def points(column: Column) -> Points:
        one = column.figures.get("saturated_128")
        many = _numbered(column, "shards_")
        return [*([(1.0, one)] if one and many else []), *many]

    return _lines(axes, columns, points, "shards", "records/s of 128 B, saturated")


def _sizes(axes: Any, columns: Sequence[Column]) -> bool:
    return _lines(axes, columns, _size_points, "bytes in a record", "MB/s")


def _size_points(column: Column) -> Points:
    middle = column.figures.get("saturated_128")
    found = _numbered(column, "size_")
    return sorted([*found, *([(128.0, middle * 128 / 1e6)] if middle and found else [])])


def _replicas(axes: Any, columns: Sequence[Column]) -> bool:
    def points(column: Column) -> Points:
        three, more = column.figures.get("saturated_128"), _numbered(column, "replicas_")
        return [*([(3.0, three)] if three and more else []), *more]

    return _lines(axes, columns, points, "replicas", "records/s of 128 B, saturated")


def _log(axes: Any, columns: Sequence[Column]) -> bool:
    points = lambda column: _numbered(column, "log_")  # noqa: E731 - a line of a table
    return _lines(axes, columns, points, "MiB in the log", "records/s of 128 B, saturated")


_ALL: list[tuple[str, str, Callable[[Any, Sequence[Column]], bool]]] = [
    ("latency.svg", "Latency against throughput", _latency),
    ("pause.svg", "Write pause after kill -9 of the leader",
     lambda axes, columns: _bars(axes, columns, "pause", "s without an acknowledgement")),
    ("cost.svg", "What a record costs the servers",
     lambda axes, columns: _bars(axes, columns, "cpu_saturated", "CPU s per million records")),
    ("shards.svg", "Throughput against shards", _shards),
    ("sizes.svg", "Throughput against the size of a record", _sizes),
    ("replicas.svg", "Throughput against replicas", _replicas),
    ("log.svg", "Throughput against the size of the log", _log),
]  # fmt: skip
