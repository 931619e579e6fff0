"""One step at a time towards the number of replicas that is wanted."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardlog.coordinator.scaling import TooFewNodes, choose_nodes, count_replicas, next_command
from shardlog.protocol.coordination import Contract, Expand, Promote
from shardlog.protocol.entry import Member
from shardlog.protocol.messages import Operation, Reconfiguration
from shardlog.protocol.shard import Joining, Phase, Shard, Status

NODES = tuple("abcdef")
A, B, C, D = (Member(node, 1) for node in "abcd")
THREE = Shard("orders", Status.STEADY, 3, A, (A, B, C))


def test_expands_by_the_node_with_the_fewest_replicas():
    assert next_command(THREE, 5, NODES, {"d": 2, "e": 1, "f": 2}) == Expand("e")


def test_a_node_that_still_has_a_former_replica_is_passed_over():
    shard = replace(THREE, removed=(Member("d", 1),))
    assert next_command(shard, 4, "abcde", {"e": 9}) == Expand("e")


def test_no_node_is_left_to_expand_by():
    assert next_command(THREE, 4, "abc", {}) is None


def test_contracts_by_the_busiest_member_that_does_not_lead():
    assert next_command(THREE, 2, NODES, {"a": 9, "b": 2, "c": 5}) == Contract("c")


def test_a_member_on_a_node_that_may_not_host_goes_first():
    assert next_command(THREE, 2, "acd", {"c": 9}) == Contract("b")


def test_where_the_leader_is_to_go_another_leads_first():
    assert next_command(THREE, 2, "bcd", {"b": 2, "c": 1}) == Promote("c")


@pytest.mark.parametrize(
    "shard",
    [
        pytest.param(replace(THREE, status=Status.ELECTION, leader=None), id="election"),
        pytest.param(replace(THREE, status=Status.CREATING, leader=None), id="creating"),
        pytest.param(replace(THREE, halted="for a reason"), id="halted"),
        pytest.param(
            replace(
                THREE,
                change=Reconfiguration(Operation.EXPAND, THREE.ensemble, None, D),
                phase=Phase.PREPARE,
            ),
            id="change",
        ),
        pytest.param(replace(THREE, joining=Joining(Operation.EXPAND, None, "d", 0)), id="joining"),
    ],
)
def test_nothing_while_something_else_is_under_way(shard):
    assert next_command(shard, 5, NODES, {}) is None


def test_nothing_to_do():
    assert next_command(THREE, 3, NODES, {}) is None


@pytest.mark.parametrize("wanted", [0, -1])
def test_a_shard_has_one_replica_at_least(wanted):
    with pytest.raises(ValueError, match="one at least"):
        next_command(THREE, wanted, NODES, {})
    with pytest.raises(ValueError, match="one at least"):
        choose_nodes(wanted, NODES, {})


def test_a_new_shard_goes_to_the_emptiest_nodes():
    assert choose_nodes(3, NODES, {"a": 2, "c": 1, "e": 5}) == ("b", "d", "f")


def test_more_replicas_than_nodes():
    with pytest.raises(TooFewNodes, match="3 replicas need 3 nodes, there are 2"):
        choose_nodes(3, "ab", {})


def test_replicas_are_counted_on_their_way_in_and_out():
    other = replace(
        THREE, removed=(Member("e", 1),), joining=Joining(Operation.SWAP, B, "d", 0)
    )  # fmt: skip
    changing = replace(
        THREE, change=Reconfiguration(Operation.EXPAND, (A,), None, D), ensemble=(A,)
    )
    assert count_replicas([THREE, other, changing]) == {"a": 3, "b": 2, "c": 2, "d": 2, "e": 1}


@given(
    st.integers(1, 6), st.integers(1, 6), st.dictionaries(st.sampled_from(NODES), st.integers(0, 3))
)
def test_steps_lead_to_what_is_wanted_and_the_leader_stays(size, wanted, load):
    members = tuple(Member(node, 1) for node in NODES[:size])
    shard = Shard("orders", Status.STEADY, 1, members[0], members)
    for _ in range(len(NODES)):
        command = next_command(shard, wanted, NODES, load)
        if command is None:
            break
        if isinstance(command, Expand):
            shard = replace(shard, ensemble=(*shard.ensemble, Member(command.new, 1)))
        else:
            assert isinstance(command, Contract)
            left = tuple(each for each in shard.ensemble if each.node != command.old)
            shard = replace(shard, ensemble=left)
        assert shard.leader in shard.ensemble
    assert len(shard.ensemble) == wanted
