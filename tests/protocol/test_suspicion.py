"""When a leader is deposed: only on corroborated evidence."""

from dataclasses import replace

import pytest

from protocol import harness
from protocol.harness import chain, only
from shardlog.protocol.entry import Member
from shardlog.protocol.messages import StatusReport, StatusRequest
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.suspicion import Seen, election_possible, given_up, leader_works

A, B, C = ABC = tuple(Member(node, 1) for node in "abc")
NOW_MS, SINCE_MS = 1000, 400
MAJORITY = QuorumPolicy()


REPORT = only(harness.follower(chain([1])).receive(StatusRequest(1)), StatusReport)


def follower(member, heard_ms_ago, at_ms=NOW_MS, leader=A):
    report = replace(REPORT, member=member, leader=leader, heard_ms_ago=heard_ms_ago)
    return member, Seen(report, at_ms)


def leader(serving=True, quorum_fresh=True, at_ms=NOW_MS, epoch=1):
    report = replace(REPORT, member=A, role="LEADER", epoch=epoch, leader=A, heard_ms_ago=-1)
    return A, Seen(replace(report, serving=serving, quorum_fresh=quorum_fresh), at_ms)


def works(*seen, ensemble=ABC, policy=MAJORITY):
    return leader_works(A, 1, ensemble, policy, dict(seen), SINCE_MS)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param([leader()], True, id="it says so itself"),
        pytest.param([leader(quorum_fresh=False)], False, id="it hears no quorum"),
        pytest.param([leader(serving=False)], False, id="it does not serve"),
        pytest.param([leader(at_ms=SINCE_MS - 1)], False, id="long ago"),
        pytest.param([leader(epoch=0)], False, id="of an earlier epoch"),
        pytest.param([follower(B, 100)], True, id="a follower hears it"),
        pytest.param([follower(B, 700)], False, id="a follower heard it long ago"),
        pytest.param([follower(B, -1)], False, id="a follower never heard it"),
        pytest.param([follower(B, 100, leader=C)], False, id="a follower hears another"),
        pytest.param([leader(quorum_fresh=False), follower(B, 100)], True, id="one word is enough"),
        pytest.param([], False, id="nobody says anything"),
    ],
)
def test_T11_a_leader_works_if_enough_say_so(seen, expected):
    assert works(*seen) is expected


def test_T11_a_follower_counts_only_towards_a_quorum():
    five = (*ABC, Member("d", 1), Member("e", 1))
    assert not works(follower(B, 100), ensemble=five)
    assert works(follower(B, 100), follower(C, 100), ensemble=five)


def test_T11_nobody_can_vouch_for_a_leader_that_needs_nobody():
    assert not works(ensemble=(A,))
    assert works(leader(), ensemble=(A,))


def no_more(*seen, ensemble=ABC, policy=MAJORITY):
    return given_up(A, ensemble, policy, dict(seen), NOW_MS - 100, 200)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param([follower(B, 250), follower(C, 200)], True, id="nobody hears it"),
        pytest.param([follower(B, 250), follower(C, 199)], False, id="one hears it"),
        pytest.param([follower(B, 250)], False, id="one says nothing"),
        pytest.param(
            [follower(B, 250), follower(C, 250, at_ms=NOW_MS - 101)], False, id="one said it before"
        ),
        pytest.param([follower(B, -1), follower(C, -1)], True, id="nobody ever heard it"),
        pytest.param([follower(B, 0, leader=C), follower(C, 250)], True, id="one hears another"),
        pytest.param([leader(quorum_fresh=False), follower(B, 250)], False, id="its own word"),
        pytest.param([], False, id="nobody says anything"),
    ],
)
def test_T11_a_leader_where_nobody_listens_is_given_up_by_its_followers(seen, expected):
    assert no_more(*seen) is expected


def test_T11_followers_cannot_give_up_a_leader_that_needs_none():
    assert not no_more(ensemble=(A,))
    alone = QuorumPolicy(1, 3)
    assert not no_more(follower(B, 250), follower(C, 250), policy=alone)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([follower(B, -1), follower(C, -1)], True),
        ([follower(B, -1)], False),
        ([follower(B, -1), follower(C, -1, at_ms=SINCE_MS - 1)], False),
    ],
)
def test_T11_an_election_needs_a_fencing_quorum_in_reach(seen, expected):
    assert election_possible((ABC,), MAJORITY, dict(seen), SINCE_MS) is expected


def test_O4_in_commit_an_election_needs_both_ensembles_in_reach():
    d = Member("d", 1)
    seen = dict([follower(B, -1), follower(C, -1)])
    assert not election_possible((ABC, (A, B, d)), MAJORITY, seen, SINCE_MS)
    seen |= dict([follower(d, -1)])
    assert election_possible((ABC, (A, B, d)), MAJORITY, seen, SINCE_MS)
