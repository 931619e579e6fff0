"""Where two logs part, from their histories alone."""

from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardlog.protocol.failures import ImpossibleState
from shardlog.protocol.history import (
    OPEN_END,
    History,
    Span,
    clip,
    divergence,
    epoch_at,
    extended,
    last_epoch,
    written,
)

Id = tuple[int, int, int]


class Copy:
    """A log as a list of (epoch, base, end), and the history its node has adopted."""

    def __init__(self) -> None:
        self.entries: list[Id] = []
        self.history: History = ()

    @property
    def end(self) -> int:
        return self.entries[-1][2] if self.entries else 0

    def lead(self, epoch: int, counts: list[int]) -> None:
        self.history = extended(self.history, Span(epoch, self.end))
        for count in counts:
            self.entries.append((epoch, self.end, self.end + count))

    def follow(self, leader: "Copy", received: int) -> None:
        """Cut to the common prefix, adopt the history, then receive some of the rest."""
        kept = len(common(self, leader))
        self.entries = leader.entries[: kept + received]
        self.history = leader.history


def common(one: Copy, other: Copy) -> list[Id]:
    """Entry by entry."""
    pairs = zip(one.entries, other.entries, strict=False)
    return [mine for mine, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]


NODES = 3
EPOCH = st.tuples(
    st.integers(0, NODES - 1),
    st.lists(st.integers(1, 3), max_size=4),
    st.lists(st.none() | st.integers(0, 5), min_size=NODES, max_size=NODES),
)


@given(st.lists(EPOCH, max_size=8))
def test_N4_divergence_equals_comparison_entry_by_entry(epochs):
    nodes = [Copy() for _ in range(NODES)]
    for number, (leader, counts, received) in enumerate(epochs, 1):
        nodes[leader].lead(number, counts)
        for node, entries in zip(nodes, received, strict=True):
            if entries is not None and node is not nodes[leader]:
                node.follow(nodes[leader], entries)
    for mine in nodes:
        for theirs in nodes:
            shared = common(mine, theirs)
            expected = shared[-1][2] if shared else 0
            found = divergence(mine.history, mine.end, theirs.history, theirs.end)
            assert found == expected
            assert found == divergence(theirs.history, theirs.end, mine.history, mine.end)


def test_N4_trace_number_one_shares_nothing():
    a, b = (Span(1, 1), Span(3, 2)), (Span(2, 1),)
    assert divergence(a, 3, b, 2) == 0


@pytest.mark.parametrize(
    ("mine", "mine_end", "theirs", "theirs_end", "expected"),
    [
        ((), 0, (), 0, 0),
        ((Span(1, 0),), 5, (), 0, 0),
        ((Span(1, 0),), 5, (Span(1, 0),), 3, 3),
        ((Span(1, 0), Span(2, 4)), 6, (Span(1, 0),), 5, 4),
        ((Span(1, 0), Span(2, 4)), 6, (Span(1, 0), Span(3, 2)), 9, 2),
        ((Span(1, 0), Span(2, 4)), 6, (Span(1, 0), Span(2, 4), Span(3, 5)), OPEN_END, 5),
        ((Span(1, 0), Span(2, 4)), 4, (Span(1, 0), Span(2, 4)), OPEN_END, 4),
        ((Span(1, 0),), 3, (Span(2, 0),), 3, 0),
        # Led twice, where metadata were restored: from another start, and by another election.
        ((Span(1, 0), Span(2, 3)), 9, (Span(1, 0), Span(2, 4)), 9, 3),
        ((Span(1, 0), Span(2, 3, 7)), 9, (Span(1, 0), Span(2, 3, 8)), 9, 3),
        ((Span(1, 0), Span(2, 3, 7)), 9, (Span(1, 0), Span(2, 3, 7)), 8, 8),
        ((Span(1, 0), Span(2, 3, 7)), 9, (Span(1, 0), Span(2, 3)), 8, 8),
    ],
)
def test_N4_divergence_is_the_smaller_end_of_the_last_common_epoch(
    mine, mine_end, theirs, theirs_end, expected
):
    assert divergence(mine, mine_end, theirs, theirs_end) == expected


@pytest.mark.parametrize("epoch", [1, 2])
def test_an_epoch_that_does_not_rise_is_impossible(epoch):
    with pytest.raises(ImpossibleState, match="does not follow"):
        extended((Span(2, 0),), Span(epoch, 5))


def test_extending_drops_epochs_without_entries():
    assert extended((Span(1, 0), Span(2, 4)), Span(3, 4)) == (Span(1, 0), Span(3, 4))


@pytest.mark.parametrize(("end", "kept"), [(0, 0), (1, 1), (4, 1), (5, 2), (OPEN_END, 2)])
def test_N2_clipped_to_what_has_room_for_an_entry(end, kept):
    history = (Span(1, 0), Span(2, 4))
    assert clip(history, end) == history[:kept]


def test_epoch_of_an_offset():
    history = (Span(1, 2), Span(3, 5))
    assert [epoch_at(history, offset) for offset in (1, 2, 4, 5, 9)] == [0, 1, 1, 3, 3]
    assert (last_epoch(history), last_epoch(())) == (3, 0)


def test_N11_histories_are_written_for_people():
    assert written((Span(1, 0), Span(3, 2))) == "[1@0 3@2]"
