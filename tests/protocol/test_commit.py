"""The commit rule against its definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardlog.protocol.commit import committed_end, of_current_epoch
from shardlog.protocol.entry import Member
from shardlog.protocol.quorum import QuorumPolicy

A, B, C, D, E = MEMBERS = tuple(Member(node, 1) for node in "abcde")
MAJORITY = QuorumPolicy()
ENDS = st.integers(0, 12)


def committed(acked, epoch_start=0, commit=0, ensembles=((A, B, C),), policy=MAJORITY):
    return committed_end(policy, ensembles, acked, epoch_start, commit)


def by_definition(policy, ensembles, acked, epoch_start, commit):
    """The highest offset of this epoch that enough of every ensemble hold; else the old one."""

    def held(end):
        return all(
            sum(acked.get(m, 0) >= end for m in each) >= policy.of(len(each)).replication
            for each in ensembles
        )

    ends = [end for end in range(commit + 1, 13) if end > epoch_start and held(end)]
    return max(ends, default=commit)


@given(
    st.builds(QuorumPolicy, st.none() | st.integers(1, 5), st.none() | st.integers(1, 5)),
    st.lists(
        st.lists(st.sampled_from(MEMBERS), min_size=1, unique=True).map(tuple),
        min_size=1,
        max_size=2,
    ),
    st.dictionaries(st.sampled_from(MEMBERS), ENDS),
    ENDS,
    ENDS,
)
def test_O3_commit_rule_equals_its_definition(policy, ensembles, acked, epoch_start, commit):
    found = committed_end(policy, ensembles, acked, epoch_start, commit)
    assert found == by_definition(policy, ensembles, acked, epoch_start, commit)


def test_O3_a_quorum_commits_the_whole_prefix():
    assert committed({A: 7, B: 5, C: 0}) == 5


def test_O3_old_epoch_entries_do_not_commit_by_themselves():
    assert committed({A: 4, B: 4}, epoch_start=4) == 0
    assert committed({A: 5, B: 5}, epoch_start=4) == 5


@pytest.mark.parametrize(("end", "mine"), [(3, False), (4, False), (5, True)])
def test_N10_an_entry_is_of_this_epoch_if_it_ends_behind_its_start(end, mine):
    assert of_current_epoch(end, 4) is mine


def test_O3_a_minority_commits_nothing():
    assert committed({A: 7}) == 0


def test_commit_offset_never_falls():
    assert committed({A: 2, B: 2}, commit=3) == 3


def test_O5_both_ensembles_must_hold_what_is_committed():
    both = ((A, B, C, D), (A, B, C, E))
    assert committed({A: 5, B: 5, D: 5}, ensembles=both) == 0
    assert committed({A: 5, B: 5, D: 5, E: 4}, ensembles=both) == 4


def test_strangers_do_not_count():
    assert committed({A: 5, D: 5, E: 5}) == 0
