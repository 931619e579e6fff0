"""When a leader may say that it knows no such session: clients give theirs up then."""

from protocol.harness import CLIENT, acked, chain_under, leading, only, session_at
from shardlog.protocol.effects import Limits
from shardlog.protocol.failures import NotReady, SessionUnknown
from shardlog.protocol.messages import Append, ClientRefused, Register

LIMITS = Limits(sessions_max=1)
LOG = chain_under(LIMITS, [1, 1, 1])


def test_T7_an_eviction_is_not_told_before_it_is_committed():
    """Another leader may cut it off; and so for a session that is not committed here itself."""
    leader = leading(LOG, limits=LIMITS)
    acked(leader, "b", 4)
    leader.receive(Register(1), CLIENT)
    leader.receive(Register(2), CLIENT)
    evicted = session_at(leader, 4)
    ask = Append(evicted, 1, 1, b"x", 1)
    assert isinstance(only(leader.receive(ask, CLIENT), ClientRefused).refusal, NotReady)
    acked(leader, "b", 5)
    assert isinstance(only(leader.receive(ask, CLIENT), ClientRefused).refusal, NotReady)
    acked(leader, "b", 6)
    assert only(leader.receive(ask, CLIENT), ClientRefused).refusal == SessionUnknown(evicted)


def test_T7_a_leader_that_is_cut_off_does_not_deny_sessions_of_the_next_one():
    leader = leading(LOG, limits=LIMITS)
    acked(leader, "b", 4)
    leader.receive(Register(1), CLIENT)
    leader.receive(Register(2), CLIENT)
    acked(leader, "b", 6)
    evicted = session_at(leader, 4)
    late, later = Append(evicted, 1, 1, b"x", 1), Append(9, 1, 1, b"x", 1)
    assert only(leader.receive(later, CLIENT), ClientRefused).refusal == SessionUnknown(9)
    leader.tick(Limits().quorum_silence_ms + 1)
    assert isinstance(only(leader.receive(later, CLIENT), ClientRefused).refusal, NotReady)
    assert isinstance(only(leader.receive(late, CLIENT), ClientRefused).refusal, NotReady)
    acked(leader, "c", 6)
    assert only(leader.receive(late, CLIENT), ClientRefused).refusal == SessionUnknown(evicted)
    assert only(leader.receive(later, CLIENT), ClientRefused).refusal == SessionUnknown(9)
