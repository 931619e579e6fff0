"""The log against a simple list, and its refusals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.harness import chain
from shardlog.protocol.entry import GENESIS_CHECKSUM, EntryId, unreadable
from shardlog.protocol.failures import (
    DifferentEntry,
    ImpossibleState,
    OffsetGap,
    WrongParent,
)
from shardlog.protocol.log import Log, Mark


def log_of(headers, **marks):
    log = Log()
    for header in headers:
        log.append(header)
    for base, mark in marks.items():
        log.mark(int(base[1:]), mark)
    return log


def holed(before, gap, after):
    """`before`, an unreadable stretch where `gap` was, `after`."""
    stretch = unreadable(gap[0].epoch, gap[0].base, gap[-1].end - gap[0].base)
    log = log_of([*before, stretch, *after])
    log.mark(stretch.base, Mark.FAULT)
    return log


def at_tail(before, epoch):
    """`before`, and an unreadable stretch of unknown length."""
    base = before[-1].end if before else 0
    log = log_of([*before, unreadable(epoch, base, 0)])
    log.mark(base, Mark.FAULT)
    return log


# --- against a list ----------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "truncate", "trim", "corrupt", "repair"]), st.integers(0, 9)
    ),
    max_size=25,
)


class Model:
    """Headers in a list, the bad ones in a set."""

    def __init__(self):
        self.headers = []
        self.bad = set()
        self.first, self.boundary = 0, GENESIS_CHECKSUM

    @property
    def end(self):
        return self.headers[-1].end if self.headers else self.first

    def next(self, count):
        parent = self.headers[-1].checksum if self.headers else self.boundary
        return chain([1], start=self.end, parent=parent, count=count)[0]

    def take(self, log, step, number):
        cut = number % (len(self.headers) + 1)
        at = self.headers[cut].base if cut < len(self.headers) else self.end
        if step == "append":
            header = self.next(1 + number % 3)
            assert log.refusal_to_append(header) is None
            log.append(header)
            self.headers.append(header)
        elif step == "truncate":
            log.truncate(at)
            self.headers = self.headers[:cut]
        elif step == "trim":
            if cut:
                self.boundary = self.headers[cut - 1].checksum
            log.trim(at)
            self.headers, self.first = self.headers[cut:], at
        elif step == "corrupt" and cut < len(self.headers):
            log.mark(at, Mark.CORRUPT)
            self.bad.add(at)
        elif step == "repair" and cut < len(self.headers):
            assert (log.repair(self.headers[cut]) is None) == (at in self.bad)
            self.bad.discard(at)
        self.bad &= {header.base for header in self.headers}


@given(STEPS)
def test_a_log_is_a_list_with_marks(steps):
    log, model = Log(), Model()
    for step, number in steps:
        model.take(log, step, number)
        assert log.headers == model.headers
        assert log.bases == [header.base for header in model.headers]
        assert (log.first, log.end, log.boundary) == (model.first, model.end, model.boundary)
        assert set(log.marks) == model.bad
        assert [header.base for header in log.bad()] == sorted(model.bad)
        assert log.head_checksum == model.next(1).parent
        assert log.intact_end(0) == min(model.bad, default=model.end)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=6), st.integers(0, 20))
def test_offsets_find_their_entry(counts, offset):
    log = Log()
    for count in counts:
        log.append(chain([1], start=log.end, parent=log.head_checksum, count=count)[0])
    inside = [each for each in log.headers if each.base <= offset < each.end]
    assert log.covering(offset) == (inside[0] if inside else None)
    assert log.is_boundary(offset) == (offset == log.end or offset in log.bases)
    assert log.between(offset, log.end) == [each for each in log.headers if each.base >= offset]
    before = [each.checksum for each in log.headers if each.base < offset]
    assert log.checksum_before(offset) == (before[-1] if before else GENESIS_CHECKSUM)


# --- refusals ----------------------------------------------------------------------------------


def test_T1_only_the_right_parent_may_be_continued():
    mine, other = chain([1, 1]), chain([1, 2, 2])
    assert log_of(mine).refusal_to_append(other[2]) == WrongParent(EntryId(2, 2))


def test_T1_a_duplicate_is_one_only_with_the_same_checksum():
    mine, other = chain([1, 1]), chain([1, 2])
    assert log_of(mine).refusal_of_duplicate(mine[1]) is None
    assert log_of(mine).refusal_of_duplicate(other[1]) == DifferentEntry(EntryId(1, 1))


def test_N8_no_gaps_and_nothing_inside_an_entry():
    wide = chain([1], count=3)
    log = log_of(wide)
    ahead = chain([1], start=4, parent=wide[0].checksum)[0]
    assert log.refusal_to_append(ahead) == OffsetGap(3)
    assert log.refusal_of_duplicate(chain([1], start=1)[0]) == OffsetGap(3)


def test_nothing_is_appended_behind_an_unreadable_tail():
    log = at_tail(chain([1]), 1)
    assert log.refusal_to_append(chain([1], start=1)[0]) == OffsetGap(1)


# --- repair ------------------------------------------------------------------------------------


def test_T3_a_corrupt_slot_takes_only_its_own_entry():
    mine, other = chain([1, 1]), chain([1, 2])
    log = log_of(mine, _1=Mark.CORRUPT)
    assert log.repair(other[1]) == DifferentEntry(EntryId(1, 1))
    assert not log.present(1)
    assert log.repair(mine[1]) is None
    assert log.present(1)


def test_T3_what_is_intact_is_not_repaired():
    mine = chain([1, 1])
    assert log_of(mine).repair(mine[1]) == OffsetGap(2)


def test_T3_an_unreadable_stretch_is_filled_from_its_start():
    whole = chain([1, 1, 1, 1])
    log = holed(whole[:1], whole[1:3], whole[3:])
    assert log.repair(whole[2]) == OffsetGap(4)
    assert log.repair(whole[1]) is None
    assert (log.present(1), log.present(2)) == (True, False)
    assert log.repair(whole[2]) is None
    assert log.headers == whole
    assert not log.marks


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        pytest.param(chain([1, 2])[1], DifferentEntry(EntryId(1, 1)), id="of another epoch"),
        pytest.param(chain([2, 1])[1], WrongParent(EntryId(1, 1)), id="on another parent"),
    ],
)
def test_T3_an_unreadable_stretch_takes_only_what_fits(wrong, expected):
    whole = chain([1, 1, 1])
    log = holed(whole[:1], whole[1:2], whole[2:])
    assert log.repair(wrong) == expected
    assert not log.present(1)


def test_T3_an_entry_too_long_for_the_stretch_is_refused():
    whole = chain([1, 1, 1])
    log = holed(whole[:1], whole[1:2], whole[2:])
    long = chain([1], start=1, parent=whole[0].checksum, count=2)[0]
    assert log.repair(long) == DifferentEntry(EntryId(1, 1))


def test_T3_an_unreadable_tail_is_filled_and_stays_in_doubt():
    whole = chain([1, 1])
    log = at_tail(whole[:1], 1)
    log.tail_slots = 2
    assert log.repair(whole[1]) is None
    assert (log.end, log.open_tail, log.headers[:2]) == (2, True, whole)
    log.truncate(2)
    assert (log.end, log.open_tail, log.headers) == (2, False, whole)


def test_T3_a_tail_of_one_slot_becomes_readable():
    whole = chain([1, 1])
    log = at_tail(whole[:1], 1)
    log.tail_slots = 1
    assert log.repair(whole[1]) is None
    assert (log.end, log.open_tail, log.headers) == (2, False, whole)


# --- the end of what may be held ---------------------------------------------------------------


def test_N2_an_unreadable_tail_may_hold_more():
    log = at_tail(chain([1, 1]), 1)
    assert (log.end, log.may_end, log.open_tail) == (2, 3, True)


def test_N2_corrupt_slots_still_belong_to_the_log():
    log = log_of(chain([1, 1]), _1=Mark.CORRUPT)
    assert (log.end, log.may_end) == (2, 2)


def test_an_unreadable_stretch_may_be_cut_anywhere():
    whole = chain([1, 1, 1, 1])
    log = holed(whole[:1], whole[1:3], whole[3:])
    log.truncate(2)
    assert (log.end, log.bases, dict(log.marks)) == (2, [0, 1], {1: Mark.FAULT})


# --- impossible --------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["truncate", "trim"])
def test_an_entry_is_never_cut_inside(step):
    log = log_of(chain([1, 1], count=2))
    with pytest.raises(ImpossibleState, match="inside an entry"):
        getattr(log, step)(3)


def test_there_is_no_mark_without_an_entry():
    with pytest.raises(ImpossibleState, match="no entry at 5"):
        log_of(chain([1])).mark(5, Mark.CORRUPT)


def test_the_boundary_behind_an_unreadable_stretch_is_what_the_next_entry_names():
    whole = chain([1, 1, 1, 1])
    log = holed(whole[:1], whole[1:2], whole[2:])
    log.trim(2)
    assert log.boundary == whole[1].checksum
