"""Sync negotiation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardlog.protocol.failures import BelowCommit
from shardlog.protocol.sync import Extent, Negotiated, Plan, negotiate


@pytest.mark.parametrize(
    ("source", "destination", "expected"),
    [
        pytest.param(Extent(0, 9, 7), Extent(0, 9, 5), Negotiated(Plan.EQUAL, 9, 9), id="equal"),
        pytest.param(
            Extent(0, 9, 7), Extent(0, 4, 4), Negotiated(Plan.TAIL, 4, 9), id="missing tail"
        ),
        pytest.param(
            Extent(5, 9, 7),
            Extent(0, 4, 3),
            Negotiated(Plan.WIPE, 5, 9),
            id="source trimmed past the destination",
        ),
        pytest.param(
            Extent(5, 9, 7),
            Extent(0, 5, 3),
            Negotiated(Plan.TAIL, 5, 9),
            id="source trimmed up to the destination's end",
        ),
        pytest.param(
            Extent(0, 9, 7),
            Extent(3, 6, 6),
            Negotiated(Plan.TAIL, 6, 9),
            id="destination trimmed more",
        ),
        pytest.param(
            Extent(0, 0, 0), Extent(0, 0, 0), Negotiated(Plan.EQUAL, 0, 0), id="source empty"
        ),
        pytest.param(
            Extent(6, 6, 6),
            Extent(0, 4, 4),
            Negotiated(Plan.WIPE, 6, 6),
            id="source trimmed to nothing",
        ),
        pytest.param(
            Extent(0, 9, 7),
            Extent(0, 12, 10),
            BelowCommit(10),
            id="destination's commit offset above the source's head",
        ),
    ],
)
def test_V7_negotiation(source, destination, expected):
    assert negotiate(source, destination) == expected


EXTENTS = (
    st.lists(st.integers(0, 9), min_size=3, max_size=3)
    .map(sorted)
    .map(lambda each: Extent(each[0], each[2], each[1]))
)


@given(EXTENTS, EXTENTS)
def test_V7_the_destination_ends_where_the_source_does_and_loses_nothing_committed(
    source, destination
):
    plan = negotiate(source, destination)
    if isinstance(plan, BelowCommit):
        assert destination.commit > source.end
        return
    assert source.first <= plan.start <= plan.end == source.end
    if plan.plan is Plan.WIPE:
        assert destination.end < source.first == plan.start, "only below the source's first offset"
    elif plan.plan is Plan.TAIL:
        assert destination.end == plan.start
    else:
        assert destination.end >= source.end >= destination.commit
