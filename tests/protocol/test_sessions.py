"""Client sessions as a fold over the log."""

from hypothesis import given
from hypothesis import strategies as st

from shardlog.protocol.entry import Header, Kind, sealed, unreadable
from shardlog.protocol.failures import ReplyForgotten, RequestGap, SessionUnknown
from shardlog.protocol.sessions import Session, SessionLimits, SessionTable, admit, session_of
from shardlog.sim.seal import seal

SESSIONS_MAX = 3
REPLIES_MAX = 2


def table(sessions_max=SESSIONS_MAX):
    return SessionTable(SessionLimits(sessions_max, REPLIES_MAX, 0))


def header(base, kind=Kind.DATA, session=0, request=0):
    return Header(1, base, 1, kind, session, request, 0, 0, 0, base)


def folded(headers, into=None):
    """By their order alone: offsets in between are left out."""
    found = into or table()
    for each in headers:
        found.applied = each.base
        found.fold([each])
    return found


def test_T6_nothing_is_applied_behind_a_stretch_that_cannot_be_read():
    """It may begin before what is to be applied next: its first header was lost once more."""
    found = folded([header(0, Kind.REGISTER), header(1, Kind.DATA, 0, 1)])
    before = found.at_rest()
    found.fold([header(3, Kind.DATA, 0, 2)])
    assert (found.applied, found.at_rest()) == (2, before)


@st.composite
def logs(draw):
    """Headers as a leader writes them: requests are admitted by the table at the tip."""
    tip = table()
    headers = [header(0, Kind.EPOCH_START)]
    tip.fold(headers)
    for base in range(1, draw(st.integers(1, 25))):
        sessions = sorted(tip.sessions)
        at = draw(st.integers(-1, len(sessions) - 1))
        if at < 0:
            kind = draw(st.sampled_from([Kind.REGISTER, Kind.EPOCH_START]))
            following = header(base, kind)
        else:
            following = header(base, Kind.DATA, sessions[at], tip.sessions[sessions[at]].last + 1)
        headers.append(following)
        tip.fold([following])
    return headers


@given(logs(), st.integers(0, 25))
def test_T6_the_fold_is_the_same_in_pieces_and_after_a_restart(headers, cut):
    whole = folded(headers)
    early = folded(headers[:cut])
    again = SessionTable.at(early.applied, early.at_rest(), early.limits)
    again.fold(headers[cut:])
    assert again.at_rest() == whole.at_rest()
    assert again.applied == whole.applied == headers[-1].end


@given(logs(), st.integers(0, 25))
def test_T6_a_leaders_table_at_the_tip_is_apart_from_the_committed_one(headers, cut):
    committed = folded(headers[:cut])
    before = committed.at_rest()
    tip = committed.copy()
    tip.fold(headers[cut:])
    assert committed.at_rest() == before
    assert tip.at_rest() == folded(headers).at_rest()


@given(logs())
def test_T6_a_retry_gets_the_offset_of_the_first_try_or_a_typed_refusal(headers):
    found = folded(headers)
    for each in headers:
        if each.kind is not Kind.DATA:
            continue
        known = found.sessions.get(each.session)
        answer = admit(found, each.session, each.request)
        if known is None:
            assert answer == SessionUnknown(each.session)
        elif known.last - each.request < REPLIES_MAX:
            assert answer == each.base
        else:
            assert answer == ReplyForgotten(known.last - REPLIES_MAX + 1)


@given(logs())
def test_T7_at_most_so_many_sessions_and_the_longest_unused_goes(headers):
    used: dict[int, int] = {}
    for each in headers:
        if each.kind is Kind.REGISTER:
            if len(used) == SESSIONS_MAX:
                del used[min(used, key=lambda session: used[session])]
            used[each.base] = each.base
        elif each.kind is Kind.DATA and each.session in used:
            used[each.session] = each.base
    assert {each.id: each.used for each in folded(headers).at_rest()} == used


@given(logs())
def test_T7_a_replayed_register_opens_another_session(headers):
    found = folded(headers)
    gone = {each.base for each in headers if each.kind is Kind.REGISTER} - set(found.sessions)
    found.fold([header(headers[-1].end, Kind.REGISTER)])
    assert headers[-1].end in found.sessions
    assert not gone & set(found.sessions)


def test_T7_an_evicted_session_is_told_so():
    found = folded([header(1, Kind.REGISTER), header(2, Kind.REGISTER)], table(sessions_max=1))
    assert admit(found, 1, 1) == SessionUnknown(1)
    assert admit(found, 2, 1) is None


def test_T7_what_an_evicted_session_wrote_does_not_revive_it():
    late = header(3, Kind.DATA, 1, 1)
    found = folded(
        [header(1, Kind.REGISTER), header(2, Kind.REGISTER), late], table(sessions_max=1)
    )
    assert set(found.sessions) == {2}


def test_T6_requests_come_one_by_one():
    found = folded([header(1, Kind.REGISTER), header(2, Kind.DATA, 1, 1)])
    assert admit(found, 1, 2) is None
    assert admit(found, 1, 3) == RequestGap(2)


def test_T6_the_last_replies_are_kept():
    requests = [header(base, Kind.DATA, 1, base - 1) for base in range(2, 6)]
    found = folded([header(1, Kind.REGISTER), *requests])
    assert found.at_rest() == (Session(1, 4, (4, 5), 5),)


def test_T6_replies_kept_by_one_who_kept_more_are_cut_to_what_is_kept_here():
    found = SessionTable.at(6, (Session(1, 4, (2, 3, 4, 5), 5),), table().limits)
    found.fold([header(6, Kind.DATA, 1, 5)])
    assert found.at_rest() == (Session(1, 5, (5, 6), 6),)


def test_O9_the_fold_stops_before_what_cannot_be_read():
    found = table()
    found.fold([header(0, Kind.REGISTER), unreadable(1, 1, 1), header(2, Kind.REGISTER)])
    assert found.applied == 1
    assert set(found.sessions) == {0}


def test_a_copy_is_independent():
    found = folded([header(1, Kind.REGISTER)])
    copy = found.copy()
    copy.fold([header(2, Kind.REGISTER)])
    assert set(found.sessions) == {1}


def test_T3_a_lost_request_is_still_known_where_its_header_is():
    found = folded([header(1, Kind.REGISTER), header(2, Kind.LOST, 1, 1)])
    assert admit(found, 1, 1) == 2
    assert admit(found, 1, 2) is None


def opening(base, sessions_max=0, replies_max=0):
    return header(base, Kind.EPOCH_START, sessions_max, replies_max)


def test_hole_4_11_tables_are_equal_behind_a_loss_without_headers():
    """One has a marker where another has the entries: an epoch start says where both start over."""
    before, behind = header(1, Kind.REGISTER), header(4, Kind.DATA, 1, 3)
    whole = [header(2, Kind.DATA, 1, 1), header(3, Kind.DATA, 1, 2)]
    lost = header(2, Kind.LOST)._replace(count=2)
    over = [opening(5, SESSIONS_MAX, REPLIES_MAX), header(6, Kind.REGISTER)]
    one, other = folded([before, *whole, behind, *over]), folded([before, lost, behind, *over])
    assert one.at_rest() == other.at_rest()
    assert (one.limits, one.applied) == (other.limits, other.applied)
    assert admit(one, 1, 4) == SessionUnknown(1)
    assert admit(one, 6, 1) is None


def test_hole_4_12_an_epoch_start_names_the_limits_for_all():
    opened = [opening(0, 1, 1), header(1, Kind.REGISTER), header(2, Kind.REGISTER)]
    requests = [header(3, Kind.DATA, 2, 1), header(4, Kind.DATA, 2, 2), opening(5)]
    one, other = (folded([*opened, *requests], table(most)) for most in (3, 64))
    assert one.at_rest() == other.at_rest() == (Session(2, 2, (4,), 4),)
    assert one.limits == other.limits == SessionLimits(1, 1, 0)


def test_hole_4_3_an_offset_that_is_given_again_names_another_session():
    first = sealed(seal, 2, 5, 1, Kind.REGISTER, 0, 77, 0, 1, 0)
    for other in ((3, 5, 77, 0, 1), (2, 6, 77, 0, 1), (2, 5, 78, 0, 1), (2, 5, 77, 0, 2)):
        epoch, base, nonce, time, parent = other
        again = sealed(seal, epoch, base, 1, Kind.REGISTER, 0, nonce, time, parent, 0)
        assert 0 < session_of(again) < 1 << 63
        assert session_of(again) != session_of(first)


def test_a_register_of_an_older_shardlog_names_the_session_by_its_offset():
    assert session_of(sealed(seal, 2, 5, 1, Kind.REGISTER, 0, 0, 0, 1, 0)) == 5
