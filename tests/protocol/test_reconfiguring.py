"""Reconfigurations, as coordinators drive them."""

import pytest

from protocol.cluster import TICK_MS, Cluster
from shardlog.protocol.coordination import (
    AbortChange,
    Accepted,
    Command,
    Contract,
    CoordinatorLimits,
    CreateShard,
    Expand,
    Promote,
    Rejected,
    Swap,
    TrimShard,
)
from shardlog.protocol.failures import UnsafeQuorum
from shardlog.protocol.messages import (
    Announce,
    Appended,
    BecameLeader,
    Commit,
    Committed,
    Prepare,
    Prepared,
    Progress,
    SnapshotInstalled,
    StatusReport,
    Trim,
)
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Phase, Status
from shardlog.protocol.states import Role

LIMITS = CoordinatorLimits()
LONG_MS = 4 * LIMITS.election_timeout_ms
CHANGES: dict[str, tuple[Command, set[str]]] = {
    "swap": (Swap("c", "d"), {"a", "b", "d"}),
    "expand": (Expand("d"), {"a", "b", "c", "d"}),
    "contract": (Contract("c"), {"a", "b"}),
}


def up(nodes="abcde", ensemble="abc", **kwargs) -> Cluster:
    cluster = Cluster(nodes, operators=["op"], **kwargs)
    cluster.bring_up(ensemble)
    return cluster


def written(cluster: Cluster) -> int:
    answer = cluster.append(cluster.register(), 1, b"written")
    assert isinstance(answer, Appended), answer
    return answer.base


def members(cluster: Cluster) -> set[str]:
    return {member.node for member in cluster.record.ensemble}


def rejected(cluster: Cluster, command) -> str:
    answer = cluster.command(command)
    assert isinstance(answer, Rejected), answer
    return answer.reason


# --- O4: two phases, metadata first ------------------------------------------------------------


@pytest.mark.parametrize("name", CHANGES)
def test_O4_a_change_ends_with_the_final_ensemble_in_a_higher_epoch(name):
    command, final = CHANGES[name]
    cluster = up()
    offset = written(cluster)
    before = cluster.record.epoch
    assert isinstance(cluster.command(command), Accepted)
    cluster.run(LONG_MS)
    assert members(cluster) == final
    assert cluster.record.epoch > before
    assert settled(cluster)
    for node in final:
        assert cluster.nodes[node].disk.entries[offset].body == b"written"
    gone = set("abcd") - final
    assert all(cluster.nodes[node].replica.role is Role.NOT_MEMBER for node in gone)
    written(cluster)


def test_O4_the_metadata_is_written_before_each_step():
    cluster = up()
    start = len(cluster.lines)
    cluster.command(Swap("c", "d"))
    cluster.run(LONG_MS)
    words = ("metadata", "Create", "Snapshot", "Prepare", "Commit", "Destroy")
    lines = [line for line in cluster.lines[start:] if any(word in line for word in words)]
    assert list(dict.fromkeys(lines)) == [
        "metadata: STEADY 1",
        "op → d: Create",
        "d → op: Created",
        "op → a: SnapshotRequest",
        "a → op: SnapshotOffer",
        "op → d: InstallSnapshot",
        "d → op: SnapshotInstalled",
        "metadata: PREPARE 2",
        "op → a: Prepare",
        "a → op: Prepared",
        "metadata: COMMIT 2",
        "op → a: Commit",
        "a → op: Committed",
        "metadata: STEADY 2",
        "op → c: Destroy",
        "c → op: Destroyed",
    ]


def settled(cluster: Cluster) -> bool:
    record = cluster.record
    if record.change or record.joining or record.removed or record.leader is None:
        return False
    leader = cluster.nodes[record.leader.node].replica
    return leader.role is Role.LEADER and leader.epoch == record.epoch


STEPS = ("metadata", "Create", "Snapshot", "Announce", "Prepare", "Commit", "Destroy")


def steps_of(command) -> list[str]:
    """The different lines of the change when nothing fails."""
    cluster = up()
    start = len(cluster.lines)
    cluster.command(command)
    cluster.run_until(lambda: settled(cluster), LONG_MS)
    lines = dict.fromkeys(cluster.lines[start:])
    return [line for line in lines if any(word in line for word in STEPS)]


@pytest.mark.parametrize(
    ("name", "victim"),
    [
        ("swap", "op"),
        ("swap", "a"),
        ("swap", "d"),
        ("expand", "op"),
        ("expand", "a"),
        ("expand", "d"),
        ("contract", "op"),
        ("contract", "a"),
    ],
)
def test_O4_a_crash_at_any_step_leaves_the_old_ensemble_or_the_final_one(name, victim):
    command, final = CHANGES[name]
    for step in steps_of(command):
        cluster = crashed_at(step, command, victim)
        assert members(cluster) in ({"a", "b", "c"}, final)
        assert any(entry.body == b"written" for entry in cluster.leader().disk.entries.values())
        written(cluster)


def crashed_at(step: str, command: Command, victim: str) -> Cluster:
    """The victim dies at that step of the change, and comes back."""
    cluster = up()
    written(cluster)
    cluster.on_line = lambda line: cluster.kill(victim) if line == step else None
    cluster.command(command)
    cluster.run_until(lambda: victim in cluster.down, LONG_MS)
    cluster.on_line = lambda line: None
    cluster.revive(victim)
    cluster.run_until(lambda: settled(cluster), 5 * LONG_MS)
    return cluster


def test_O4_a_change_in_prepare_is_given_up_by_an_election():
    cluster = up()
    cluster.hold = lambda each: isinstance(each.message, Prepared)
    cluster.command(Contract("c"))
    assert cluster.record.phase is Phase.PREPARE
    cluster.kill("a")
    cluster.run(LONG_MS)
    election = cluster.records[-2]
    assert (election.status, election.change, election.phase) == (Status.ELECTION, None, None)
    assert members(cluster) == {"a", "b", "c"}


def test_O4_a_change_in_commit_is_completed_by_an_election():
    cluster = up()
    cluster.hold = lambda each: isinstance(each.message, Commit)
    cluster.command(Swap("c", "d"))
    cluster.run_until(lambda: cluster.record.phase is Phase.COMMIT, LONG_MS)
    cluster.kill("a")
    cluster.run(2 * LONG_MS)
    assert members(cluster) == {"a", "b", "d"}
    assert cluster.led_by in "bd"
    written(cluster)


def test_O4_an_election_in_commit_fences_a_quorum_of_both_ensembles():
    """Swap C for D: with A and D down there is no quorum of the final ensemble."""
    cluster = up()
    cluster.hold = lambda each: isinstance(each.message, Commit)
    cluster.command(Swap("c", "d"))
    cluster.run_until(lambda: cluster.record.phase is Phase.COMMIT, LONG_MS)
    before = len(cluster.lines)
    cluster.kill("a")
    cluster.kill("d")
    cluster.run(2 * LONG_MS)
    assert not any("BecomeLeader" in line for line in cluster.lines[before:])
    cluster.revive("d")
    cluster.run(2 * LONG_MS)
    assert cluster.record.status is Status.STEADY
    assert members(cluster) == {"a", "b", "d"}


def test_O4_commit_is_sent_until_it_is_confirmed():
    cluster = up()
    cluster.hold = lambda each: isinstance(each.message, Committed)
    cluster.command(Contract("c"))
    cluster.run(1000)
    assert cluster.record.phase is Phase.COMMIT
    assert sum(isinstance(each.message, Commit) for each in cluster.delivered) > 3
    cluster.release()
    assert members(cluster) == {"a", "b"}


def test_O4_the_leader_is_never_swapped_out_but_hands_over_first():
    cluster = up()
    leader = cluster.led_by
    cluster.command(Swap(leader, "d"))
    cluster.run(2 * LONG_MS)
    assert not any(
        isinstance(each.message, Prepare) and each.message.change.old == (each.dst, 1)
        for each in cluster.delivered
    )
    assert cluster.led_by != leader
    assert leader not in members(cluster)


def test_O4_a_node_on_its_way_in_is_taken_over_by_the_next_leader():
    """D follows as a standby when A dies: B goes on with it, long before the join is given up."""
    cluster = up()
    cluster.hold = lambda each: each.src == "a" and isinstance(each.message, StatusReport)
    cluster.command(Expand("d"))
    cluster.run_until(lambda: cluster.nodes["d"].replica.role is Role.STANDBY, LONG_MS)
    cluster.kill("a")
    cluster.hold = lambda each: False
    cluster.run(LIMITS.join_timeout_ms // 2)
    assert members(cluster) == {"a", "b", "c", "d"}


# --- O5 ----------------------------------------------------------------------------------------


def test_O5_commit_is_written_only_after_coverage():
    """Rule 8's trace: x on A and C, B lags, C is to leave, A dies."""
    cluster = up(nodes="abc")
    cluster.cut = {("a", "b")}
    offset = written(cluster)
    cluster.command(Contract("c"))
    cluster.run(300)
    assert cluster.record.phase is Phase.PREPARE, "B does not hold x"
    cluster.kill("a")
    cluster.cut.clear()
    cluster.run(2 * LONG_MS)
    assert cluster.leader().disk.entries[offset].body == b"written"


def test_O5_it_is_written_when_the_rest_has_caught_up():
    cluster = up(nodes="abc")
    cluster.cut = {("a", "b")}
    written(cluster)
    cluster.command(Contract("c"))
    cluster.run(300)
    cluster.cut.clear()
    cluster.run(LONG_MS)
    assert members(cluster) == {"a", "b"}


# --- O6: preconditions -------------------------------------------------------------------------


def test_O6_asked_twice():
    cluster = up()
    cluster.hold = lambda each: isinstance(each.message, Prepared)
    assert isinstance(cluster.command(Contract("c")), Accepted)
    assert rejected(cluster, Contract("c")) == "a reconfiguration is in progress"
    assert rejected(cluster, Expand("e")) == "a reconfiguration is in progress"


def test_O6_not_while_a_node_is_joining():
    cluster = up()
    cluster.hold = lambda each: each.dst == "d"
    assert isinstance(cluster.command(Expand("d")), Accepted)
    assert rejected(cluster, Contract("c")) == "a reconfiguration is in progress"


def test_O6_not_without_a_leader():
    cluster = up()
    cluster.hold = lambda each: isinstance(each.message, BecameLeader)
    cluster.kill("a")
    cluster.run_until(lambda: cluster.record.status is Status.ELECTION, LONG_MS)
    assert rejected(cluster, Expand("d")) == "the shard has no leader now"


def test_O6_not_before_the_metadata_has_been_read():
    cluster = Cluster(operators=["op"])
    assert rejected(cluster, Expand("d")) == "the metadata has not been read yet"


def test_O6_not_of_a_shard_that_does_not_exist():
    cluster = Cluster(operators=["op"])
    cluster.run(TICK_MS)
    assert rejected(cluster, Expand("d")) == "there is no such shard"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (CreateShard(("a",), QuorumPolicy()), "the shard exists"),
        (Swap("x", "d"), "x is not a member"),
        (Swap("c", "b"), "b already hosts a replica"),
        (Swap("c", "c"), "a node is swapped for itself only when it has lost its replica"),
        (Expand("b"), "b already hosts a replica"),
        (Contract("x"), "x is not a member"),
        (Contract("a"), "a leads: promote another member first"),
        (Promote("x"), "x is not a member"),
        (AbortChange(), "no reconfiguration is in progress"),
    ],
    ids=str,
)
def test_O6_a_clear_refusal(command, reason):
    cluster = up()
    before = cluster.record
    assert rejected(cluster, command) == reason
    assert cluster.record == before


def test_O6_the_last_replica_stays():
    cluster = up(ensemble="a")
    assert rejected(cluster, Contract("a")) == "the last replica cannot be given up"
    assert "expand" in rejected(cluster, Swap("a", "b"))


@pytest.mark.parametrize(
    ("nodes", "policy"),
    [
        (("a", "b", "c"), QuorumPolicy(1, 2)),
        (("a", "b", "c"), QuorumPolicy(4, 2)),
        (("a", "b", "c"), QuorumPolicy(2, 4)),
        (("a", "b", "c", "d"), QuorumPolicy(2, 2)),
        (("a", "a"), QuorumPolicy()),
        ((), QuorumPolicy()),
    ],
)
def test_T9_an_unsafe_choice_is_refused_at_admission(nodes, policy):
    cluster = Cluster("abcd", operators=["op"])
    cluster.run(TICK_MS)
    rejected(cluster, CreateShard(nodes, policy))
    assert cluster.store.record is None


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        (QuorumPolicy(4, None), UnsafeQuorum(3, 4, 2)),
        (QuorumPolicy(1, None), UnsafeQuorum(3, 1, 2)),
        (QuorumPolicy(None, 1), UnsafeQuorum(3, 2, 1)),
        (QuorumPolicy(0, None), UnsafeQuorum(3, 0, 2)),
        (QuorumPolicy(None, 4), UnsafeQuorum(3, 2, 4)),
    ],
)
def test_T9_half_a_choice_is_not_bent_but_refused(policy, found):
    cluster = Cluster(operators=["op"])
    cluster.run(TICK_MS)
    answer = cluster.command(CreateShard(("a", "b", "c"), policy))
    assert isinstance(answer, Rejected)
    assert answer.refusal == found
    assert cluster.store.record is None


@pytest.mark.parametrize("policy", [QuorumPolicy(3, None), QuorumPolicy(None, 3), QuorumPolicy(2)])
def test_T9_half_a_choice_that_meets_the_majority_is_taken(policy):
    cluster = Cluster(operators=["op"], policy=policy)
    assert cluster.bring_up().replica.lead


def test_O6_abort_takes_a_prepare_back_and_not_a_commit():
    cluster = up()
    cluster.hold = lambda each: isinstance(each.message, Prepared)
    cluster.command(Contract("c"))
    cluster.run(100)
    epoch = cluster.record.epoch
    assert isinstance(cluster.command(AbortChange()), Accepted)
    cluster.run(500)
    assert (cluster.record.epoch, cluster.record.change) == (epoch + 1, None)
    assert cluster.leader().replica.epoch == epoch + 1
    assert members(cluster) == {"a", "b", "c"}
    cluster.hold = lambda each: isinstance(each.message, Committed)
    cluster.command(Contract("c"))
    cluster.run_until(lambda: cluster.record.phase is Phase.COMMIT, LONG_MS)
    assert "too late" in rejected(cluster, AbortChange())


def test_a_standby_that_is_cancelled_is_destroyed_and_costs_nothing():
    cluster = up()
    epoch = cluster.record.epoch
    cluster.hold = lambda each: isinstance(each.message, SnapshotInstalled)
    cluster.command(Expand("d"))
    cluster.run(300)
    assert isinstance(cluster.command(AbortChange()), Accepted)
    cluster.hold = lambda each: False
    cluster.run(500)
    assert cluster.nodes["d"].replica.role is Role.NOT_MEMBER
    assert (cluster.record.epoch, cluster.record.joining, cluster.record.removed) == (
        epoch,
        None,
        (),
    )


# --- T12 ---------------------------------------------------------------------------------------


def test_T12_a_standby_that_lags_is_not_promoted():
    cluster = up()
    written(cluster)
    cluster.hold = lambda each: each.src == "d" and isinstance(each.message, Progress)
    cluster.command(Swap("c", "d"))
    cluster.run(LIMITS.join_timeout_ms // 2)
    assert cluster.record.joining is not None
    assert not any(isinstance(each.message, Prepare) for each in cluster.delivered)


def test_T12_a_node_that_begins_to_follow_has_got_further():
    """It is given up for what does not go on, not for what takes long."""
    cluster = up()
    written(cluster)
    long_ms = 7 * LIMITS.join_timeout_ms // 10
    cluster.hold = lambda each: each.dst == "d" and isinstance(each.message, Announce)
    cluster.command(Expand("d"))
    cluster.run(long_ms)
    joining = cluster.record.joining
    assert joining is not None
    assert joining.incarnation
    cluster.hold = lambda each: each.src == "d" and isinstance(each.message, Progress)
    cluster.run(long_ms)
    assert cluster.nodes["d"].replica.role is Role.STANDBY
    assert cluster.record.joining == joining
    cluster.hold = lambda each: False
    cluster.run(LONG_MS)
    assert members(cluster) == {"a", "b", "c", "d"}


def test_T12_a_standby_never_acks_before_prepare():
    cluster = up()
    cluster.command(Expand("d"))
    cluster.run(LONG_MS)
    prepared = cluster.lines.index("metadata: PREPARE 2")
    assert "d → a: Progress" in cluster.lines[:prepared]
    assert "d → a: Ack" not in cluster.lines[:prepared]


# --- n = 1 -------------------------------------------------------------------------------------


def test_O4_a_single_replica_moves_by_expand_promote_contract():
    cluster = up(ensemble="a")
    offset = written(cluster)
    for command in (Expand("b"), Promote("b"), Contract("a")):
        assert isinstance(cluster.command(command), Accepted)
        cluster.run(LONG_MS)
    assert members(cluster) == {"b"}
    assert cluster.leader().disk.entries[offset].body == b"written"


def test_a_trim_is_handed_to_the_leader():
    cluster = up()
    written(cluster)
    assert isinstance(cluster.command(TrimShard(2)), Accepted)
    cluster.run(200)
    assert {cluster.nodes[node].replica.log.first for node in "abc"} == {2}


def test_rule_19_a_trim_is_asked_of_one_leader_and_goes_with_it():
    """Which is what the answer says: a person asks again."""
    cluster = up()
    written(cluster)
    cluster.hold = lambda e: isinstance(e.message, Trim)
    assert isinstance(cluster.command(TrimShard(2)), Accepted)
    cluster.kill(cluster.led_by)
    cluster.held.clear()
    cluster.hold = lambda e: False
    cluster.run(LONG_MS)
    up_now = [
        node for name, node in cluster.nodes.items() if name in "abc" and name not in cluster.down
    ]
    assert {node.replica.log.first for node in up_now} == {0}
    assert isinstance(cluster.command(TrimShard(2)), Accepted)
    cluster.run(200)
    assert {node.replica.log.first for node in up_now} == {2}
