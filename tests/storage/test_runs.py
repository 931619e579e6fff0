"""Entries that are read together: a run is passed on as it stands in the file."""

from pathlib import Path

import pytest

from shardlog.protocol.entry import EntryRun
from shardlog.storage import segment
from shardlog.storage.layout import SLOT_BYTES, SLOTS_START
from shardlog.transport.entries import join_entries
from storage.replicas import ENTRIES, FIRST, SLOTS, entry_at, flip, make, open_store

HEADERS = [entry.header for entry in ENTRIES]


def test_entries_of_one_file_are_a_run_of_its_bytes(tmp_path: Path):
    directory = make(tmp_path / "orders")
    found = open_store(directory).read_run(HEADERS[2:6])
    assert isinstance(found, EntryRun)
    assert found == tuple(ENTRIES[2:6])
    (raw,) = join_entries(found)
    assert bytes(raw) == (directory / FIRST).read_bytes()[entry_at(2) : entry_at(6)]


def test_a_run_is_the_same_as_its_entries_one_by_one(tmp_path: Path):
    found = open_store(make(tmp_path / "orders")).read_run(HEADERS[2:6])
    assert b"".join(join_entries(found)) == b"".join(join_entries(list(found)))


def test_entries_of_two_files_are_not_a_run(tmp_path: Path):
    found = open_store(make(tmp_path / "orders")).read_run(HEADERS[SLOTS - 2 : SLOTS + 2])
    assert not isinstance(found, EntryRun)
    assert found == tuple(ENTRIES[SLOTS - 2 : SLOTS + 2])


def test_T3_a_run_ends_before_what_is_damaged(tmp_path: Path):
    directory = make(tmp_path / "orders")
    flip(directory / FIRST, entry_at(4) + 85)
    found = open_store(directory).read_run(HEADERS[2:6])
    assert found == tuple(ENTRIES[2:4])


@pytest.mark.parametrize("at_once", [1, 3, 256])
def test_headers_of_all_files_are_told_in_one_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
):
    monkeypatch.setattr(segment, "RUN_SLOTS", at_once)
    store = open_store(make(tmp_path / "orders"))
    assert store.headers(0, HEADERS[-1].end, 1 << 62) == HEADERS
    assert store.headers(0, HEADERS[5].base, 1 << 62) == HEADERS[:5]
    assert store.headers(HEADERS[3].base, HEADERS[-1].end, 2) == HEADERS[3:5]


def test_headers_are_told_ahead_of_what_is_read(tmp_path: Path):
    store = open_store(make(tmp_path / "orders"))
    ahead = store.headers(0, HEADERS[-1].end, 2)
    ahead += store.headers(ahead[-1].end, HEADERS[-1].end, 2)
    assert store.read_run(ahead[:2]) == tuple(ENTRIES[:2])
    ahead += store.headers(ahead[-1].end, HEADERS[-1].end, 1)
    assert ahead == HEADERS[:5]
    assert store.read_run(ahead[2:]) == tuple(ENTRIES[2:5])


def test_T3_a_slot_that_says_another_place_is_not_believed(tmp_path: Path):
    directory = make(tmp_path / "orders")
    store = open_store(directory)
    flip(directory / FIRST, SLOTS_START + 3 * SLOT_BYTES + 12)
    assert store.files.segments.headers_on(0, HEADERS[-1].end, 8) == HEADERS[:3]


def test_headers_are_found_on_from_where_the_last_ones_ended(tmp_path: Path):
    store = open_store(make(tmp_path / "orders"))
    found, at = [], 0
    while more := store.headers(at, HEADERS[-1].end, 3):
        found += more
        at = more[-1].end
    assert found == HEADERS


def test_only_what_was_looked_into_since_the_start_is_read_from_memory(tmp_path: Path):
    store = open_store(make(tmp_path / "orders"))
    end = HEADERS[-1].end
    store.files.segments.items[0].count = -1  # as of one that a start need not look into
    assert store.read_cached(0, end, 1000) is None, "slots may have to come from the disk"
    assert store.raw(0, end, 1000) is not None
    found = store.read_cached(0, end, 1000)
    assert found is not None
    assert bytes(found[1]) == store.read_raw(found[0])
