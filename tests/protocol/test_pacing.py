"""How closely a coordinator looks, and when it needs a tick."""

from collections import Counter

import pytest

from protocol.cluster import TICK_MS, Cluster
from protocol.harness import OPERATOR
from shardlog.protocol.coordination import (
    Accepted,
    Alerted,
    Commanded,
    CoordinatorLimits,
    CreateShard,
    DeleteShard,
    Expand,
    Loaded,
    Promote,
)
from shardlog.protocol.coordinator import Coordinator
from shardlog.protocol.effects import Tick
from shardlog.protocol.entry import Member
from shardlog.protocol.messages import Fence, StatusReport, StatusRequest
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Shard, Status

LIMITS = CoordinatorLimits()
A, B, C = ABC = tuple(Member(node, 1) for node in "abc")
SETTLED_MS = 2 * LIMITS.alert_ms


def up(nodes: str = "abc", members: str = "abc", *, looking: bool = True) -> Cluster:
    """A shard at rest."""
    cluster = Cluster(nodes, operators=[OPERATOR])
    cluster.looking = looking
    cluster.bring_up(members)
    cluster.run(SETTLED_MS)
    return cluster


def asked(cluster: Cluster, ms: int) -> Counter[str]:
    """How often each node is asked how it is, within so long."""
    before = len(cluster.delivered)
    cluster.run(ms)
    asked = [each for each in cluster.delivered[before:] if type(each.message) is StatusRequest]
    return Counter(each.dst for each in asked)


def wait_ms(cluster: Cluster) -> int | None:
    return cluster.coordinators[OPERATOR].wait_ms(cluster.now_ms)


def test_a_shard_at_rest_is_asked_now_and_then():
    cluster = up()
    rounds = 4
    assert asked(cluster, rounds * LIMITS.rest_ms) == dict.fromkeys("abc", rounds)


def test_a_shard_at_rest_writes_nothing_and_needs_few_ticks():
    cluster = up()
    version, due = cluster.store.version, 0
    for _ in range(0, 4 * LIMITS.rest_ms, TICK_MS):
        due += wait_ms(cluster) == 0
        cluster.run(TICK_MS)
    assert cluster.store.version == version
    assert due <= 8


def test_ticks_that_are_not_due_do_nothing():
    cluster = up()
    machine = cluster.coordinators[OPERATOR]
    ticked = 0
    for _ in range(0, 2 * LIMITS.rest_ms, TICK_MS):
        cluster.now_ms += TICK_MS
        if machine.wait_ms(cluster.now_ms):
            assert machine.step(cluster.now_ms, Tick()) == []
            ticked += 1
    assert ticked > LIMITS.rest_ms // TICK_MS // 2


def busy_rounds(ms: int) -> int:
    return ms // LIMITS.status_ms // 2


@pytest.mark.parametrize("command", [Promote("b"), Expand("d")])
def test_a_command_ends_the_rest(command):
    cluster = up("abcd")
    assert isinstance(cluster.command(command), Accepted)
    assert asked(cluster, LIMITS.alert_ms)["a"] >= busy_rounds(LIMITS.alert_ms)


def test_a_follower_that_is_gone_for_good_does_not_keep_a_shard_from_resting():
    cluster = up()
    follower = next(name for name in cluster.nodes if name != cluster.led_by)
    cluster.kill(follower)
    cluster.run(2 * SETTLED_MS)
    assert asked(cluster, LIMITS.rest_ms)[cluster.led_by] == 1
    cluster.revive(follower)
    cluster.run(SETTLED_MS)
    assert cluster.nodes[follower].replica.leader == cluster.record.leader


def test_a_follower_that_answers_and_does_not_follow_is_looked_after():
    cluster = up(looking=False)
    follower = next(name for name in cluster.nodes if name != cluster.led_by)
    cluster.part(follower, cluster.led_by)
    cluster.nodes[follower].restart()
    cluster.run(LIMITS.rest_ms)
    assert asked(cluster, LIMITS.rest_ms)[follower] >= busy_rounds(LIMITS.rest_ms)
    cluster.cut.clear()
    cluster.run(SETTLED_MS)
    assert cluster.nodes[follower].replica.leader == cluster.record.leader


def test_T11_nobody_is_deposed_because_nobody_has_asked():
    """The first look after a rest finds old reports only: these say nothing of silence."""
    cluster = up(looking=False)
    epoch, leader = cluster.record.epoch, cluster.led_by
    cluster.hold = lambda envelope: isinstance(envelope.message, StatusReport)
    cluster.run(LIMITS.rest_ms + LIMITS.leader_timeout_ms // 2)
    cluster.release()
    cluster.run(SETTLED_MS)
    assert (cluster.record.epoch, cluster.led_by) == (epoch, leader)


@pytest.mark.parametrize("looking", [True, False])
def test_T11_a_leader_that_falls_silent_is_replaced_as_soon_as_ever_if_nodes_are_looked_at(looking):
    cluster = up(looking=looking)
    first = cluster.led_by
    cluster.kill(first)
    judged_ms = 2 * LIMITS.leader_timeout_ms + 200
    late_ms = 0 if looking else LIMITS.rest_ms
    cluster.run_until(
        lambda: cluster.record.status is Status.STEADY and cluster.led_by != first,
        judged_ms + late_ms,
    )


def test_T11_a_leader_that_only_the_coordinator_cannot_reach_is_left_alone_and_looked_at():
    cluster = up()
    epoch, leader = cluster.record.epoch, cluster.led_by
    cluster.part(OPERATOR, leader)
    cluster.run(3 * LIMITS.rest_ms)
    assert (cluster.record.epoch, cluster.led_by) == (epoch, leader)
    follower = next(name for name in cluster.nodes if name != leader)
    assert asked(cluster, LIMITS.rest_ms)[follower] >= busy_rounds(LIMITS.rest_ms)


def test_a_member_without_a_cursor_is_fenced_again_though_nothing_is_asked_meanwhile():
    cluster = up(looking=False)
    follower = next(name for name in cluster.nodes if name != cluster.led_by)
    member = cluster.nodes[follower].member
    lead = cluster.leader().replica.lead
    assert lead
    del lead.cursors[member]
    cluster.nodes[follower].restart()
    before = len(cluster.delivered)
    cluster.run(LIMITS.rest_ms + SETTLED_MS)
    assert any(type(each.message) is Fence for each in cluster.delivered[before:])
    assert cluster.nodes[follower].replica.leader == cluster.record.leader


# --- what is due ---------------------------------------------------------------------------------


def loaded(shard: Shard | None) -> Coordinator:
    machine = Coordinator("op", "orders", LIMITS)
    machine.step(1000, Loaded(1, shard))
    return machine


STEADY = Shard("orders", Status.STEADY, 3, A, ABC)


def test_what_has_not_been_read_is_due_at_once():
    assert Coordinator("op", "orders", LIMITS).wait_ms(1000) == 0


@pytest.mark.parametrize("shard", [None, Shard("orders", Status.STEADY, 3, A, ABC, halted="why")])
def test_nothing_to_do_is_never_due(shard):
    assert loaded(shard).wait_ms(1000) is None


def test_an_election_of_somebody_else_is_due_when_it_has_taken_too_long():
    machine = loaded(Shard("orders", Status.ELECTION, 3, None, ABC))
    assert machine.wait_ms(1000) == LIMITS.election_timeout_ms
    assert machine.wait_ms(1400) == LIMITS.election_timeout_ms - 400
    assert machine.wait_ms(1000 + 2 * LIMITS.election_timeout_ms) == 0


def test_what_is_said_again_is_due_when_it_is_said_again():
    machine = loaded(Shard("orders", Status.CREATING, 0, None, (Member("a", 0),)))
    assert machine.wait_ms(1000) == 0
    assert machine.step(1000, Tick())
    assert machine.wait_ms(1000) == LIMITS.resend_ms
    deleting = loaded(Shard("orders", Status.DELETING, 3, None, ABC, removed=ABC))
    assert deleting.step(1000, Tick())
    assert deleting.wait_ms(1010) == LIMITS.resend_ms - 10


def test_a_write_is_due_when_it_is_waited_for_no_longer():
    machine = loaded(STEADY)
    machine.step(1000, Commanded(1, DeleteShard()))
    assert machine.wait_ms(1000) == LIMITS.write_timeout_ms


def test_a_shard_that_was_just_read_is_looked_at_closely():
    machine = loaded(STEADY)
    assert machine.wait_ms(1000) == 0
    machine.step(1000, Tick())
    assert machine.wait_ms(1000) == 0


def test_a_clock_that_is_set_back_makes_nothing_wait_longer():
    machine = loaded(Shard("orders", Status.ELECTION, 3, None, ABC))
    assert machine.wait_ms(10) == LIMITS.election_timeout_ms
    machine.step(10, Alerted())
    assert machine.wait_ms(10) == LIMITS.election_timeout_ms
    assert machine.wait_ms(410) == LIMITS.election_timeout_ms - 400


def test_a_shard_that_does_not_exist_needs_no_ticks():
    machine = Coordinator("op", "orders", LIMITS)
    machine.step(1000, Loaded(0, None))
    assert machine.wait_ms(1000) is None
    machine.step(1000, Commanded(1, CreateShard(("a",), QuorumPolicy())))
    assert machine.wait_ms(1000) == LIMITS.write_timeout_ms
