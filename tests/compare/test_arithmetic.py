"""Percentiles, ratios, slopes and drift of the comparison."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.compare.arithmetic import (
    best,
    drifted,
    drifts,
    latency_ms,
    middle,
    percentile,
    ratio,
    slope,
)


def test_a_percentile_is_a_value_that_was_seen():
    values = list(range(1, 1001))
    assert percentile(values, 0.5) == 500
    assert percentile(values, 0.99) == 990
    assert percentile(values, 0.999) == 999
    assert percentile([7], 0.999) == 7
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 0.5)


@given(st.lists(st.floats(0, 1e9), min_size=1), st.floats(0.001, 1))
def test_so_large_a_share_is_not_above_a_percentile(values: list[float], share: float):
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6


def test_what_was_never_answered_has_waited_to_the_end():
    answered = [1000.0] * 98
    assert latency_ms(answered, 98, 5e6) == (1, 1, 1)
    assert latency_ms(answered, 100, 5e6) == (1, 5000, 5000)


def test_a_ratio_above_one_means_ahead():
    assert ratio(200, 100, more_is_better=True) == 2
    assert ratio(5, 10, more_is_better=False) == 2
    assert ratio(None, 10, more_is_better=True) is None
    assert ratio(5, None, more_is_better=True) is None


def test_the_best_of_those_there_are():
    assert best([None, 3, 5], more_is_better=True) == 5
    assert best([None, 3, 5], more_is_better=False) == 3
    assert best([None], more_is_better=True) is None


def test_the_median_of_each_figure_over_the_turns_that_have_it():
    assert middle([{"a": 1, "b": 5}, {"a": 9}, {"a": 2}]) == {"a": 2, "b": 5}


def test_a_slope_is_the_power_of_growth():
    assert slope([(1, 3), (10, 30), (100, 300)]) == pytest.approx(1)
    assert slope([(1, 5), (10, 5)]) == pytest.approx(0)
    assert slope([(3, 100), (5, 60)]) == pytest.approx(-1)
    assert slope([(4, 5)]) is None


def test_drift_counts_alike_in_both_directions():
    before = {"rate": 100.0, "p50": 1.0, "only before": 1.0}
    moved = drifts(before, {"rate": 76.0, "p50": 1.26})
    assert drifted(moved) == {"rate": pytest.approx(-0.24), "p50": pytest.approx(0.26)}
    assert drifted(drifts(before, {"rate": 81.0, "p50": 1.24})) == {}
