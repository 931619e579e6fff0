"""Quorums: what must meet what."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardlog.protocol.entry import Member
from shardlog.protocol.quorum import QuorumPolicy, is_safe, reached, replicated_end

SIZES = range(1, 7)
LEGAL = [
    (size, replication, fencing)
    for size in SIZES
    for replication in range(1, size + 1)
    for fencing in range(1, size + 1)
    if replication + fencing > size
]
COUNTS = st.none() | st.integers(1, 9)


@pytest.mark.parametrize(
    ("size", "replication", "fencing", "nack"),
    [(1, 1, 1, 1), (2, 2, 2, 1), (3, 2, 2, 2), (4, 2, 3, 3), (5, 3, 3, 3), (6, 3, 4, 4)],
)
def test_T9_table_of_tigerbeetle(size, replication, fencing, nack):
    assert is_safe(size, replication, fencing)
    quorum = QuorumPolicy(replication, fencing).of(size)
    assert (quorum.replication, quorum.fencing, quorum.nack) == (replication, fencing, nack)


@pytest.mark.parametrize(("size", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4)])
def test_T9_majorities_by_default(size, majority):
    quorum = QuorumPolicy().of(size)
    assert (quorum.replication, quorum.fencing) == (majority, majority)


def test_T9_a_pair_is_safe_if_and_only_if_it_exceeds_the_size():
    found = [
        (size, replication, fencing)
        for size in SIZES
        for replication in range(8)
        for fencing in range(8)
        if is_safe(size, replication, fencing)
    ]
    assert found == LEGAL


@pytest.mark.parametrize(("size", "replication", "fencing"), LEGAL)
def test_T9_every_replication_quorum_meets_every_fencing_quorum(size, replication, fencing):
    quorum = QuorumPolicy(replication, fencing).of(size)
    assert (quorum.replication, quorum.fencing) == (replication, fencing)
    for held in combinations(range(size), quorum.replication):
        for fenced in combinations(range(size), quorum.fencing):
            assert set(held) & set(fenced)


@pytest.mark.parametrize(("size", "replication", "fencing"), LEGAL)
def test_T2_what_a_nack_quorum_never_had_is_on_no_replication_quorum(size, replication, fencing):
    quorum = QuorumPolicy(replication, fencing).of(size)
    for never in combinations(range(size), quorum.nack):
        assert size - len(never) < quorum.replication
    assert size - (quorum.nack - 1) >= quorum.replication, "no larger than it has to be"


@given(COUNTS, COUNTS, st.integers(1, 9))
def test_T9_a_policy_is_bent_to_a_safe_pair_at_any_size(replication, fencing, size):
    quorum = QuorumPolicy(replication, fencing).of(size)
    assert is_safe(size, quorum.replication, quorum.fencing)
    assert quorum.replication == min(replication or size // 2 + 1, size)


@given(st.integers(1, 6), st.lists(st.integers(0, 9), max_size=6))
def test_replicated_end_is_the_highest_that_enough_logs_reach(replication, ends):
    reachable = [end for end in ends if sum(each >= end for each in ends) >= replication]
    assert replicated_end(replication, ends) == max(reachable, default=0)


def test_only_members_of_the_ensemble_count():
    a, b, c = (Member(node, 1) for node in "abc")
    assert reached(2, (a, b), {a, b})
    assert not reached(2, (a, b), {a, c})
    assert not reached(2, (a, b), {a, Member("b", 2)})
