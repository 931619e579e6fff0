"""Raw entries: split and joined, and never trusted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardlog.protocol.entry import Entry, Header, Kind
from shardlog.protocol.header_bytes import ENTRY_HEADER_BYTES
from shardlog.transport.entries import join_entries, split_entries, whole_entries
from shardlog.transport.failures import MalformedFrame
from transport.values import entries


@given(st.lists(entries(), max_size=4))
def test_entries_come_back(given_entries):
    raw = memoryview(b"".join(join_entries(given_entries)))
    assert [(each.header, each.body) for each in given_entries] == split_entries(raw)
    assert whole_entries(raw, len(given_entries)) == tuple(given_entries)


@given(st.lists(entries(), min_size=1, max_size=3), st.data())
def test_cut_entries(given_entries, data):
    raw = b"".join(join_entries(given_entries))
    edges, at = set(), 0
    for each in given_entries:
        at += ENTRY_HEADER_BYTES + len(each.body)
        edges.add(at)
    keep = data.draw(st.integers(1, len(raw) - 1))
    if keep in edges:
        assert split_entries(memoryview(raw[:keep]))
    else:
        with pytest.raises(MalformedFrame):
            split_entries(memoryview(raw[:keep]))


@given(st.binary(min_size=1, max_size=200))
def test_random_bytes_are_no_entries(data):
    with pytest.raises(MalformedFrame):
        split_entries(memoryview(data))


@given(st.lists(entries(), max_size=3), st.integers(0, 5))
def test_another_count(given_entries, count):
    raw = memoryview(b"".join(join_entries(given_entries)))
    if count != len(given_entries):
        with pytest.raises(MalformedFrame, match="announced"):
            whole_entries(raw, count)


def test_bodies_are_views():
    entry = Entry(Header(1, 2, 3, Kind.DATA, 4, 5, 6, 7, 4 << 32, 9), b"body")
    raw = memoryview(b"".join(join_entries([entry])))
    ((_, body),) = split_entries(raw)
    assert body.obj is raw.obj


def test_a_part_of_a_frame_does_not_keep_it_alive():
    entry = Entry(Header(1, 2, 3, Kind.DATA, 4, 5, 6, 7, 4 << 32, 9), b"body")
    raw = b"".join(join_entries([entry]))
    found = whole_entries(memoryview(raw + bytes(len(raw) // 7 + 1))[: len(raw)], 1)
    assert isinstance(found[0].body, bytes)
    found = whole_entries(memoryview(raw + bytes(len(raw) // 7))[: len(raw)], 1)
    assert isinstance(found[0].body, memoryview)
