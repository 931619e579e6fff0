"""How much the scrubber reads at a time: so many entries, so many bytes, and at least one."""

import pytest

from storage.driver import begun
from storage.states import chain

ENTRIES = chain(20, sizes=(100,))
END = ENTRIES[-1].header.end


@pytest.mark.parametrize(
    ("most", "bytes_max", "wanted"),
    [(7, 1 << 20, 7), (100, 500, 5), (100, 501, 6), (100, 0, 1), (100, 1, 1), (100, 1 << 20, 20)],
)
def test_a_piece_ends_with_its_entries_or_its_bytes(most: int, bytes_max: int, wanted: int):
    driver = begun(ENTRIES, 1)
    piece = driver.store.scrub(0, END, most, bytes_max)
    assert piece.entries == wanted
    assert piece.bytes == 100 * wanted
    assert piece.end == ENTRIES[wanted - 1].header.end
    assert not piece.bad


def test_pieces_cover_the_log_once():
    driver = begun(ENTRIES, 1)
    at, entries = 0, 0
    while at < END:
        piece = driver.store.scrub(at, END, 1000, 250)
        entries += piece.entries
        at = piece.end
    assert entries == len(ENTRIES)
