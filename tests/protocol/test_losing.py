"""What is damaged everywhere is given up by people's word alone, and nothing else with it."""

from dataclasses import replace

import pytest

from protocol.cluster import Cluster
from protocol.test_choice import ABC, MAJORITY, A, B, answer, answers
from protocol.test_repairing import shard_of_five_entries, struck
from shardlog.protocol.awaiting import at_stake, awaited
from shardlog.protocol.choice import Decision, Waiting, decide
from shardlog.protocol.coordination import Accepted, AcceptLoss, Promote, Rejected
from shardlog.protocol.effects import ReadFailed
from shardlog.protocol.entry import EntryId, Kind, unreadable
from shardlog.protocol.failures import EntryLost
from shardlog.protocol.log import Mark
from shardlog.protocol.messages import Read
from shardlog.protocol.shard import Status
from shardlog.protocol.stakes import loss_of
from shardlog.protocol.states import Role

X = EntryId(1, 3)


def halted() -> Cluster:
    cluster = shard_of_five_entries()
    struck(cluster, a=[3], b=[3], c=[3])
    assert cluster.record.status is Status.ELECTION
    return cluster


def give_up(cluster: Cluster, entry: EntryId = X) -> None:
    answer = cluster.command(AcceptLoss(entry), "op")
    assert isinstance(answer, Accepted), answer
    cluster.run(1500)


def kinds(node):
    return [header.kind for header in node.replica.log.headers]


def test_T3_only_the_entry_that_is_awaited_can_be_given_up():
    cluster = halted()
    for wrong in (EntryId(1, 2), EntryId(1, 4), EntryId(2, 3)):
        answer = cluster.command(AcceptLoss(wrong), "op")
        assert isinstance(answer, Rejected)
        assert str(X) in answer.reason
    cluster.run(1500)
    assert cluster.record.status is Status.ELECTION
    assert (cluster.record.accepting, cluster.record.losses) == (None, ())


def test_T3_nothing_else_is_lost_with_what_is_given_up():
    cluster = halted()
    before = [header.checksum for header in cluster.nodes["a"].replica.log.headers]
    stake = at_stake(cluster.coordinators["op"])
    assert stake is not None
    assert (stake.id, stake.end) == (X, 4)
    give_up(cluster)
    assert cluster.record.status is Status.STEADY
    assert cluster.record.accepting is None
    assert [lost.id for lost in cluster.record.losses] == [X]
    for node in cluster.nodes.values():
        log = node.replica.log
        assert [header.checksum for header in log.headers][: len(before)] == before
        assert [header.base for header in log.headers if header.kind is Kind.LOST] == [3]
        assert not log.marks
    session = cluster.register()
    assert cluster.append(session, 1).base > 5, "and the shard serves"


def test_T3_a_reader_is_told_once_it_comes_to_what_is_lost():
    cluster = halted()
    give_up(cluster)
    cluster.run(200)
    cluster.tell(cluster.leader().name, Read(7, 3, 10), "client")
    cluster.run(200)
    refused = [each for each in cluster.replies if getattr(each, "nonce", 0) == 7]
    assert [each.refusal for each in refused] == [EntryLost(3, 4)]


def test_T3_what_was_given_up_survives_a_restart_of_all():
    cluster = halted()
    give_up(cluster)
    struck(cluster)
    assert cluster.record.status is Status.STEADY
    assert len(cluster.record.losses) == 1
    for node in cluster.nodes.values():
        assert kinds(node).count(Kind.LOST) == 1


def test_T3_a_copy_that_turns_up_before_the_election_is_over_is_kept():
    cluster = shard_of_five_entries()
    cluster.kill("c")
    struck_two(cluster)
    assert str(X) in str(awaited(cluster.coordinators["op"]))
    cluster.coordinators["op"].limits = replace(cluster.coordinators["op"].limits, resend_ms=5000)
    assert isinstance(cluster.command(AcceptLoss(X), "op"), Accepted)
    cluster.coordinators["op"].limits = replace(cluster.coordinators["op"].limits, resend_ms=150)
    assert cluster.record.accepting == X
    cluster.coordinators["op"].election.started_ms = cluster.now_ms
    cluster.coordinators["op"].election.sent_ms = -1
    cluster.revive("c")
    cluster.run(2000)
    assert cluster.record.status is Status.STEADY
    assert (cluster.record.accepting, cluster.record.losses) == (None, ())
    assert all(Kind.LOST not in kinds(node) for node in cluster.nodes.values())


def struck_two(cluster):
    for name in "ab":
        cluster.kill(name)
        cluster.nodes[name].disk.bad |= {3: Mark.CORRUPT}
    for name in "ab":
        cluster.revive(name)
    cluster.run(6000)


def test_T3_a_member_that_was_away_keeps_what_the_others_gave_up():
    cluster = shard_of_five_entries()
    cluster.kill("c")
    struck_two(cluster)
    give_up(cluster)
    assert cluster.record.status is Status.STEADY
    cluster.revive("c")
    cluster.run(1000)
    c = cluster.nodes["c"].replica
    assert c.role is Role.FOLLOWER
    assert c.log.starting_at(3).kind is Kind.DATA
    assert c.log.end == cluster.leader().replica.log.end


def test_T3_a_shard_that_serves_elects_to_give_up_what_nobody_can_repair():
    cluster = shard_of_five_entries()
    cluster.run(500)
    for name, node in cluster.nodes.items():
        node.disk.bad |= {3: Mark.CORRUPT}
        cluster._step(name, ReadFailed(3))
    cluster.run_until(lambda: awaited(cluster.coordinators["op"]) is not None, 20_000)
    cluster.run(6000)
    assert cluster.record.status is Status.STEADY
    waiting = awaited(cluster.coordinators["op"])
    assert waiting is not None
    assert waiting.entry == X
    assert {member.node for member in waiting.members} == {"a", "b", "c"}
    give_up(cluster)
    cluster.run(1000)
    assert cluster.record.status is Status.STEADY
    assert [lost.id for lost in cluster.record.losses] == [X]
    assert awaited(cluster.coordinators["op"]) is None


# --- what is at stake ----------------------------------------------------------------------------


def test_T3_a_copy_that_has_answered_is_never_given_up():
    told = answers(a=answer(A, [1, 1, 1], bad={1: Mark.CORRUPT}), b=[1, 1, 1])
    assert loss_of(EntryId(1, 1), told) is None


def test_T3_without_any_header_the_entry_behind_tells_the_checksum():
    bad = {1: Mark.FAULT}
    told = answers(a=answer(A, [1, 1, 1], bad=bad), b=answer(B, [1, 1, 1], bad=bad))
    whole = answers(a=[1, 1, 1])[A]
    lost = loss_of(EntryId(1, 1), told)
    assert lost == unreadable(1, 1, 1)._replace(checksum=whole.slots[1].checksum)
    assert isinstance(decide(told, (ABC,), MAJORITY), Waiting)
    decision = decide(told, (ABC,), MAJORITY, losses=(lost,))
    assert isinstance(decision, Decision)
    assert decision.kept.end == 3, "all else is kept"


def test_T3_without_any_checksum_an_uncommitted_entry_is_cut():
    """The entry behind it is not there: a marker would have its id, and another checksum."""
    told = answers(a=[1, 1], b=[1, 1])
    for member, each in told.items():
        first, second = each.slots
        bad = replace(second, checksum=0, mark=Mark.FAULT)
        told[member] = replace(each, head=0, slots=(first, bad))
    lost = loss_of(EntryId(1, 1), told)
    assert lost == unreadable(1, 1, 0)
    decision = decide(told, (ABC,), MAJORITY, losses=(lost,))
    assert isinstance(decision, Decision)
    assert decision.kept.end == 1


def test_T3_a_tail_that_somebody_knows_to_be_committed_is_never_cut():
    told = answers(a=answer(A, [1, 1], commit=2, bad={1: Mark.CORRUPT}), b=[1])
    lost = unreadable(1, 1, 0)
    assert isinstance(decide(told, (ABC,), MAJORITY, losses=(lost,)), Waiting)


@pytest.mark.parametrize("other", [EntryId(2, 1), EntryId(1, 2)])
def test_T3_a_loss_is_of_one_entry_alone(other):
    bad = {1: Mark.CORRUPT}
    told = answers(a=answer(A, [1, 1, 1], bad=bad), b=answer(B, [1, 1, 1], bad=bad))
    lost = unreadable(other.epoch, other.offset, 1)
    assert isinstance(decide(told, (ABC,), MAJORITY, losses=(lost,)), Waiting)


def test_rule_23_a_tail_that_was_given_up_is_withdrawn_if_the_log_goes_on_behind_a_marker():
    """It would be taken the next time that just this marker is damaged, and cut there."""
    cluster = halted()
    record = cluster.record
    cluster.restore(replace(record, losses=(unreadable(1, 3, 0),)))
    cluster.run_until(lambda: awaited(cluster.coordinators["op"]) is not None, 3000)
    give_up(cluster)
    assert cluster.record.status is Status.STEADY
    assert [lost.count for lost in cluster.record.losses] == [1]


@pytest.mark.parametrize("leader", ["a", "c"])
def test_T3_rule_23_H4_4_a_loss_that_a_leader_has_after_all_is_withdrawn(leader):
    """The operator dies before a leader is told of it, and c, which has the entry, is back.

    If c lacks later ones, another leads, and gets the entry from c: the next leader has it whole.
    """
    cluster = shard_of_five_entries()
    cluster.kill("c")
    if leader == "a":
        cluster.append(cluster.register(), 1)
    struck_two(cluster)

    def die(_: str) -> None:
        if cluster.record.losses:
            cluster.kill("op")

    cluster.on_line = die
    assert isinstance(cluster.command(AcceptLoss(X), "op"), Accepted)
    assert [lost.id for lost in cluster.record.losses] == [X]
    cluster.on_line = lambda _: None
    cluster.kill("b")
    cluster.revive("c")
    cluster.revive("op")
    cluster.run(4000)
    cluster.revive("b")
    cluster.run(1000)
    assert cluster.record.status is Status.STEADY
    assert cluster.led_by == leader
    if leader == "a":
        cluster.command(Promote("c"), "op")
        cluster.run(4000)
    assert cluster.record.losses == ()
    assert all(Kind.LOST not in kinds(node) for node in cluster.nodes.values())
    # The next time a person is asked again.
    cluster.kill("c")
    struck_two(cluster)
    assert cluster.record.leader is None
    assert str(X) in str(awaited(cluster.coordinators["op"]))
