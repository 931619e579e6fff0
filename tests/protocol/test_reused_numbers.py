"""A used number with another batch is no retry: it is refused, and never answered as appended."""

import pytest

from protocol.cluster import Cluster
from protocol.harness import CLIENT, acked, chain, leading, only, sent
from shardlog.protocol.entry import Kind, marker, sealed
from shardlog.protocol.failures import DifferentRequest, NotReady, ReplyForgotten
from shardlog.protocol.messages import (
    Append,
    Appended,
    ClientRefused,
    InstallSnapshot,
    Register,
    Registered,
    SnapshotOffer,
    SnapshotRequest,
    Trim,
)
from shardlog.sim.seal import seal, seal_body

VICTIM, THIEF = b"of the one whose session it is", b"of another who read its number"


def hijacked() -> tuple[Cluster, int, int]:
    """The thief's batch is committed as the session's request 1: where, and in which session."""
    cluster = Cluster("abcd")
    cluster.create()
    cluster.elect(1, "abc", cluster.ensemble[:3])
    session = cluster.register()
    taken = cluster.append(session, 1, THIEF)
    assert isinstance(taken, Appended)
    cluster.run(100)
    return cluster, session, taken.base


def check_refused(cluster: Cluster, session: int, base: int) -> None:
    refused = cluster.append(session, 1, VICTIM)
    assert isinstance(refused, ClientRefused), "acknowledged, and not in the log"
    assert refused.refusal == DifferentRequest(base)
    assert cluster.append(session, 1, THIEF) == Appended(session, 1, base), "a retry is answered"
    bodies = [entry.body for entry in cluster.leader().disk.entries.values()]
    assert (bodies.count(THIEF), bodies.count(VICTIM)) == (1, 0)


def test_S04_another_batch_under_a_used_number_is_not_acknowledged():
    check_refused(*hijacked())


def test_S04_over_a_failover():
    cluster, session, base = hijacked()
    cluster.kill("a")
    cluster.elect(2, "bc", cluster.ensemble[:3])
    check_refused(cluster, session, base)


def test_S04_after_a_restart_of_all_from_a_checkpoint():
    cluster, session, base = hijacked()
    cluster.tell("a", Trim(1, 1))  # writes the superblock, with the table of sessions
    cluster.run(500)
    for name in "abc":
        block = cluster.nodes[name].disk.superblock
        assert block is not None
        assert block.sessions_at > base
        cluster.kill(name)
        cluster.revive(name)
    cluster.elect(2, "abc", cluster.ensemble[:3])
    check_refused(cluster, session, base)


def test_S04_after_a_snapshot_was_installed():
    """A replica that knows the session only from a snapshot, and the log behind it, leads."""
    cluster, session, base = hijacked()
    offer = only(cluster.tell("a", SnapshotRequest(1)), SnapshotOffer)
    cluster.tell("d", InstallSnapshot(1, offer.snapshot))
    cluster.run(500)
    for name in "abc":
        cluster.kill(name)
    d = cluster.nodes["d"]
    leader = cluster.elect(2, "d", (d.member,))
    assert leader is d
    check_refused(cluster, session, base)


def test_S04_a_batch_with_the_same_bytes_and_another_count_is_another_one():
    cluster, session, base = hijacked()
    message = Append(session, 1, 2, THIEF, seal_body(THIEF))
    refused = only(cluster.tell("a", message, CLIENT), ClientRefused)
    assert refused.refusal == DifferentRequest(base)


def test_S04_what_is_not_committed_may_be_undone_and_decides_nothing():
    """Another leader may have a log in which the refused batch has the number."""
    leader = leading(chain([1, 1, 1]))
    acked(leader, "b", 4)
    leader.receive(Register(1), CLIENT)
    session = only(acked(leader, "b", 5), Registered).session
    leader.receive(Append(session, 1, 1, THIEF, seal_body(THIEF)), "thief")
    ask = Append(session, 1, 1, VICTIM, seal_body(VICTIM))
    refused = only(leader.receive(ask, CLIENT), ClientRefused)
    assert isinstance(refused.refusal, NotReady)
    answers = acked(leader, "b", 6)
    assert only(answers, Appended).base == 5
    assert [each.session for each in sent(answers, Appended)] == [session], "the thief's alone"
    assert only(leader.receive(ask, CLIENT), ClientRefused).refusal == DifferentRequest(5)


def test_S04_what_is_trimmed_cannot_be_compared_and_is_not_acknowledged():
    cluster, session, base = hijacked()
    cluster.append(session, 2)
    cluster.tell("a", Trim(1, base + 1))
    for body in (THIEF, VICTIM):
        assert cluster.append(session, 1, body).refusal == ReplyForgotten(2)


@pytest.mark.parametrize("body", [VICTIM, THIEF])
def test_S04_a_marker_of_a_lost_entry_tells_its_request_from_others(body: bytes):
    """It has the checksum of the entry, which names the body's: nothing else has to be kept."""
    log = chain([1])
    log.append(sealed(seal, 1, 1, 1, Kind.REGISTER, 0, 0, 0, log[0].checksum, 0))
    entry = sealed(seal, 1, 2, 1, Kind.DATA, 1, 1, 5, log[1].checksum, seal_body(THIEF))
    log.append(marker(seal, entry, log[1].checksum, 5))
    node = leading(log)
    acked(node, "b", node.replica.log.end)
    answer = node.receive(Append(1, 1, 1, body, seal_body(body)), CLIENT)
    if body == THIEF:
        assert only(answer, Appended).base == 2
    else:
        assert only(answer, ClientRefused).refusal == DifferentRequest(2)
