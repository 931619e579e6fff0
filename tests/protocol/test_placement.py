"""Which node to add, and which to give up."""

from hypothesis import given
from hypothesis import strategies as st

from shardlog.protocol.placement import Candidate, to_add, to_remove

CANDIDATES = st.lists(
    st.builds(Candidate, st.sampled_from("abcdef"), st.sampled_from("xyz"), st.integers(0, 3)),
    unique_by=lambda each: each.node,
)
NODES = st.lists(st.sampled_from("abcdefg"), unique=True)


def test_spread_comes_before_load():
    candidates = [Candidate("a", "x", 1), Candidate("b", "x", 0), Candidate("c", "y", 9)]
    assert to_add(candidates, ["a"]) == "c"


def test_load_comes_before_name():
    candidates = [Candidate("a", "x", 2), Candidate("b", "y", 1)]
    assert to_add(candidates, []) == "b"


def test_nobody_left_to_add():
    assert to_add([Candidate("a", "x", 0)], ["a"]) is None


def test_a_member_that_is_gone_is_given_up_first():
    candidates = [Candidate("a", "x", 9), Candidate("b", "x", 9)]
    assert to_remove(candidates, ["a", "b", "gone"], "a") == "gone"


def test_the_crowded_domain_gives_up_its_busiest():
    candidates = [Candidate("a", "x", 1), Candidate("b", "x", 3), Candidate("c", "y", 9)]
    assert to_remove(candidates, ["a", "b", "c"], "a") == "b"


def test_the_only_member_leads_and_stays():
    assert to_remove([Candidate("a", "x", 1)], ["a"], "a") is None


@given(CANDIDATES, NODES)
def test_the_added_node_is_new_and_spreads_best(candidates, ensemble):
    chosen = to_add(candidates, ensemble)
    free = [each for each in candidates if each.node not in ensemble]
    assert (chosen is None) == (not free)
    taken = [each.domain for each in candidates if each.node in ensemble]
    crowd = {each.node: taken.count(each.domain) for each in free}
    assert chosen is None or crowd[chosen] == min(crowd.values())


@given(CANDIDATES, NODES, st.randoms(use_true_random=False))
def test_every_coordinator_chooses_the_same(candidates, ensemble, random):
    shuffled = random.sample(candidates, len(candidates))
    assert to_add(candidates, ensemble) == to_add(shuffled, ensemble)
    leader = ensemble[0] if ensemble else None
    removed = to_remove(candidates, ensemble, leader)
    assert removed == to_remove(shuffled, ensemble, leader)
    assert (removed is None) == (len(ensemble) < 2)
    assert removed is None or (removed in ensemble and removed != leader)
