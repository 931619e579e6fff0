"""Names of sessions, registrations that are sent again, and which sessions are kept."""

from dataclasses import replace

from protocol.cluster import Cluster
from protocol.harness import CLIENT, Node, acked, chain, leading, only, refusal, sent, session_at
from protocol.test_losing import X, give_up
from shardlog.protocol.awaiting import awaited
from shardlog.protocol.coordination import Accepted, AcceptLoss
from shardlog.protocol.effects import Limits
from shardlog.protocol.entry import Kind
from shardlog.protocol.failures import Overloaded, SessionUnknown
from shardlog.protocol.log import Mark
from shardlog.protocol.messages import Append, Appended, Register, Registered
from shardlog.protocol.sessions import SessionLimits, Sessions, session_of
from shardlog.protocol.shard import Status

Table = tuple[int, SessionLimits, Sessions]


def tables(cluster: Cluster, names: str = "abc") -> set[Table]:
    replicas = [cluster.nodes[name].replica for name in names]
    return {(r.sessions.applied, r.sessions.limits, r.sessions.at_rest()) for r in replicas}


def kind_at(cluster: Cluster, name: str, base: int) -> Kind:
    header = cluster.nodes[name].replica.log.starting_at(base)
    assert header is not None
    return header.kind


# --- names ---------------------------------------------------------------------------------------


def test_hole_4_3_offsets_are_given_again_after_a_loss_and_sessions_are_not():
    """A tail that nobody can read is given up; new clients register where old ones had."""
    cluster = Cluster("abc", operators=["op"])
    cluster.bring_up("abc")
    old = [cluster.register() for _ in range(5)]
    one = old[-1]
    for request in (1, 2):
        cluster.append(one, request, b"of client one")
    for name in "abc":
        cluster.kill(name)
        disk = cluster.nodes[name].disk
        disk.bad |= {base: Mark.FAULT for base in disk.entries if base >= 2}
        disk.ridden_commit = min(disk.ridden_commit, 2)
    for name in "abc":
        cluster.revive(name)
    cluster.chain = {base: checksum for base, checksum in cluster.chain.items() if base < 2}
    cluster.run(6000)
    waiting = awaited(cluster.coordinators["op"])
    assert waiting is not None
    assert waiting.entry is not None
    assert isinstance(cluster.command(AcceptLoss(waiting.entry), "op"), Accepted)
    cluster.run(2000)
    new = [cluster.register() for _ in range(8)]
    assert not set(new) & set(old)
    for two in new:
        assert isinstance(cluster.append(two, 1, b"of client two"), Appended)
    assert cluster.append(one, 3, b"of client one").refusal == SessionUnknown(one)


def test_T7_a_name_is_known_from_the_entry_on_every_replica():
    cluster = Cluster()
    cluster.create()
    cluster.elect(1, "abc")
    session = cluster.register()
    cluster.run(200)
    for node in cluster.nodes.values():
        assert session_at(node, 1) == session
        assert set(node.replica.sessions.sessions) == {session}


# --- registrations -------------------------------------------------------------------------------


def test_B2_a_registration_that_is_sent_again_gets_the_session_of_the_first_try():
    leader = leading(chain([1, 1, 1]))
    acked(leader, "b", 4)
    for _ in range(3):
        assert not sent(leader.receive(Register(7), CLIENT), Registered)
    assert leader.replica.log.end == 5, "no offset is given to one that is abandoned"
    told = only(acked(leader, "b", 5), Registered)
    assert told == Registered(7, session_at(leader, 4))
    assert only(leader.receive(Register(7), CLIENT), Registered) == told
    assert leader.replica.log.end == 5


def test_B2_over_a_failover_and_behind_requests():
    cluster = Cluster()
    cluster.create()
    cluster.elect(1, "abc")
    cluster.cut.add(("a", CLIENT))
    assert not cluster.tell("a", Register(7), CLIENT)
    cluster.kill("a")
    cluster.elect(2, "bc")
    session = only(cluster.tell("b", Register(7), CLIENT), Registered).session
    assert session_at(cluster.nodes["b"], 1) == session
    assert cluster.append(session, 1).base == 3
    assert only(cluster.tell("b", Register(7), CLIENT), Registered).session == session
    assert only(cluster.tell("b", Register(8), CLIENT), Registered).session != session


def test_B2_used_but_not_committed_yet():
    leader = leading(chain([1, 1, 1]))
    acked(leader, "b", 4)
    leader.receive(Register(7), CLIENT)
    session = session_at(leader, 4)
    leader.receive(Append(session, 1, 1, b"x", 1), CLIENT)
    assert not sent(leader.receive(Register(7), "again"), Registered)
    assert {each.session for each in sent(acked(leader, "b", 6), Registered)} == {session}


def test_T7_the_nonce_of_an_evicted_session_revives_nothing():
    cluster = Cluster(limits=Limits(sessions_max=1))
    cluster.create()
    cluster.elect(1, "abc")
    first = only(cluster.tell("a", Register(7), CLIENT), Registered).session
    cluster.append(first, 1)
    cluster.register()
    again = only(cluster.tell("a", Register(7), CLIENT), Registered).session
    assert again != first
    assert cluster.append(first, 2).refusal == SessionUnknown(first)


# --- limits --------------------------------------------------------------------------------------


def mixed() -> Cluster:
    """Three releases with three ideas of how many sessions there may be."""
    cluster = Cluster(limits=Limits(sessions_max=2, replies_max=3))
    for name, most in (("b", 1), ("c", 64)):
        node = cluster.nodes[name]
        limits = replace(node.limits, sessions_max=most, replies_max=most)
        node.limits = node.replica.limits = limits
    cluster.create()
    cluster.elect(1, "abc")
    return cluster


def use(cluster: Cluster, first: int) -> None:
    for nonce in range(first, first + 4):
        session = only(
            cluster.tell(cluster.leader().name, Register(nonce), CLIENT), Registered
        ).session
        for request in range(1, 6):
            assert isinstance(cluster.append(session, request), Appended)
    cluster.run(200)


def test_hole_4_12_tables_are_equal_whatever_each_release_would_keep():
    cluster = mixed()
    use(cluster, 100)
    assert len(tables(cluster)) == 1
    ((_, limits, sessions),) = tables(cluster)
    assert limits == SessionLimits(2, 3, 0)
    assert len(sessions) == 2
    assert all(len(each.replies) == 3 for each in sessions)


def test_hole_4_12_another_release_that_leads_changes_nothing():
    cluster = mixed()
    use(cluster, 100)
    cluster.kill("a")
    for epoch, name in ((2, "b"), (3, "c")):
        cluster.elect(epoch, "bc" if name == "b" else "cb")
        use(cluster, 100 * epoch)
    assert len(tables(cluster, "bc")) == 1
    ((_, limits, sessions),) = tables(cluster, "bc")
    assert limits == SessionLimits(2, 3, 0)
    assert len(sessions) == 2


def test_hole_4_12_a_restart_under_another_release_goes_on_with_the_limits_of_the_log():
    cluster = mixed()
    use(cluster, 100)
    for node in cluster.nodes.values():
        node.limits = replace(node.limits, sessions_max=7, replies_max=7)
        node.restart()
    cluster.elect(2, "abc")
    use(cluster, 200)
    assert len(tables(cluster)) == 1
    assert cluster.leader().replica.sessions.limits == SessionLimits(2, 3, 0)


# --- losses --------------------------------------------------------------------------------------


def given_up_without_headers() -> Cluster:
    """C was away and has the entry of which A and B have not even a header."""
    cluster = Cluster("abc", operators=["op"])
    cluster.bring_up("abc")
    session = cluster.register()
    for request in range(1, 5):
        cluster.append(session, request, b"body %d" % request)
    cluster.run(200)
    cluster.kill("c")
    for name in "ab":
        cluster.kill(name)
        cluster.nodes[name].disk.bad |= {3: Mark.FAULT}
        block = cluster.nodes[name].disk.superblock
        assert block is not None
    for name in "ab":
        cluster.revive(name)
    cluster.run(6000)
    give_up(cluster, X)
    return cluster


def test_hole_4_11_replicas_with_a_marker_and_with_the_entry_agree_about_sessions():
    cluster = given_up_without_headers()
    assert cluster.record.status is Status.STEADY
    assert kind_at(cluster, cluster.led_by, 3) is Kind.LOST
    before = cluster.register()
    cluster.revive("c")
    cluster.run(1500)
    assert kind_at(cluster, "c", 3) is Kind.DATA
    assert len(tables(cluster)) == 1
    assert isinstance(cluster.append(before, 1), Appended)
    cluster.run(200)
    assert len(tables(cluster)) == 1


def test_hole_4_11_once_is_enough_whoever_leads_later():
    cluster = given_up_without_headers()
    since = cluster.leader().replica.sessions.limits.since
    assert since > 3
    session = cluster.register()
    cluster.revive("c")
    cluster.run(1500)
    cluster.kill(cluster.led_by)
    cluster.run(6000)
    assert cluster.record.status is Status.STEADY
    assert isinstance(cluster.append(session, 1), Appended)
    assert cluster.leader().replica.sessions.limits.since == since


# --- sessions that are in use --------------------------------------------------------------------

IDLE_MS = 10_000


def registered(leader: Node, nonce: int) -> int:
    """The session; 0 if it is refused, because another one would have to go."""
    found = refusal(leader.receive(Register(nonce), CLIENT))
    assert found is None or isinstance(found, Overloaded)
    return 0 if found else session_of(leader.replica.log.headers[-1])


def test_S07_T7_a_session_in_use_is_not_evicted_by_registrations():
    leader = leading(limits=Limits(sessions_max=2, session_idle_ms=IDLE_MS))
    used, idle = registered(leader, 1), registered(leader, 2)
    for request in range(1, 8):
        leader.now_ms += IDLE_MS // 2
        assert not refusal(leader.receive(Append(used, request, 1, b"x", 0), CLIENT))
        assert bool(registered(leader, 100 + request)) == (request % 2 == 0)
    assert leader.replica.lead is not None
    assert used in leader.replica.lead.tip.sessions
    assert idle not in leader.replica.lead.tip.sessions
    leader.now_ms += IDLE_MS
    assert registered(leader, 200)
    assert registered(leader, 201)
    assert used not in leader.replica.lead.tip.sessions


def test_S07_T7_what_an_earlier_leader_opened_is_taken_for_used():
    leader = leading(limits=Limits(sessions_max=1, session_idle_ms=IDLE_MS))
    registered(leader, 1)
    assert leader.replica.lead is not None
    leader.replica.lead.used_ms.clear()
    assert not registered(leader, 100)
    leader.now_ms += IDLE_MS
    assert registered(leader, 100)
