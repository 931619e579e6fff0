"""The arithmetic of the comparison: percentiles, ratios, slopes, and what drift is too much.

A ratio above 1 always means that Shardlog is ahead, whether more or less of the figure is better.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import linear_regression, median

DRIFT_MAX = 0.25


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that so large a share of all is not above."""
    if not values:
        raise ValueError("there is no percentile of nothing")
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def latency_ms(
    latencies_us: Sequence[float], due: int, waited_us: float
) -> tuple[float, float, float]:
    """p50, p99 and p99.9.  Whatever was due and never answered has waited to the end."""
    all_us = [*latencies_us, *[waited_us] * max(0, due - len(latencies_us))]
    p50, p99, p999 = (percentile(all_us, share) / 1e3 for share in (0.5, 0.99, 0.999))
    return p50, p99, p999


def ratio(ours: float | None, others: float | None, *, more_is_better: bool) -> float | None:
    if not ours or not others:
        return None
    return ours / others if more_is_better else others / ours


def best(values: Sequence[float | None], *, more_is_better: bool) -> float | None:
    found = [value for value in values if value is not None]
    if not found:
        return None
    return max(found) if more_is_better else min(found)


def middle(turns: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of each figure the median of those turns that have it."""
    names = {name: None for turn in turns for name in turn}
    return {name: median(turn[name] for turn in turns if name in turn) for name in names}


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """The power with which the second grows with the first: 0 not at all, 1 in proportion."""
    logs = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len({x for x, _ in logs}) < 2:
        return None
    return linear_regression([x for x, _ in logs], [y for _, y in logs]).slope


def drifts(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """How far each figure of the yardstick has moved, as a share of what it was."""
    return {
        name: after[name] / value - 1 for name, value in before.items() if after.get(name) and value
    }


def drifted(moved: Mapping[str, float]) -> dict[str, float]:
    """Those that moved too far, either way: 25 % up is as far as 20 % down."""
    return {name: by for name, by in moved.items() if max(1 + by, 1 / (1 + by)) > 1 + DRIFT_MAX}
