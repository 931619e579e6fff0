"""What is done next for a shard: one row for every situation that a person can think of."""

from __future__ import annotations

import pytest

from kube_operator.values import joining, member, places, record, situation, spec, swapping
from shardlog.protocol.coordination import Contract, CreateShard, Expand, Promote, Swap
from shardlog.protocol.entry import Member
from shardlog.protocol.messages import Operation, Reconfiguration
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Phase, Status
from shardlog_operator.planning import plan

LONG, SHORT = 61.0, 5.0
NO_CHANGE = QuorumPolicy()


COMMANDS = {
    "made on the nodes with the fewest replicas": (
        None, spec(3), places("abcde"), {"a": 9, "b": 1},
        CreateShard(("c", "d", "e"), NO_CHANGE), "Creating",
    ),
    "made with its quorums": (
        None, spec(3, quorum=QuorumPolicy(3, 1)), places("abc"), {},
        CreateShard(("a", "b", "c"), QuorumPolicy(3, 1)), "Creating",
    ),
    "made across zones": (
        None, spec(3, topology_key="zone"),
        places("abcde", zones={"a": "x", "b": "x", "c": "x", "d": "y", "e": "z"}), {},
        CreateShard(("a", "d", "e"), NO_CHANGE), "Creating",
    ),
    "made, but not on a drained, cordoned, lost or leaving node": (
        None, spec(1), places("abcde", lost={"d": 1.0}, cordoned="b", drained="a", leaving="c"),
        {}, CreateShard(("e",), NO_CHANGE), "Creating",
    ),
    "made in its pool": (
        None, spec(1, pool="other"), places("abc", other_pool="c"), {},
        CreateShard(("c",), NO_CHANGE), "Creating",
    ),
    "expanded": (record("abc"), spec(5), places(), {}, Expand("d"), "Scaling"),
    "expanded where least is": (record("abc"), spec(4), places(), {"d": 3}, Expand("e"), "Scaling"),
    "expanded into another zone": (
        record("ab"), spec(3, topology_key="zone"),
        places("abcd", zones={"a": "x", "b": "y", "c": "x", "d": "z"}), {"d": 7},
        Expand("d"), "Scaling",
    ),
    "contracted, never the leader": (
        record("abcde"), spec(3), places(), {"a": 9, "b": 5}, Contract("b"), "Scaling",
    ),
    "contracted by the dead first": (
        record("abcde"), spec(3), places("abce", lost={"d": SHORT}), {}, Contract("d"), "Scaling",
    ),
    "swapped when a node is lost for long": (
        record("abc"), spec(3), places("abd", lost={"c": LONG}), {}, Swap("c", "d"), "NodeLost",
    ),
    "swapped when a node is drained": (
        record("abc"), spec(3), places("abcd", drained="b"), {}, Swap("b", "d"), "NodeDrained",
    ),
    "swapped when a machine is cordoned": (
        record("abc"), spec(3), places("abcd", cordoned="b"), {}, Swap("b", "d"), "NodeCordoned",
    ),
    "lost goes before drained": (
        record("abc"), spec(3), places("abde", lost={"c": LONG}, drained="b"), {},
        Swap("c", "d"), "NodeLost",
    ),
    "given up, not swapped, when there are too many anyway": (
        record("abcd"), spec(3), places("abcde", drained="b"), {}, Contract("b"), "NodeDrained",
    ),
    "the leader is moved before its node is left": (
        record("abc"), spec(3), places("abcd", drained="a"), {"b": 4}, Promote("c"), "NodeDrained",
    ),
    "the leader goes last": (
        record("abc"), spec(3), places("abcde", drained="ab"), {}, Swap("b", "d"), "NodeDrained",
    ),
    "a leader that nobody can follow is swapped by the coordinator": (
        record("ab", "a"), spec(2), places("abcde", leaving="b", drained="a"), {},
        Swap("a", "c"), "NodeDrained",
    ),
    "the only replica is left by way of a second": (
        record("a"), spec(1), places("ab", drained="a"), {}, Expand("b"), "NodeDrained",
    ),
    "and then led by it": (
        record("ab"), spec(1), places("ab", drained="a"), {}, Promote("b"), "NodeDrained",
    ),
    "and then given up": (
        record("ab", "b"), spec(1), places("ab", drained="a"), {}, Contract("a"), "NodeDrained",
    ),
    "a pod that restarts does not lead": (
        record("abc"), spec(3), places("abc", leaving="a"), {}, Promote("b"), "NodeRestarts",
    ),
    "a scaling goes before a restart": (
        record("abc"), spec(4), places("abcd", leaving="a"), {}, Expand("d"), "Scaling",
    ),
    "a node still to be cleaned is passed over": (
        record("abc", removed=(member("d"),)), spec(4), places("abcde"), {}, Expand("e"), "Scaling",
    ),
    "five replicas lose two, one at a time": (
        record("abcde"), spec(5), places("abcfg", lost={"d": LONG, "e": LONG}), {},
        Swap("d", "f"), "NodeLost",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", COMMANDS)
def test_commands(case: str):
    shard, wanted, there, hosting, command, reason = COMMANDS[case]
    found = plan(situation(shard, wanted, there, **hosting))
    assert found.command == command
    assert found.reason == reason
    assert found.message
    assert found.waiting is None


EXPANDING = Reconfiguration(Operation.EXPAND, (), None, member("d"))

WAITING = {
    "too few nodes to create": (None, spec(3), places("ab"), "TooFewNodes", True),
    "too few in the pool": (None, spec(1, pool="ssd"), places("ab"), "TooFewNodes", True),
    "created when the pause ends": (None, spec(3, paused=True), places(), "Paused", False),
    "paused": (record(), spec(5, paused=True), places(), "Paused", False),
    "paused, whoever is lost": (
        record(), spec(3, paused=True), places("abd", lost={"c": LONG}), "Paused", False,
    ),
    "halted": (record(halted="b leads another ensemble"), spec(5), places(), "Halted", True),
    "creating": (record(leader=None, status=Status.CREATING), spec(), places(), "Creating", False),
    "electing": (record(leader=None, status=Status.ELECTION), spec(), places(), "Electing", False),
    "deleting, of an earlier Shard": (
        record(leader=None, status=Status.DELETING), spec(), places(), "RecordDeleting", True,
    ),
    "a swap under way": (swapping("c", "d"), spec(5), places(), "Reconfiguring", False),
    "a swap in COMMIT": (
        swapping("c", "d", Phase.COMMIT), spec(5), places(), "Reconfiguring", False,
    ),
    "somebody joins": (joining("d"), spec(5), places(), "Reconfiguring", False),
    "somebody is sent away": (
        joining("d", cancelled=True), spec(5), places(), "Reconfiguring", False,
    ),
    "too few to expand": (record(), spec(4), places("abc"), "TooFewNodes", True),
    "aborted": (record(), spec(5, aborted_generation=1), places(), "Aborted", False),
    "a lost node within the grace period": (
        record(), spec(3), places("abd", lost={"c": SHORT}), "NodeLost", False,
    ),
    "nowhere to swap to": (
        record(), spec(3), places("ab", lost={"c": LONG}), "NoNodeToSwap", True,
    ),
    "drained, and nowhere to go": (
        record(), spec(3), places("abc", drained="c"), "NoNodeToSwap", True,
    ),
    "two of five short of a quorum": (
        record("abcde"), spec(5), places("afg", lost=dict.fromkeys("bcde", LONG)),
        "QuorumAtRisk", True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WAITING)
def test_waiting(case: str):
    shard, wanted, there, reason, stuck = WAITING[case]
    found = plan(situation(shard, wanted, there))
    assert found.command is None
    assert found.waiting is not None
    assert (found.waiting.reason, found.waiting.stuck) == (reason, stuck)
    assert found.waiting.message


NOTHING = {
    "as wanted": (record(), spec(), places()),
    "leaving, but not leading": (record(), spec(), places("abc", leaving="b")),
    "an abort of an earlier generation": (record(), spec(aborted_generation=7), places()),
    "a follower is on a node of another pool": (record(), spec(), places("abc", other_pool="b")),
    "the only replica restarts": (record("a"), spec(1), places("ab", leaving="a")),
}


@pytest.mark.parametrize("case", NOTHING)
def test_nothing_to_do(case: str):
    found = plan(situation(*NOTHING[case]))
    assert (found.command, found.waiting) == (None, None)


def test_a_lost_node_is_looked_at_again_when_its_time_is_up():
    found = plan(situation(record(), spec(), places("ab", lost={"c": 20.0})))
    assert found.again_s == pytest.approx(40.0)


def test_creating_names_the_nodes_that_have_not_answered():
    made = record(leader=None, status=Status.CREATING)
    half = made.__class__(made.name, made.status, 0, None, (Member("a", 7), Member("b", 0)))
    found = plan(situation(half, spec(2), places()))
    assert found.waiting is not None
    assert found.waiting.message == "replicas are made on b"


@pytest.mark.parametrize("wanted", range(1, 8))
@pytest.mark.parametrize("size", range(1, 8))
def test_any_number_is_reached_one_step_at_a_time(size: int, wanted: int):
    nodes, shard = "abcdefg", record("abcdefg"[:size])
    for _ in range(20):
        found = plan(situation(shard, spec(wanted), places(nodes)))
        match found.command:
            case None:
                break
            case Expand(new):
                shard = record("".join(each.node for each in shard.ensemble) + new)
            case Contract(old):
                assert shard.leader is not None
                assert old != shard.leader.node
                shard = record("".join(each.node for each in shard.ensemble if each.node != old))
    assert len(shard.ensemble) == wanted


def test_a_drained_node_is_left_from_any_size():
    for size in range(1, 6):
        shard = record("abcde"[:size], "a")
        for _ in range(10):
            found = plan(situation(shard, spec(size), places("abcdefg", drained="a")))
            nodes = [each.node for each in shard.ensemble]
            leader = shard.leader.node if shard.leader else "a"
            match found.command:
                case None:
                    break
                case Expand(new):
                    nodes.append(new)
                case Contract(old):
                    nodes.remove(old)
                case Promote(node):
                    leader = node
                case Swap(old, new):
                    nodes[nodes.index(old)] = new
            shard = record("".join(nodes), leader)
        assert "a" not in [each.node for each in shard.ensemble]
        assert len(shard.ensemble) == size
