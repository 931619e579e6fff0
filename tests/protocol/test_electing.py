"""Elections, as coordinators drive them."""

import pytest

from protocol.cluster import Cluster
from protocol.harness import Node, sent
from shardlog.protocol.coordination import CoordinatorLimits, Promote
from shardlog.protocol.messages import (
    AddFollower,
    Appended,
    BecameLeader,
    BecomeLeader,
    Fence,
    FenceAnswer,
)
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Status
from shardlog.protocol.states import Role

LIMITS = CoordinatorLimits()
LONG_MS = 4 * LIMITS.election_timeout_ms


def up(**kwargs) -> Cluster:
    cluster = Cluster(operators=["op"], **kwargs)
    cluster.bring_up(names="".join(cluster.nodes))
    return cluster


def written(cluster: Cluster, to: Node | None = None) -> int:
    """A new session writes: the offset that it is told."""
    answer = cluster.append(cluster.register(to), 1, b"written", to)
    assert isinstance(answer, Appended), answer
    return answer.base


def depose(cluster: Cluster) -> str:
    """Kill the leader, and wait until another leads."""
    old = cluster.led_by
    cluster.kill(old)
    cluster.run(LONG_MS)
    return old


# --- O1 ----------------------------------------------------------------------------------------


def test_O1_an_election_goes_in_the_order_of_the_seed():
    cluster = up()
    cluster.kill("a")
    start = len(cluster.lines)
    cluster.run(LONG_MS)
    shown = ("metadata", "Fence", "Leader")
    lines = [line for line in cluster.lines[start:] if any(word in line for word in shown)]
    assert lines[:9] == [
        "metadata: ELECTION 2",
        "op → a: Fence",
        "op → b: Fence",
        "op → c: Fence",
        "b → op: FenceAnswer",
        "c → op: FenceAnswer",
        "op → b: BecomeLeader",
        "b → op: BecameLeader",
        "metadata: STEADY 2",
    ]
    assert cluster.led_by == "b"


def test_O1_an_election_waits_for_its_fencing_quorum():
    cluster = up()
    cluster.kill("b")
    cluster.kill("a")
    cluster.run(LONG_MS)
    assert not any("BecomeLeader" in line for line in cluster.lines[40:] if "→ c" in line)
    cluster.revive("b")
    cluster.run(LONG_MS)
    assert cluster.leader().name in "bc"


# Every line of an election, from its first write to the first status request after it.
STEPS = range(1, 14)


@pytest.mark.parametrize("step", STEPS)
def test_O1_a_fresh_operator_brings_the_shard_up_after_a_crash_at_any_step(step):
    cluster = up()
    offset = written(cluster)
    cluster.kill("a")
    lines: list[str] = []

    def die_at_the_step(line):
        if lines or "ELECTION" in line:
            lines.append(line)
            if len(lines) == step:
                cluster.kill("op")

    cluster.on_line = die_at_the_step
    cluster.run(LONG_MS)
    assert "op" in cluster.down
    left = cluster.record
    cluster.on_line = lambda line: None
    cluster.revive("op")
    cluster.run(LONG_MS)
    assert cluster.record.status is Status.STEADY
    if left.status is Status.ELECTION:
        assert cluster.record.epoch > left.epoch, "an election is never resumed"
    assert cluster.leader().disk.entries[offset].body == b"written"
    written(cluster)


def test_O1_an_election_that_is_found_is_never_resumed():
    cluster = up()
    cluster.kill("a")
    cluster.hold = lambda each: isinstance(each.message, BecameLeader)
    cluster.run_until(lambda: cluster.record.status is Status.ELECTION, LONG_MS)
    found = cluster.record
    cluster.kill("op")
    cluster.revive("op")
    before = len(cluster.delivered)
    cluster.run(LONG_MS)
    asked = [
        each.message.epoch
        for each in cluster.delivered[before:]
        if isinstance(each.message, Fence | BecomeLeader)
    ]
    assert min(asked) == found.epoch + 1


def test_O1_a_chosen_one_that_stays_silent_is_passed_over_in_a_new_epoch():
    cluster = up()
    cluster.hold = lambda each: isinstance(each.message, BecomeLeader) and each.dst == "b"
    cluster.kill("a")
    cluster.run(LONG_MS)
    assert cluster.led_by == "c"
    assert cluster.record.epoch == 3


def test_O1_all_incarnations_are_known_before_the_first_election():
    cluster = up()
    first = next(record for record in cluster.records if record.status is Status.ELECTION)
    assert all(member.incarnation for member in first.ensemble)
    assert cluster.records[0].status is Status.CREATING


# --- O2 ----------------------------------------------------------------------------------------


def added(cluster: Cluster) -> set[str]:
    messages = [each.message for each in cluster.delivered]
    return {each.answer.member.node for each in messages if isinstance(each, AddFollower)}


def test_O2_an_answer_that_is_late_for_the_choice_is_kept_until_the_leader_confirms():
    cluster = Cluster(operators=["op"])
    cluster.hold = lambda each: isinstance(each.message, BecameLeader)
    cluster.bring_up()
    chosen = sent([each.message for each in cluster.delivered], BecomeLeader)[0]
    assert [answer.member.node for answer in chosen.followers] == ["b"]
    assert added(cluster) == set()
    cluster.release()
    assert added(cluster) == {"c"}
    assert cluster.nodes["c"].replica.role is Role.FOLLOWER


def test_O2_an_answer_that_is_late_for_the_election_is_added_at_once():
    cluster = Cluster(operators=["op"])
    cluster.hold = lambda each: each.src == "c" and isinstance(each.message, FenceAnswer)
    cluster.bring_up()
    assert cluster.record.status is Status.STEADY
    assert added(cluster) == set()
    cluster.release()
    assert added(cluster) == {"c"}
    assert cluster.nodes["c"].replica.role is Role.FOLLOWER


def test_O2_a_member_that_comes_back_is_fenced_again_and_added():
    cluster = up()
    cluster.kill("c")
    deposed = cluster.led_by
    cluster.run(200)
    offset = written(cluster)
    cluster.revive("c")
    cluster.run(500)
    assert cluster.led_by == deposed
    assert cluster.nodes["c"].disk.entries[offset].body == b"written"
    assert cluster.nodes["c"].replica.role is Role.FOLLOWER


# --- O7 ----------------------------------------------------------------------------------------


def battle(operators=("op1", "op2", "op3")) -> tuple[Cluster, int]:
    cluster = Cluster(operators=operators)
    cluster.bring_up()
    offset = written(cluster)
    depose(cluster)
    return cluster, offset


def test_O7_three_operators_battle_and_nothing_acknowledged_is_lost():
    cluster, offset = battle()
    assert cluster.store.conflicts > 0
    assert cluster.record.status is Status.STEADY
    assert cluster.leader().disk.entries[offset].body == b"written"
    written(cluster)


def test_O7_an_epoch_is_written_once_and_finished_by_one_operator():
    cluster, _ = battle()
    elections = [record.epoch for record in cluster.records if record.status is Status.ELECTION]
    assert len(elections) == len(set(elections))
    asked = {
        (each.message.epoch, each.src)
        for each in cluster.delivered
        if isinstance(each.message, BecomeLeader)
    }
    assert len(asked) == len({epoch for epoch, _ in asked})


# --- T5 ----------------------------------------------------------------------------------------


def test_T5_a_wiped_volume_under_its_old_name_does_not_help_to_elect():
    """C loses its disk, A goes down: B alone is no quorum, though C answers."""
    cluster = up()
    offset = written(cluster)
    cluster.hold = lambda each: each.dst == "c" and each.src == "op"
    cluster.kill("c")
    cluster.wipe("c")
    cluster.kill("a")
    cluster.revive("c")
    cluster.hold = lambda each: False
    cluster.run(LONG_MS)
    assert not any(
        node.replica.role is Role.LEADER for node in (cluster.nodes["b"], cluster.nodes["c"])
    )
    cluster.revive("a")
    cluster.run(LONG_MS)
    assert cluster.leader().disk.entries[offset].body == b"written"


def test_T5_a_member_that_lost_its_disk_is_swapped_for_itself():
    cluster = up()
    offset = written(cluster)
    old = next(each for each in cluster.record.ensemble if each.node == "c")
    cluster.kill("c")
    cluster.wipe("c")
    cluster.revive("c")
    cluster.run(LONG_MS)
    new = next(each for each in cluster.record.ensemble if each.node == "c")
    assert new.incarnation != old.incarnation
    assert cluster.nodes["c"].replica.role is Role.FOLLOWER
    assert cluster.nodes["c"].disk.entries[offset].body == b"written"


# --- T9 ----------------------------------------------------------------------------------------


def test_T9_with_four_replicas_two_down_writes_go_on_and_elections_wait():
    cluster = up(nodes="abcd", policy=QuorumPolicy(2, 3))
    cluster.kill("c")
    cluster.kill("d")
    written(cluster)
    cluster.kill("a")
    cluster.run(LONG_MS)
    assert not any(
        node.replica.role is Role.LEADER for node in cluster.nodes.values() if node.name != "a"
    )
    cluster.revive("c")
    cluster.revive("d")
    cluster.run(LONG_MS)
    written(cluster)


# --- T11 ---------------------------------------------------------------------------------------


def elections(cluster):
    return sum(record.status is Status.ELECTION for record in cluster.records)


@pytest.mark.parametrize("cut", [("op", "a"), ("a", "op")])
def test_T11_a_leader_that_its_followers_hear_is_not_deposed(cut):
    cluster = up()
    cluster.cut.add(cut)
    before = elections(cluster)
    cluster.run(10_000)
    assert elections(cluster) == before
    assert cluster.led_by == "a"


def test_T11_a_leader_that_hears_nobody_is_deposed_once():
    """Followers hear it, but it does not hear them: its heartbeats say so."""
    cluster = up()
    cluster.cut = {("b", "a"), ("c", "a")}
    before = elections(cluster)
    cluster.run(10_000)
    assert elections(cluster) - before <= 2
    assert cluster.led_by != "a"
    written(cluster)


def test_T11_a_leader_that_nobody_hears_is_deposed_once():
    cluster = up()
    cluster.cut = {("a", "b"), ("a", "c")}
    before = elections(cluster)
    cluster.run(10_000)
    assert elections(cluster) - before <= 2
    written(cluster)


def test_T11_a_leader_that_was_killed_is_replaced_sooner_than_a_silent_one():
    cluster = up()
    cluster.kill("a")
    cluster.unheeded = {"a"}
    cluster.run_until(lambda: cluster.record.status is Status.STEADY and cluster.led_by != "a", 500)
    written(cluster)


def test_T11_that_nobody_listens_deposes_no_leader_that_its_followers_hear():
    cluster = up()
    cluster.unheeded = {"a"}
    before = elections(cluster)
    cluster.run(10_000)
    assert elections(cluster) == before
    assert cluster.led_by == "a"
    written(cluster)


def test_T11_one_follower_that_hears_the_leader_is_enough():
    cluster = up()
    cluster.unheeded = {"a"}
    cluster.cut = {("a", "b")}
    before = elections(cluster)
    cluster.run(10_000)
    assert elections(cluster) == before


def test_T11_who_listens_again_is_judged_by_its_silence_alone():
    cluster = up()
    cluster.unheeded = {"a"}
    cluster.run(300)
    cluster.unheeded = set()
    cluster.run(300)
    cluster.cut = {("a", "b"), ("a", "c"), ("op", "a")}
    before = elections(cluster)
    cluster.run(500)
    assert elections(cluster) == before


def test_T11_no_election_is_begun_that_cannot_end():
    cluster = up()
    before = elections(cluster)
    for name in "abc":
        cluster.kill(name)
    cluster.run(10_000)
    assert elections(cluster) == before


# --- hand-over ---------------------------------------------------------------------------------


def test_leadership_is_handed_over_to_a_node_that_has_caught_up():
    cluster = up()
    offset = written(cluster)
    cluster.command(Promote("c"))
    cluster.run(LONG_MS)
    assert cluster.led_by == "c"
    assert cluster.leader().disk.entries[offset].body == b"written"


def test_rule_21_a_record_from_an_old_backup_is_raised_above_what_nodes_promised():
    cluster = up()
    old = cluster.record
    depose(cluster)
    cluster.revive("a")
    cluster.run(LONG_MS)
    promised = cluster.record.epoch
    cluster.restore(old)
    cluster.run(2 * LONG_MS)
    assert cluster.record.status is Status.STEADY
    assert cluster.record.epoch > promised > old.epoch
    written(cluster)
