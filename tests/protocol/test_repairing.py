"""Repair: from those who hold a good copy, and what happens when nobody does."""

import pytest

from protocol.cluster import Cluster
from protocol.harness import (
    LEADER,
    Node,
    chain,
    entries,
    follower,
    history_of,
    lead_of,
    only,
    restarted,
    sent,
)
from shardlog.protocol.effects import (
    Limits,
    ReadFailed,
    RewriteEntry,
    Send,
    SendFetched,
    WriteEntries,
)
from shardlog.protocol.entry import Kind, Member
from shardlog.protocol.history import OPEN_END, Span
from shardlog.protocol.log import Mark
from shardlog.protocol.messages import (
    Ack,
    Announce,
    BecameLeader,
    BecomeLeader,
    CannotServe,
    Entries,
    Fence,
    Fetch,
    Fetched,
    Heartbeat,
    Kept,
)
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.states import Role

A, B, C = (Member(node, 1) for node in "abc")
LOG = chain([1, 1, 1, 1])
HISTORY = history_of(LOG)
LIMITS = Limits(repair_tries_max=3)


def asked(effects):
    """Whom was asked for what."""
    fetches = [each.envelope for each in effects if isinstance(each, Send)]
    return [
        (each.dst, each.message.start, each.message.end)
        for each in fetches
        if isinstance(each.message, Fetch)
    ]


def candidate(headers=LOG, bad=None, kept=LOG, sources=(B, C)) -> Node:
    """A, told to lead with `kept`, of which some is bad or missing here."""
    node = restarted("a", headers, bad=bad or {}, limits=LIMITS)
    node.receive(Fence(2))
    keep = Kept(history_of(kept), len(kept), kept[-1].checksum)
    node.receive(BecomeLeader(2, (A, B, C), QuorumPolicy(), keep, sources, ()))
    return node


def given(node, *headers, src=B):
    return node.receive(Fetched(2, entries(headers)), src)


# --- a new leader makes its log whole ----------------------------------------------------------


@pytest.mark.parametrize("mark", [Mark.CORRUPT, Mark.FAULT])
def test_T3_a_leader_repairs_before_it_opens_its_epoch(mark):
    node = candidate(bad={1: mark})
    assert not lead_of(node).serving
    assert asked(node.tick()) == [("c", 1, 2)]
    effects = given(node, LOG[1])
    assert only(effects, RewriteEntry).entry.header == LOG[1]
    assert only(effects, BecameLeader).epoch == 2
    assert [each.kind for each in node.replica.log.headers[-1:]] == [Kind.EPOCH_START]


def test_T3_a_leader_fetches_what_it_lacks_in_order():
    node = candidate(headers=LOG[:2])
    assert asked(node.tick()) == [("c", 2, 4)]
    assert not sent(given(node, LOG[3]), WriteEntries)
    assert sent(given(node, LOG[2]), WriteEntries)
    assert only(given(node, LOG[3]), BecameLeader).epoch == 2


def test_T3_the_oldest_bad_entry_is_asked_for_first():
    node = candidate(bad={1: Mark.CORRUPT, 3: Mark.CORRUPT})
    assert asked(node.tick()) == [("c", 1, 2)]
    assert asked(given(node, LOG[1]))[0][1:] == (3, 4)


def test_T3_sources_are_asked_in_turn():
    node = candidate(bad={1: Mark.CORRUPT})
    assert [asked(node.tick(100))[0][0] for _ in range(3)] == ["c", "b", "c"]


def test_T3_what_does_not_fit_the_chain_is_not_taken():
    node = candidate(bad={1: Mark.FAULT})
    other = chain([2, 1])[1]
    assert not sent(given(node, other), RewriteEntry)
    assert not node.replica.log.present(1)


def test_T3_nothing_of_another_history_is_taken():
    node = candidate(headers=LOG[:2])
    other = chain([0], start=2, parent=LOG[1].checksum)[0]
    assert not sent(given(node, other), WriteEntries)


def test_T3_a_repair_is_durable_before_the_epoch_is_opened():
    node = candidate(bad={1: Mark.CORRUPT})
    effects = node.take(Fetched(2, entries(LOG[1:2])), B)
    assert sent(effects, RewriteEntry)
    assert not sent(effects, WriteEntries), "the epoch-start entry waits"


def test_T13_a_candidate_that_cannot_repair_says_so_and_steps_down():
    node = candidate(bad={2: Mark.CORRUPT})
    effects = [each for _ in range(LIMITS.repair_tries_max + 1) for each in node.tick(100)]
    assert only(effects, CannotServe) == CannotServe(2, 2)
    assert node.replica.role is Role.FENCED


# --- answering a fetch -------------------------------------------------------------------------


def fetched_from(node, start, end, history=HISTORY):
    return [
        [header.base for header in each.headers]
        for each in sent(node.receive(Fetch(2, history, start, end), LEADER), SendFetched)
    ]


def test_T3_what_is_intact_is_sent():
    assert fetched_from(follower(LOG), 1, 3) == [[1, 2]]


def test_T3_a_bad_copy_stays_silent():
    node = restarted("b", LOG, bad={1: Mark.CORRUPT})
    assert fetched_from(node, 1, 3) == []
    assert fetched_from(node, 0, 3) == [[0]]


def test_T3_an_entry_of_another_history_is_not_sent():
    assert fetched_from(follower(LOG), 1, 3, history=(Span(1, 0), Span(2, 2))) == [[1]]
    assert fetched_from(follower(LOG), 2, 3, history=(Span(1, 0), Span(2, 2))) == []


# --- a follower's own repair -------------------------------------------------------------------


def damaged(base=1, commit=4):
    node = follower(LOG, commit)
    node.step(ReadFailed(base))
    return node


def test_T3_a_follower_asks_its_leader_for_what_it_cannot_read():
    assert asked(damaged().tick()) == [("a", 1, 2)]


@pytest.mark.parametrize("commit", [0, 1])
def test_T3_a_follower_acks_only_up_to_what_is_bad(commit):
    node = damaged(2, commit)
    assert only(node.receive(Heartbeat(1, 0, 0, 1, True), LEADER), Ack).end == 2


def test_T3_a_repaired_slot_is_acked_only_when_it_is_synced():
    node = damaged(2, commit=1)
    effects = node.take(Fetched(1, entries(LOG[2:3])), LEADER)
    meanwhile = node.take(Heartbeat(1, 0, 0, 1, True), LEADER)
    assert only(meanwhile, Ack).end == 2
    assert only(node.finish(effects), Ack).end == 4


def test_T3_damage_below_the_commit_offset_does_not_hold_up_acks():
    node = damaged(1, commit=4)
    assert only(node.receive(Heartbeat(1, 0, 0, 1, True), LEADER), Ack).end == 4


# --- a tail that cannot be read ----------------------------------------------------------------


def in_doubt() -> Node:
    """B follows in epoch 2; it cannot read the two slots from 2 on, nor where they ended."""
    node = restarted("b", LOG, bad={2: Mark.FAULT, 3: Mark.FAULT})
    node.receive(Fence(2))
    node.receive(Announce(2, HISTORY, 9, OPEN_END, 0, False, None), LEADER)
    return node


def feed(node, headers):
    return node.receive(Entries(2, entries(headers), 0, 0), LEADER)


def test_T2_a_tail_stays_in_doubt_until_as_many_entries_have_come_as_it_had_slots():
    node = in_doubt()
    feed(node, LOG[2:3])
    assert (node.replica.log.end, node.replica.log.open_tail) == (3, True)
    feed(node, LOG[3:])
    assert (node.replica.log.end, node.replica.log.open_tail) == (4, False)


@pytest.mark.parametrize(("upto", "doubtful"), [(2, True), (3, True), (4, False)])
def test_T2_a_tail_is_after_a_restart_as_it_was_before(upto, doubtful):
    node = in_doubt()
    feed(node, LOG[2:upto])
    node.restart()
    told = node.answer()
    assert (told.end, told.open_tail) == (upto, doubtful)


# --- a whole shard -----------------------------------------------------------------------------


def shard_of_five_entries():
    cluster = Cluster(operators=["op"], limits=LIMITS)
    cluster.bring_up()
    session = cluster.register()
    for request in range(1, 5):
        cluster.append(session, request, b"body %d" % request)
    cluster.run(200)
    return cluster


def struck(cluster, **damage):
    """Every node goes down, some entries cannot be read any more, every node comes back."""
    for name in "abc":
        cluster.kill(name)
    for name, bases in damage.items():
        cluster.nodes[name].disk.bad |= dict.fromkeys(bases, Mark.CORRUPT)
    for name in "abc":
        cluster.revive(name)
    cluster.run(6000)


def test_T3_disjoint_damage_over_all_nodes_is_healed_to_the_byte():
    cluster = shard_of_five_entries()
    whole = dict(cluster.leader().disk.entries)
    struck(cluster, a=[0, 3], b=[1, 4], c=[2, 5])
    cluster.run(2000)
    leader = cluster.leader()
    for node in cluster.nodes.values():
        assert not node.disk.bad
        assert not node.replica.log.marks
        assert node.disk.entries == leader.disk.entries
    assert whole.items() <= leader.disk.entries.items()


def test_T3_the_same_entry_bad_everywhere_is_a_safe_halt_with_a_reason():
    cluster = shard_of_five_entries()
    struck(cluster, a=[3], b=[3], c=[3])
    election = cluster.coordinators["op"].election
    assert "no valid copy has answered" in str(election.waiting)
    assert "(1,3)" in str(election.waiting)
    assert all(node.replica.role is Role.FENCED for node in cluster.nodes.values())
    assert all(node.replica.log.end == 6 for node in cluster.nodes.values()), "nothing is cut"


def test_T2_a_corrupt_copy_and_a_dead_holder_stop_the_election_until_the_holder_is_back():
    cluster = Cluster()
    cluster.create()
    a = cluster.elect(1, "abc")
    session = cluster.register()
    cluster.part("a", "c")
    written = cluster.append(session, 1, b"precious")
    cluster.kill("a")
    cluster.nodes["b"].disk.bad[written.base] = Mark.CORRUPT
    cluster.revive("b")
    with pytest.raises(AssertionError, match="no valid copy has answered"):
        cluster.elect(2, "bc")
    cluster.revive("a")
    cluster.cut.clear()
    leader = cluster.elect(3, "abc")
    assert leader.disk.entries[written.base].body == b"precious"
    assert leader is a


def test_T13_another_choice_in_a_new_epoch():
    """B and C each lack a good copy of one entry; B is chosen, and what C sends it is lost."""
    cluster = shard_of_five_entries()
    cluster.kill("a")
    cluster.nodes["b"].disk.bad[5] = cluster.nodes["c"].disk.bad[3] = Mark.CORRUPT
    for name in "bc":
        cluster.kill(name)
        cluster.revive(name)
    cluster.hold = lambda each: each.dst == "b" and isinstance(each.message, Fetched)
    cluster.run(5000)
    asked = [each for each in cluster.delivered if isinstance(each.message, BecomeLeader)]
    assert list(dict.fromkeys((each.dst, each.message.epoch) for each in asked[1:])) == [
        ("b", 2),
        ("c", 3),
    ]
    assert "b → op: CannotServe" in cluster.lines
    assert cluster.leader().name == "c"
