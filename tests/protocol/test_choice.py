"""Which log survives an election: tables, and random histories with random damage."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.harness import chain, history_of, only, restarted
from shardlog.protocol.choice import Decision, Waiting, decide
from shardlog.protocol.entry import EntryId, Header, Member
from shardlog.protocol.history import Span, epoch_at
from shardlog.protocol.log import Mark
from shardlog.protocol.messages import Fence, FenceAnswer, Operation, Reconfiguration
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Phase, Shard, Status

A, B, C, D, E = (Member(node, 1) for node in "abcde")
ABC = (A, B, C)
MAJORITY = QuorumPolicy()


def no_copy(epoch: int, offset: int, *members: Member) -> Waiting:
    return Waiting(EntryId(epoch, offset), "no valid copy has answered", members)


def answer(member, epochs, *, commit=0, bad=None, history=None) -> FenceAnswer:
    node = restarted(member.node, chain(epochs), commit=commit, history=history, bad=bad or {})
    return node.answer()


def answers(**logs):
    """By node: the epochs of its entries, or its whole answer."""
    named = {Member(node, 1): each for node, each in logs.items()}
    return {
        member: each if isinstance(each, FenceAnswer) else answer(member, each)
        for member, each in named.items()
    }


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """A choice that does not end would stop a coordinator for ever."""

    def give_up(*_: object) -> None:
        raise AssertionError(f"no end after {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def chosen(told, ensembles=(ABC,), policy=MAJORITY, **preferences) -> Decision:
    decision = decide(told, ensembles, policy, **preferences)
    assert isinstance(decision, Decision), decision
    return decision


def test_rule_23_who_has_committed_what_was_given_up_does_not_lead():
    """B was away when the tail at (1,2) was given up; A, the other one, has just failed to lead."""
    told = answers(a=[1, 1, 2, 2], b=answer(B, [1, 1, 1, 1], commit=4))
    decision = chosen(told, excluded=[A], preferred="b")
    assert (decision.leader, decision.kept.end) == (A, 4)


# --- who leads ---------------------------------------------------------------------------------


def test_N3_the_last_entrys_epoch_decides_before_the_length():
    decision = chosen(answers(a=[1, 1, 1], b=[1, 2]))
    assert decision.leader == B
    assert (decision.kept.history, decision.kept.end) == ((Span(1, 0), Span(2, 1)), 2)


def test_N3_a_laggard_whose_epoch_was_raised_is_not_chosen():
    laggard = restarted("b", chain([1]))
    laggard.receive(Fence(9))
    told = answers(a=[1, 1, 2], b=laggard.answer())
    assert told[B].epoch > told[A].epoch
    assert chosen(told).leader == A


def test_N3_among_equals_the_one_that_leads_least_is_chosen():
    told = answers(a=[1, 2], b=[1, 2], c=[1, 2])
    assert chosen(told, leaders={"a": 4, "b": 2, "c": 3}).leader == B
    assert chosen(told, leaders={"b": 1, "c": 1}).leader == A


def test_N3_a_hand_over_goes_before_fewer_leaders():
    told = answers(a=[1, 2], b=[1, 2], c=[1, 2])
    assert chosen(told, preferred="c", leaders={"c": 9}).leader == C


def test_N3_a_node_that_is_to_stop_goes_last_among_equals():
    told = answers(a=[1, 2], b=[1, 2], c=[1, 2])
    assert chosen(told, draining={A, B}).leader == C
    assert chosen(told, preferred="a", draining={A}, leaders={"b": 1}).leader == C
    assert chosen(answers(a=[1, 2], b=[1], c=[1]), draining={A}).leader == A


def test_N3_no_preference_makes_a_laggard_lead():
    told = answers(a=[1, 1, 2], b=[1, 1], c=[1, 1])
    assert chosen(told, preferred="b", leaders={"a": 9}).leader == A


def test_N2_an_epoch_without_entries_gives_no_rank():
    """Adopted the history of epoch 3, crashed before any entry of it arrived."""
    hollow = answer(B, [1, 1], history=(Span(1, 0), Span(3, 2)))
    assert hollow.history == (Span(1, 0),)
    assert chosen(answers(a=[1, 1, 2], b=hollow)).leader == A


@pytest.mark.parametrize("preferred", ["a", "b", "c"])
def test_preference_breaks_ties_only(preferred):
    told = answers(a=[1, 1], b=[1, 1], c=[1])
    leader = chosen(told, preferred=preferred).leader
    assert leader == (Member(preferred, 1) if preferred != "c" else A)


def test_T13_an_excluded_candidate_leads_only_if_there_is_no_other():
    told = answers(a=[1, 1], b=[1])
    assert chosen(told, excluded=(A,)).leader == B
    assert chosen(told, excluded=(A, B)).leader == A


def test_V9_a_syncing_replica_never_leads():
    told = answers(a=[1, 1], b=[1])
    told[A] = replace(told[A], syncing=True)
    assert chosen(told).leader == B


def test_the_leader_comes_from_the_final_ensemble():
    told = answers(a=[1], c=[1], d=[1, 1])
    decision = chosen(told, ((A, B, D), (A, B, C)))
    assert (decision.leader, decision.kept.end, decision.sources) == (A, 2, (D, C))


def test_T2_what_a_nack_quorum_never_had_is_not_fetched():
    told = answers(a=[1], b=[1], d=[1, 1])
    decision = chosen(told, ((A, B, D), (A, B, C)))
    assert (decision.leader, decision.kept.end) == (A, 1)


# --- quorums -----------------------------------------------------------------------------------


def test_O1_no_choice_without_a_fencing_quorum():
    assert decide(answers(a=[1]), (ABC,), MAJORITY) == Waiting(
        None, "no fencing quorum yet", (B, C)
    )


@pytest.mark.parametrize("phase", Phase)
def test_O4_in_commit_and_only_then_both_ensembles_are_fenced(phase):
    change = Reconfiguration(Operation.SWAP, ABC, C, D)
    record = Shard("orders", Status.ELECTION, 2, None, ABC, change=change, phase=phase)
    both = phase is Phase.COMMIT
    assert record.ensembles == ((ABC, (A, B, D)) if both else (ABC,))
    assert record.fencing_ensemble == ((A, B, C, D) if both else ABC)
    assert record.final_ensemble == ((A, B, D) if both else ABC)


@pytest.mark.parametrize("policy", [MAJORITY, QuorumPolicy(2, 3)])
def test_O4_one_quorum_over_the_union_is_not_enough(policy):
    """Rule 7: swap D for E at n = 4, x on A and B, fenced C, D and E."""
    told = answers(c=[1], d=[1], e=[1])
    decision = decide(told, ((A, B, C, D), (A, B, C, E)), policy)
    assert decision == Waiting(None, "no fencing quorum yet", (A, B))


def test_O4_both_ensembles_fenced_find_what_either_committed():
    told = answers(b=[1, 1], c=[1], d=[1], e=[1])
    decision = chosen(told, ((A, B, C, D), (A, B, C, E)), QuorumPolicy(2, 3))
    assert (decision.leader, decision.kept.end) == (B, 2)


def test_O5_the_leaving_nodes_log_counts_in_a_choice():
    """Rule 8's trace: x on A and C, C leaves, A is dead; the seed would choose B by its head."""
    told = answers(b=[1], c=[1, 1])
    final = (A, B)
    by_the_seed = max((told[each] for each in final if each in told), key=lambda each: each.end)
    assert by_the_seed.end == 1, "x is lost"
    ours = chosen(told)
    assert ours.kept.end == 2
    assert C in {ours.leader, *ours.sources}


# --- corrupt is not absent ---------------------------------------------------------------------


@pytest.mark.parametrize("mark", [Mark.CORRUPT, Mark.FAULT])
def test_T2_a_damaged_entry_without_another_copy_stops_the_election(mark):
    """On A and B, bad on B, A down: it may have been committed."""
    told = answers(b=answer(B, [1, 1], bad={1: mark}), c=[1])
    assert decide(told, (ABC,), MAJORITY) == no_copy(1, 1, A, B)


@pytest.mark.parametrize("mark", [Mark.CORRUPT, Mark.FAULT])
def test_T2_it_survives_when_a_copy_turns_up(mark):
    told = answers(a=[1, 1], b=answer(B, [1, 1], bad={1: mark}), c=[1])
    decision = chosen(told)
    assert (decision.leader, decision.kept.end) == (A, 2)


@pytest.mark.parametrize("mark", [Mark.CORRUPT, Mark.FAULT])
def test_T2_it_is_cut_when_a_nack_quorum_never_had_it(mark):
    told = answers(a=[1], b=answer(B, [1, 1], bad={1: mark}), c=[1])
    decision = chosen(told)
    assert (decision.kept.end, decision.kept.history) == (1, (Span(1, 0),))


def test_T2_an_unreadable_stretch_is_cut_inside_where_a_nack_quorum_never_had_the_rest():
    """A cannot read 2 and 3; B and C hold 2, and never had 3."""
    bad = {2: Mark.FAULT, 3: Mark.FAULT}
    told = answers(a=answer(A, [1, 1, 1, 1, 1], bad=bad), b=[1, 1, 1], c=[1, 1, 1])
    with within(5):
        decision = chosen(told)
    assert (decision.leader, decision.kept.end) == (B, 3)


def test_T2_a_valid_other_entry_is_a_nack():
    told = answers(a=[1, 2], b=answer(B, [1, 3], bad={1: Mark.CORRUPT}), c=[1])
    decision = chosen(told)
    assert decision.kept.history == (Span(1, 0), Span(2, 1))


def test_T2_corrupt_copies_do_not_nack():
    bad = {1: Mark.CORRUPT}
    told = answers(a=answer(A, [1, 1], bad=bad), b=answer(B, [1, 1], bad=bad), c=[1])
    assert decide(told, (ABC,), MAJORITY) == no_copy(1, 1, A, B)


def test_T2_what_was_trimmed_is_not_a_nack():
    trimmed = replace(answer(C, [1, 1, 1], commit=3), first=3, slots=())
    bad = {1: Mark.CORRUPT}
    told = answers(a=answer(A, [1, 1, 1], bad=bad), c=trimmed)
    decision = chosen(told)
    assert (decision.kept.end, decision.leader) == (3, C), "nor is anybody waited for"


def test_T2_what_somebody_knows_to_be_committed_is_never_cut():
    told = answers(a=answer(A, [1, 1], commit=2, bad={1: Mark.CORRUPT}), b=[1], c=[1])
    assert isinstance(decide(told, (ABC,), MAJORITY), Waiting)


def test_T3_sources_are_named_best_first():
    told = answers(a=[1, 1, 1], b=[1], c=[1, 1])
    assert chosen(told).sources == (C, B)


def test_T3_disjoint_damage_is_no_obstacle():
    told = answers(
        a=answer(A, [1, 1, 1], bad={0: Mark.CORRUPT}),
        b=answer(B, [1, 1, 1], bad={1: Mark.CORRUPT}),
        c=answer(C, [1, 1, 1], bad={2: Mark.FAULT}),
    )
    assert chosen(told).kept.end == 3


# --- random histories --------------------------------------------------------------------------


@dataclass
class Story:
    """Logs as a run of elections may leave them, and what was committed on the way."""

    ensembles: tuple
    policy: QuorumPolicy
    logs: dict
    histories: dict
    commits: dict
    committed: list
    pool: dict

    def members(self):
        return tuple(dict.fromkeys(member for each in self.ensembles for member in each))

    def enough(self, which, members):
        return all(
            len(set(each) & set(members)) >= getattr(self.policy.of(len(each)), which)
            for each in self.ensembles
        )

    def lead(self, epoch, leader, best, count):
        log = list(self.logs[best])
        end, parent = (log[-1].end, log[-1].checksum) if log else (0, 0)
        log += chain([epoch] * count, start=end, parent=parent)
        self.logs[leader], self.histories[leader] = log, history_of(log)
        self.pool |= {header.id: header for header in log}

    def follow(self, member, leader, received):
        mine, theirs = self.logs[member], self.logs[leader]
        same = 0
        while same < min(len(mine), len(theirs)) and mine[same] == theirs[same]:
            same += 1
        self.logs[member] = theirs[: same + received]
        self.histories[member] = self.histories[leader]

    def commit(self, epoch, leader):
        """The longest prefix that ends in this epoch and is on every replication quorum."""
        log = self.logs[leader]
        for length in range(len(log), 0, -1):
            last = log[length - 1]
            holders = [m for m, each in self.logs.items() if last in each]
            if last.epoch == epoch and self.enough("replication", holders):
                self.committed = log[:length]
                return


def test_T2_what_one_replica_has_trimmed_holds_up_no_election():
    """Damaged here and trimmed there: it was committed once, and given up on purpose."""
    whole = answer(A, [1, 1, 1, 2], commit=3, bad={0: Mark.CORRUPT})
    trimmed = replace(answer(B, [1, 1, 1], commit=3), first=2)
    assert chosen(answers(a=whole, b=trimmed)).leader == A
    needed = answer(A, [1, 1, 1, 2], commit=3, bad={2: Mark.CORRUPT})
    short = replace(answer(B, [1, 1], commit=2), first=2)
    told = answers(a=needed, b=short)
    assert decide(told, (ABC,), MAJORITY) == no_copy(1, 2, C, A)


def test_T2_a_corrupt_slot_disowns_what_is_not_its_own():
    """Two entries of different epochs at one offset, both damaged: neither can be committed."""
    ab, both = (A, B), QuorumPolicy(2, 1)
    told = {
        A: answer(A, [1, 3], bad={1: Mark.CORRUPT}),
        B: answer(B, [1, 2], bad={1: Mark.CORRUPT}),
    }
    assert chosen(told, (ab,), both).kept.end == 1
    told[B] = answer(B, [1, 2], bad={1: Mark.FAULT})
    assert decide(told, (ab,), both) == no_copy(3, 1, A, B)
    told[B] = answer(B, [1, 3], bad={1: Mark.CORRUPT})
    assert decide(told, (ab,), both) == no_copy(3, 1, A, B)


ENSEMBLES = [
    ((A,),),
    (ABC,),
    ((A, B, C, D),),
    ((A, B, C, D, E),),
    (ABC, (A, B, D)),
    (ABC, (A, B)),
    (ABC, (A, B, C, D)),
    ((A, B, C, D), (A, B, C, E)),
    ((A, B), (A, D)),
]


@st.composite
def stories(draw):
    ensembles = draw(st.sampled_from(ENSEMBLES))
    size = len(ensembles[0])
    policy = QuorumPolicy(draw(st.none() | st.integers(1, size)), None)
    members = tuple(dict.fromkeys(member for each in ensembles for member in each))
    story = Story(
        ensembles,
        policy,
        {m: [] for m in members},
        dict.fromkeys(members, ()),
        dict.fromkeys(members, 0),
        [],
        {},
    )
    for epoch in range(1, draw(st.integers(1, 4)) + 1):
        order = draw(st.permutations(members))
        fenced = next(
            order[:some] for some in range(len(order) + 1) if story.enough("fencing", order[:some])
        )
        best = max(fenced, key=lambda m: rank(story.logs[m]))
        leader = draw(st.sampled_from([m for m in fenced if m in ensembles[-1]]))
        story.lead(epoch, leader, best, draw(st.integers(1, 3)))
        for member in order:
            received = draw(st.sampled_from([4, 2, 1, 0, -1, -1]))
            if member != leader and received >= 0:
                story.follow(member, leader, received)
        story.commit(epoch, leader)
        for member in members:
            known = min(len(story.logs[member]), len(story.committed))
            if story.logs[member][:known] == story.committed[:known]:
                story.commits[member] = draw(st.sampled_from([story.commits[member], known]))
    return story


def rank(log: list[Header]):
    return (log[-1].epoch, log[-1].end) if log else (0, 0)


MARKS = st.sampled_from([Mark.CORRUPT, Mark.FAULT])
PLACE = st.tuples(st.integers(1, 4), st.sampled_from([0, 0, 1, 1, 2, 3]), MARKS)
DAMAGE = st.lists(PLACE, min_size=5, max_size=5)
SILENT = st.lists(st.integers(0, 4), max_size=2)


def damaged(story, places) -> dict[Member, dict[int, Mark]]:
    """For each member: so many entries in a row are bad, from the `back`-th last one on."""
    bad: dict[Member, dict[int, Mark]] = {}
    for member, (back, length, mark) in zip(story.members(), places, strict=False):
        end = len(story.logs[member])
        bases = range(max(end - back, 0), min(end - back + length, end))
        bad[member] = dict.fromkeys(bases, mark)
    return bad


def told(story, member, bad):
    node = restarted(
        member.node,
        story.logs[member],
        commit=story.commits[member],
        history=story.histories[member],
        bad=bad,
    )
    return only(node.receive(Fence(99)), FenceAnswer)


def heard_from(story, silent, bad):
    """The answers of all but the silent ones, who are named by number."""
    return {
        m: told(story, m, bad.get(m, {}))
        for number, m in enumerate(story.members())
        if number not in silent
    }


def kept_headers(story, decision):
    """The kept log, entry by entry."""
    offset = 0
    while offset < decision.kept.end:
        header = story.pool[EntryId(epoch_at(decision.kept.history, offset), offset)]
        yield header
        offset = header.end


@given(stories(), DAMAGE, SILENT)
def test_T2_what_was_committed_is_kept_or_the_election_waits(story, places, silent):
    bad = damaged(story, places)
    heard = heard_from(story, silent, bad)
    with within(5):
        decision = decide(heard, story.ensembles, story.policy)
    if isinstance(decision, Waiting):
        return
    kept = list(kept_headers(story, decision))
    assert kept[: len(story.committed)] == story.committed
    assert decision.leader in story.ensembles[-1]
    suppliers = (decision.leader, *decision.sources)
    for header in kept:
        assert any(header in story.logs[m] and header.base not in bad[m] for m in suppliers), (
            f"nobody can supply {header.id}"
        )


@given(stories(), SILENT)
def test_T2_an_undamaged_fencing_quorum_never_waits_and_keeps_the_best_log(story, silent):
    heard = heard_from(story, silent, {})
    decision = decide(heard, story.ensembles, story.policy)
    assert isinstance(decision, Decision) == story.enough("fencing", heard)
    if isinstance(decision, Decision):
        kept = list(kept_headers(story, decision))
        best = max((story.logs[m] for m in heard), key=rank)
        if any(story.logs[m] == best for m in heard if m in story.ensembles[-1]):
            assert kept == best
        else:
            assert kept[: len(story.committed)] == story.committed, "the rest may be left behind"
