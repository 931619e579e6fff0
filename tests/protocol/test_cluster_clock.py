"""T10: what clocks agree upon, with clocks that are off, set, and far away."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardlog.protocol.cluster_clock import (
    DRIFT_PPM,
    Interval,
    Sample,
    agreed,
    better,
    sampled,
)

TOLERANCE = 100
HOUR = 1_000_000
SMALL = st.integers(-50, 50)


def test_T10_alone_a_node_agrees_with_its_own_clock():
    assert agreed([Interval(5, 5)], TOLERANCE) == (-95, 105)


def test_T10_a_minority_is_outvoted():
    clocks = [Interval(0, 10), Interval(HOUR, HOUR), Interval(20, 30)]
    assert agreed(clocks, TOLERANCE) == (-80, 110)


@pytest.mark.parametrize("clocks", [[(0, 0), (HOUR, HOUR)], [(0, 0), (HOUR, HOUR), (-HOUR, -HOUR)]])
def test_T10_none_where_no_majority_agrees(clocks):
    assert agreed([Interval(*each) for each in clocks], TOLERANCE) is None


def test_T10_two_places_that_majorities_agree_upon_are_both_in_it():
    assert agreed([Interval(0, 0), Interval(HOUR, HOUR), Interval(0, HOUR)], 0) == (0, HOUR)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Interval], int]:
    """Clocks about a true time, of which any minority is wrong; and the longest round trip."""
    number = draw(st.integers(1, 7))
    wrong = draw(st.integers(0, (number - 1) // 2))
    clocks = []
    longest = 0
    for at in range(number):
        error = draw(st.integers(-HOUR, HOUR) if at < wrong else st.integers(-TOLERANCE, TOLERANCE))
        before, after = draw(st.integers(0, 300)), draw(st.integers(0, 300))
        clocks.append(sampled(-before, after, error).found)
        longest = max(longest, before + after)
    return draw(st.permutations(clocks)), longest


@given(clusters())
def test_T10_the_true_time_is_within_the_bound_of_the_agreeing_majority(cluster):
    clocks, longest = cluster
    found = agreed(clocks, TOLERANCE)
    assert found is not None
    assert found.low <= 0 <= found.high
    assert found.low >= -2 * TOLERANCE - longest
    assert found.high <= 2 * TOLERANCE + longest


@given(st.lists(st.tuples(st.integers(-500, 500), st.integers(0, 500)), min_size=1, max_size=7))
def test_T10_every_end_of_it_has_a_majority(found):
    clocks = [Interval(low, low + width) for low, width in found]
    interval = agreed(clocks, 0)
    majority = len(clocks) // 2 + 1
    for at in range(-500, 1001):
        inside = interval is not None and interval.low <= at <= interval.high
        assert inside or sum(low <= at <= high for low, high in clocks) < majority


def test_T10_a_sample_says_when_the_clock_was_read():
    assert sampled(1000, 1010, 5000) == Sample(Interval(3990, 4000), 1010)


def test_T10_a_sample_that_ages_says_less():
    sample = Sample(Interval(10, 20), 0)
    assert sample.aged(1_000_000) == (10 - DRIFT_PPM, 20 + DRIFT_PPM)


def test_T10_of_two_samples_the_tighter_is_kept_until_it_has_aged():
    tight, wide = Sample(Interval(0, 10), 0), Sample(Interval(0, 100), 5)
    assert better(None, wide) == wide
    assert better(tight, wide) == tight
    assert better(wide, tight) == tight
    late = Sample(Interval(0, 100), 1_000_000)
    assert better(tight, late) == late


def test_T10_a_clock_that_was_set_is_believed_at_once():
    before, after = Sample(Interval(0, 10), 0), Sample(Interval(HOUR, HOUR + 100), 5)
    assert better(before, after) == after


@given(st.lists(st.tuples(SMALL, SMALL).map(sorted), max_size=12), st.integers(0, 5))
def test_S06_agreed_is_where_a_majority_overlaps(ends, tolerance):
    """As comparing every end with every clock would find it."""
    clocks = [Interval(*each) for each in ends]
    wide = [each.widened(tolerance) for each in clocks]
    majority = len(clocks) // 2 + 1
    shared = [
        at
        for each in wide
        for at in each
        if sum(other.low <= at <= other.high for other in wide) >= majority
    ]
    expected = Interval(min(shared), max(shared)) if shared else None
    assert agreed(clocks, tolerance) == expected
