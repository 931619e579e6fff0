"""An old backup of the metadata, whose ensemble is not the one that is led now (rule 21)."""

from dataclasses import replace

import pytest

from protocol.cluster import Cluster
from protocol.harness import (
    LEADER,
    SHARD,
    chain,
    fenced,
    fenced_answer,
    follower,
    leading,
    only,
    refusal,
    sent,
)
from shardlog.protocol import contradiction
from shardlog.protocol.contradiction import ADVICE
from shardlog.protocol.coordination import (
    Command,
    Contract,
    CoordinatorLimits,
    Expand,
    Promote,
    Rejected,
    Swap,
)
from shardlog.protocol.entry import Entry, Member
from shardlog.protocol.failures import DifferentEntry, OtherElection
from shardlog.protocol.messages import (
    Ack,
    AddFollower,
    Appended,
    BecomeLeader,
    Entries,
    Envelope,
    Fence,
    FenceAnswer,
    Heartbeat,
    Membership,
    Operation,
    Reconfiguration,
    Refused,
    StatusReport,
    StatusRequest,
)
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Phase, Shard, Status
from shardlog.protocol.states import Role

LONG_MS = 4 * CoordinatorLimits().election_timeout_ms


def up() -> Cluster:
    cluster = Cluster("abcd", operators=["op"])
    cluster.bring_up("abc")
    return cluster


def changed(cluster: Cluster, command: Command) -> Shard:
    """Carry it out, and return the record from before."""
    old = cluster.record
    cluster.command(command)
    cluster.run(LONG_MS)
    assert cluster.record.ensemble != old.ensemble
    assert cluster.record.epoch > old.epoch
    return old


def written(cluster: Cluster) -> int:
    answer = cluster.append(cluster.register(), 1, b"written")
    assert isinstance(answer, Appended), answer
    return answer.base


def is_halted(cluster: Cluster) -> bool:
    return cluster.record.halted is not None


@pytest.mark.parametrize("command", [Swap("c", "d"), Expand("d")])
def test_rule_21_a_leader_of_members_that_the_record_does_not_know_halts_the_shard(command):
    cluster = up()
    old = changed(cluster, command)
    leader, epoch = cluster.leader(), cluster.record.epoch
    cluster.restore(old)
    cluster.run(LONG_MS)
    assert cluster.record.halted == f"{leader.name} leads another ensemble; {ADVICE}"
    assert (cluster.record.ensemble, cluster.record.epoch) == (old.ensemble, old.epoch)
    # Its leader serves on, and nobody takes that from it or wants anything of the shard.
    assert cluster.leader() is leader
    assert leader.replica.epoch == epoch
    written(cluster)
    refused = cluster.command(Contract("b"))
    assert isinstance(refused, Rejected)
    cluster.run(2 * LONG_MS)
    assert cluster.leader() is leader
    assert leader.replica.epoch == epoch


def test_rule_21_a_follower_of_a_leader_that_the_record_does_not_know_halts_the_shard():
    """Nobody asks that leader: the record does not name it.  Who follows it knows enough."""
    cluster = up()
    old = changed(cluster, Swap("c", "d"))
    cluster.command(Promote("d"))
    cluster.run(LONG_MS)
    leader = cluster.leader()
    assert leader.name == "d"
    epoch = leader.replica.epoch
    cluster.restore(old)
    cluster.run(LONG_MS)
    assert cluster.record.halted in [
        f"{node} follows d, which is of another ensemble; {ADVICE}" for node in "ab"
    ]
    cluster.run(LONG_MS)
    assert cluster.leader() is leader
    assert leader.replica.epoch == epoch
    written(cluster)


def test_rule_21_a_halt_is_over_when_the_right_record_is_back():
    cluster = up()
    old = changed(cluster, Swap("c", "d"))
    right = cluster.record
    cluster.restore(old)
    cluster.run(LONG_MS)
    assert is_halted(cluster)
    cluster.restore(right)
    cluster.run(LONG_MS)
    assert cluster.record.status is Status.STEADY
    assert not is_halted(cluster)
    written(cluster)


def restart_all(cluster: Cluster, *absent: str) -> None:
    for name in cluster.nodes:
        if name not in cluster.down:
            cluster.kill(name)
    for name in cluster.nodes:
        if name not in absent:
            cluster.revive(name)


def moved_to_other_nodes(cluster: Cluster) -> tuple[Shard, int]:
    """a, b and c become a, d and e; b and c are down meanwhile and keep what they had.

    Returns the record from before, and the offset of a record that was acknowledged since.
    """
    old = cluster.record
    for gone, new in (("b", "d"), ("c", "e")):
        cluster.kill(gone)
        cluster.run(LONG_MS)
        cluster.command(Swap(gone, new))
        cluster.run(2 * LONG_MS)
    cluster.run(500)
    assert [each.node for each in cluster.record.ensemble] == ["a", "d", "e"]
    return old, written(cluster)


def test_rule_21_H4_2_a_fenced_member_knows_of_another_ensemble_while_nobody_leads():
    cluster = Cluster("abcde", operators=["op"])
    cluster.bring_up("abc")
    old, _ = moved_to_other_nodes(cluster)
    restart_all(cluster)
    cluster.restore(old)
    cluster.run(LONG_MS)
    assert cluster.record.halted == (
        f"a was told of d#4, which the record does not know, in epoch 3; {ADVICE}"
    )


def test_rule_21_BelowCommit_between_members_halts_the_shard():
    """Only the commit offset of a member contradicts the leader's log: nobody knows of a change."""
    cluster = up()
    offset = written(cluster)
    leader = cluster.leader()
    member = next(each for each in cluster.record.ensemble if each != cluster.record.leader)
    answer = replace(cluster.nodes[member.node].replica.fence_answer(), election=0)
    answer = replace(answer, epoch=leader.replica.epoch, end=offset + 9, commit=offset + 9)
    cluster.tell(leader.name, AddFollower(leader.replica.epoch, answer, standby=False))
    cluster.run(500)
    assert cluster.record.halted == (
        f"a member has committed offsets below {offset + 9} that {leader.name}, the leader, lacks;"
        f" {ADVICE}"
    )


@pytest.mark.parametrize("order", ["cdae", "acde"])
def test_rule_21_H4_2_a_shard_that_halts_in_an_election_chooses_nobody(order):
    """Those who know nothing of the change are a fencing quorum, and answer too."""
    cluster = Cluster("abcdef", operators=["op"])
    cluster.bring_up("abcde")
    old = cluster.record
    for name in "cde":
        cluster.kill(name)
    cluster.command(Swap("e", "f"))
    cluster.run_until(lambda: "f" in [each.node for each in cluster.record.ensemble], LONG_MS)
    restart_all(cluster, "f")
    for name in "cde":
        cluster.revive(name)
    cluster.restore(old)
    cluster.hold = lambda e: isinstance(e.message, FenceAnswer)
    cluster.run_until(lambda: len({each.src for each in cluster.held}) == 5, LONG_MS)
    epoch = cluster.record.epoch
    answers = {each.src: each for each in cluster.held if is_of(each, FenceAnswer, epoch)}
    cluster.held.clear()
    cluster.hold = lambda e: isinstance(e.message, Fence)
    for name in order:
        cluster._send(answers[name])
    cluster.run(LONG_MS)
    assert cluster.record.halted
    assert cluster.record.status is Status.ELECTION
    assert not [each for each in cluster.delivered if is_of(each, BecomeLeader, epoch)]


def is_of(envelope: Envelope, kind: type[FenceAnswer | BecomeLeader], epoch: int) -> bool:
    return isinstance(envelope.message, kind) and envelope.message.epoch == epoch


def test_rule_21_H4_2_an_ensemble_that_shrank_by_more_than_quorums_bridge_halts_the_shard():
    """Of five members two went: what two of three committed, three of five need not hold."""
    cluster = Cluster("abcde", operators=["op"])
    cluster.bring_up("abcde")
    old = cluster.record
    keep = cluster.led_by
    gone = [each for each in "abcde" if each != keep][:2]
    for name in gone:
        cluster.command(Contract(name))
        cluster.run(LONG_MS)
    assert len(cluster.record.ensemble) == 3
    restart_all(cluster)
    cluster.restore(old)
    cluster.run(LONG_MS)
    assert is_halted(cluster)


def test_rule_21_H4_13_a_number_that_is_led_twice_is_two_epochs():
    """One node is a fencing quorum, so nobody who reports need know of the election it was in.

    Its number is given again, to another election; whoever took part in the first refuses that,
    and the coordinator goes above both.
    """
    cluster = Cluster("abc", operators=["op"], policy=QuorumPolicy(3, 1))
    cluster.bring_up("abc")
    session = cluster.register()
    backup = cluster.record
    first, second = [each.node for each in backup.ensemble if each != backup.leader]

    def cut(line: str) -> None:
        if line.startswith("metadata: ELECTION"):
            cluster.cut |= {("op", each) for each in "abc" if each != first}
            cluster.part("a", "b", "c")

    cluster.on_line = cut
    cluster.command(Promote(first))
    cluster.run(400)
    cluster.on_line = lambda line: None
    led = cluster.nodes[first].replica
    assert (led.lead is not None, led.epoch) == (True, backup.epoch + 1)
    cluster.append(session, 1, b"never acknowledged", to=cluster.nodes[first])
    cluster.kill(first)
    cluster.cut.clear()
    cluster.voices.clear()
    cluster.restore(backup)
    cluster.run(100)
    cluster.command(Promote(second))
    cluster.run_until(lambda: cluster.nodes[second].replica.lead is not None, LONG_MS)
    again = cluster.nodes[second].replica
    assert again.epoch == led.epoch
    assert again.election != led.election
    cluster.append(session, 1, b"acknowledged", to=cluster.nodes[second])
    cluster.run(100)
    cluster.voices.clear()
    cluster.revive(first)
    cluster.run(2 * LONG_MS)
    assert cluster.leader().replica.epoch > led.epoch
    answer = cluster.append(session, 1, b"acknowledged")
    assert isinstance(answer, Appended)
    cluster.run(500)
    for node in cluster.nodes.values():
        assert node.disk.entries[answer.base].body == b"acknowledged"
        assert node.replica.commit > answer.base


def test_rule_21_H4_1_a_fence_of_another_election_of_the_same_epoch_is_refused():
    node = fenced("b", epoch=2)
    node.receive(Fence(3, election=7))
    assert only(node.receive(Fence(3, election=8)), Refused).refusal == OtherElection(3)
    assert only(node.receive(Fence(3, election=7)), FenceAnswer).election == 7
    node.restart()
    assert only(node.receive(Fence(3, election=8)), Refused).refusal == OtherElection(3)


def test_T1_H4_10_who_holds_another_entry_than_its_leader_acknowledges_nothing_more():
    ours = chain([1, 1, 1])
    theirs = ours[:1] + chain([1, 1], start=1, parent=ours[0].checksum, body=b"another")
    node = follower(ours)
    entries = tuple(Entry(header, b"another") for header in theirs)
    assert isinstance(refusal(node.receive(Entries(1, entries, 0, 0), LEADER)), DifferentEntry)
    assert not sent(node.receive(Heartbeat(1, 0, 0, 7, True), LEADER), Ack)


def test_rule_21_members_that_the_record_knows_contradict_nothing():
    """After a contraction the backup knows one member more: it is raised above the leader."""
    cluster = up()
    old = changed(cluster, Contract("c"))
    promised = cluster.record.epoch
    offset = written(cluster)
    cluster.restore(old)
    cluster.run(3 * LONG_MS)
    assert not is_halted(cluster)
    assert cluster.record.epoch > promised
    assert cluster.leader().disk.entries[offset].body == b"written"
    written(cluster)


def test_rule_21_a_deposed_leader_from_before_the_last_change_contradicts_nothing():
    """It was cut off when another one was elected and a member was swapped, and answers a poll."""
    cut_off = leading(chain([1, 1]), epoch=5)
    report = only(cut_off.receive(StatusRequest(9)), StatusReport)
    a, b, c, d = (Member(name, 1) for name in "abcd")
    assert (report.role, report.ensemble) == (Role.LEADER, (a, b, c))
    record = Shard(SHARD, Status.STEADY, 9, b, (a, b, d), changed_in=8)
    assert contradiction.of_report(record, report) is None
    assert contradiction.of_report(replace(record, changed_in=4), report) is not None


def test_rule_21_the_ensemble_of_a_change_that_is_prepared_contradicts_nothing():
    """A follower is told of it with PREPARE, restarts, and is fenced again to be taken up."""
    members = tuple(Member(name, 1) for name in "abcdef")
    change = Reconfiguration(Operation.CONTRACT, members, members[5], None)
    told = Membership(10, 0, change.after)
    answer = replace(fenced_answer("c", chain([1]), 10), membership=told)
    record = Shard(SHARD, Status.STEADY, 10, members[0], members, QuorumPolicy(6, 1), changed_in=8)
    prepared = replace(record, change=change, phase=Phase.PREPARE)
    assert contradiction.of_answer(prepared, answer) is None
    assert contradiction.of_answer(record, answer) is not None
