"""The metadata store stays silent, or answers late: no coordinator is misled, and none is stuck."""

from protocol.cluster import Cluster
from protocol.harness import SHARD, only, sent
from shardlog.protocol.coordination import (
    Accepted,
    Commanded,
    CompareAndSwap,
    Contract,
    CoordinatorLimits,
    CreateShard,
    Expand,
    Load,
    Loaded,
    Rejected,
    Swapped,
)
from shardlog.protocol.coordinator import Coordinator
from shardlog.protocol.effects import Send, Tick
from shardlog.protocol.entry import Member
from shardlog.protocol.messages import Appended, Fence
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Shard, Status

LIMITS = CoordinatorLimits()
A, B, C = (Member(node, 1) for node in "abc")
STEADY = Shard(SHARD, Status.STEADY, 1, A, (A, B, C))


def coordinator() -> Coordinator:
    """One that has read a record and finds its leader silent."""
    c = Coordinator("op", SHARD, LIMITS)
    c.step(1, Loaded(5, STEADY))
    return c


def busy(c: Coordinator) -> bool:
    return c.writing


def asked(c: Coordinator, now_ms: int, command) -> CompareAndSwap:
    return only(c.step(now_ms, Commanded(1, command)), CompareAndSwap)


def test_O7_a_write_without_an_answer_is_given_up_and_the_record_read_again():
    c = coordinator()
    asked(c, 2, Contract("c"))
    assert not c.step(LIMITS.write_timeout_ms, Tick())
    effects = c.step(2 + LIMITS.write_timeout_ms, Tick())
    assert sent(effects, Load)
    assert only(effects, Rejected).reason == "the metadata did not answer: it may be done, or not"


def test_O7_what_stands_without_an_answer_is_found_in_the_record():
    c = coordinator()
    wanted = asked(c, 2, Contract("c"))
    c.step(2 + LIMITS.write_timeout_ms, Tick())
    c.step(3000, Loaded(6, wanted.shard))
    assert (c.version, c.record, c.writing) == (6, wanted.shard, False)


def test_O7_until_the_record_has_been_read_again_nothing_is_done():
    c = coordinator()
    asked(c, 2, Contract("c"))
    again_ms = 2 + LIMITS.write_timeout_ms
    c.step(again_ms, Tick())
    assert not c.step(again_ms + 1, Tick())
    assert sent(c.step(again_ms + LIMITS.write_timeout_ms, Tick()), Load), "that was lost, too"
    c.step(9000, Loaded(5, STEADY))
    assert (c.version, c.writing) == (5, False)


def election_given_up() -> tuple[Coordinator, CompareAndSwap]:
    """It wrote an election, heard nothing, and gave up."""
    c = coordinator()
    c.now_ms = 10
    c.write(Shard(SHARD, Status.ELECTION, 2, None, (A, B, C)), c.intent.ELECT)
    wanted = only(c.out, CompareAndSwap)
    c.step(10 + LIMITS.write_timeout_ms, Tick())
    assert busy(c)
    return c, wanted


def test_O1_an_election_whose_answer_came_too_late_is_not_driven():
    c, wanted = election_given_up()
    effects = c.step(2100, Swapped(True, 6, wanted.shard))
    assert c.record == wanted.shard
    assert c.election is None
    assert not [each for each in effects if isinstance(each, Send)]
    after = 2100 + LIMITS.election_timeout_ms
    again = only(c.step(after, Tick()), CompareAndSwap).shard
    assert again is not None
    assert again.epoch == 3


def test_O1_a_late_answer_is_not_taken_for_the_one_that_is_awaited():
    c, wanted = election_given_up()
    c.step(2050, Loaded(5, STEADY))
    later = asked(c, 2100, Expand("d"))
    assert later.version == wanted.version
    c.step(2200, Swapped(True, 6, wanted.shard))
    assert busy(c)
    assert c.election is None
    effects = c.step(2300, Swapped(False, 6, wanted.shard))
    assert only(effects, Rejected).reason == "the shard changed meanwhile"
    assert (c.version, c.record) == (6, wanted.shard)
    assert not sent(effects, Fence)


def test_O7_a_refusal_that_comes_late_ends_no_later_write():
    c = coordinator()
    asked(c, 2, Expand("d"))
    c.step(2 + LIMITS.write_timeout_ms, Tick())
    c.step(2100, Loaded(7, STEADY))
    assert not busy(c)
    wanted = asked(c, 2200, Contract("c"))
    assert not c.step(2300, Swapped(False, 7, STEADY))
    assert busy(c)
    assert sent(c.step(2400, Swapped(True, 8, wanted.shard)), Accepted)


def test_O7_a_shard_comes_up_though_most_answers_are_lost():
    cluster = Cluster(operators=["op"])
    cluster.store.lost = 0.7
    cluster.run(1000)
    cluster.command(CreateShard(("a", "b", "c"), QuorumPolicy()))
    cluster.run(60_000)
    assert cluster.store.unanswered
    assert cluster.record.status is Status.STEADY
    assert isinstance(cluster.append(cluster.register(), 1), Appended)
