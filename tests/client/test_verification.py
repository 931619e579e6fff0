"""What a node sends is believed only if it is intact and continues the log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardlog.checksum import seal, seal_body
from shardlog.client.verification import Continuity, Lost, Mismatch
from shardlog.protocol.entry import Entry, Kind, sealed
from shardlog.transport.entries import join_entries


def log(counts: list[int], kinds: list[Kind] | None = None) -> list[Entry]:
    entries: list[Entry] = []
    base, parent = 10, 77
    for at, count in enumerate(counts):
        kind = kinds[at] if kinds else Kind.DATA
        body = b"body %d" % at if kind is Kind.DATA else b""
        checksum = seal_body(body) if body else 0
        header = sealed(seal, 3, base, count, kind, 5, at + 1, 1_000, parent, checksum)
        entries.append(Entry(header, body))
        base, parent = header.end, header.checksum
    return entries


def raw(entries: list[Entry]) -> memoryview:
    return memoryview(b"".join(join_entries(entries)))


def test_entries_with_records_are_taken_and_control_entries_passed_over():
    entries = log([1, 3, 1, 2], [Kind.EPOCH_START, Kind.DATA, Kind.REGISTER, Kind.DATA])
    at = Continuity(10)
    taken = at.take(raw(entries), 4)
    assert [header.base for header, _ in taken] == [11, 15]
    assert [bytes(body) for _, body in taken] == [b"body 1", b"body 3"]
    assert at.next == 17


def test_reading_may_start_within_an_entry_but_not_go_on_within_one():
    entries = log([5, 5])
    at = Continuity(12)
    at.take(raw(entries[:1]), 1)
    assert at.next == 15
    with pytest.raises(Mismatch, match="does not continue"):
        at.take(raw(entries[:1]), 1)
    at.take(raw(entries[1:]), 1)
    for start in (9, 15):
        with pytest.raises(Mismatch, match="does not continue"):
            Continuity(start).take(raw(entries[:1]), 1)


def test_a_missing_entry_and_another_log():
    entries = log([1, 1, 1])
    at = Continuity(10)
    assert len(at.take(raw([entries[0], entries[2]]), 2)) == 1
    with pytest.raises(Mismatch, match="does not continue") as told:
        at.take(raw(entries[2:]), 1)
    assert told.value.offset == 11
    body = entries[1].body
    other = sealed(seal, 3, 11, 1, Kind.DATA, 5, 2, 1_000, 5, seal_body(body))
    stranger = Entry(other, body)
    with pytest.raises(Mismatch, match="another parent"):
        at.take(raw([stranger]), 1)


def test_another_number_of_entries_than_announced():
    with pytest.raises(Mismatch, match="2 entries where 3"):
        Continuity(10).take(raw(log([1, 1])), 3)


@given(st.data())
def test_no_changed_byte_is_believed(data):
    entries = log([1, 2, 3])
    whole = raw(entries)
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[at] ^= data.draw(st.integers(1, 255))
    reader = Continuity(10)
    try:
        taken = reader.take(memoryview(changed), 3)
    except Mismatch:
        taken = []
    intact = at // (len(whole) // 3)
    assert [each.header for each in taken] == [each.header for each in entries[: len(taken)]]
    assert [bytes(each.body) for each in taken] == [each.body for each in entries[: len(taken)]]
    assert len(taken) <= intact
    reader.take(raw(entries[len(taken) :]), 3 - len(taken))
    assert reader.next == 16


def test_what_was_given_up_is_told_from_where_one_reads():
    entries = log([2, 6, 1], [Kind.DATA, Kind.LOST, Kind.DATA])
    at = Continuity(10)
    assert len(at.take(raw(entries), 3)) == 1
    for reader, first in ((at, 12), (Continuity(15), 15)):
        with pytest.raises(Lost) as told:
            reader.take(raw(entries[1:]), 2)
        assert (told.value.first, told.value.end) == (first, 18)
