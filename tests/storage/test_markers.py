"""Markers of what was given up: they stand where the entry stood, and a start finds the rest."""

from __future__ import annotations

import pytest

from shardlog.checksum import is_body, is_sealed, seal
from shardlog.protocol.effects import RewriteEntry
from shardlog.protocol.entry import Entry, Header, Kind, marker, unreadable
from shardlog.protocol.header_bytes import pack_header, unpack_header
from storage.driver import Driver
from storage.scripts import ENTRIES, base_of, end_of, twelve


def marker_of(*places: int) -> Entry:
    """For the entries at these places, in the chain; for more than one no header is left."""
    first, last = ENTRIES[places[0]].header, ENTRIES[places[-1]].header
    before = ENTRIES[places[0] - 1].header
    lost = first
    if len(places) > 1:
        lost = unreadable(first.epoch, first.base, last.end - first.base)
        lost = lost._replace(checksum=last.checksum)
    return Entry(marker(seal, lost, before.checksum, before.timestamp_ms), b"")


def headers(driver: Driver) -> list[Header]:
    return driver.store.headers(0, ENTRIES[-1].header.end, len(ENTRIES))


def give_up(driver: Driver, made: Entry) -> None:
    driver.store.submit(RewriteEntry(made))
    driver.settle()
    driver.bodies[made.header.checksum] = bytes(made.body)


def test_T3_a_marker_has_the_checksum_of_what_was_lost_and_a_witness_of_its_own() -> None:
    made = marker_of(4).header
    assert (made.id, made.end, made.checksum) == (ENTRIES[4].header.id, end_of(4), made.checksum)
    assert made.checksum == ENTRIES[4].header.checksum
    assert (made.session, made.request) == ENTRIES[4].header[4:6], "a retry is still known"
    packed = pack_header(made, 0)
    assert unpack_header(packed) == (made, 0)
    assert is_sealed(made)
    assert is_body(made, b"")
    for name in Header._fields:
        if name != "kind":
            changed = made._replace(**{name: getattr(made, name) + 1})
            assert not is_sealed(changed), name


@pytest.mark.parametrize("damage", ["entry", "both"])
def test_T3_a_marker_takes_the_place_of_a_bad_entry_and_all_others_stay(damage: str) -> None:
    driver = twelve()
    (driver.rot_entry if damage == "entry" else driver.rot_both)(base_of(4))
    driver.damaged_restart()
    made = marker_of(4)
    give_up(driver, made)
    assert driver.store.read(made.header) == made
    recovered = driver.damaged_restart()
    found = [*driver.store.headers(0, recovered.headers[0].base, 99), *recovered.headers]
    expected = [made.header if entry is ENTRIES[4] else entry.header for entry in ENTRIES[:12]]
    assert [header for header in found if header.kind is not Kind.UNKNOWN][:12] == expected
    assert not recovered.marks
    for entry in ENTRIES[:12]:
        header = made.header if entry is ENTRIES[4] else entry.header
        assert driver.store.read(header) == (made if header is made.header else entry)


def test_T3_a_marker_for_a_stretch_without_headers() -> None:
    driver = twelve()
    driver.rot_both(base_of(4), base_of(5), base_of(6))
    recovered = driver.damaged_restart()
    assert unreadable(ENTRIES[4].header.epoch, base_of(4), end_of(6) - base_of(4)) in (
        *recovered.headers,
        *driver.store.headers(0, ENTRIES[11].header.end, 99),
    )
    made = marker_of(4, 5, 6)
    give_up(driver, made)
    driver.damaged_restart()
    expected = [*ENTRIES[:4], made, *ENTRIES[7:12]]
    assert headers(driver)[: len(expected)] == [entry.header for entry in expected]
    assert [driver.store.read(entry.header) for entry in expected] == expected
