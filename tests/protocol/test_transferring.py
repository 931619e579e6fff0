"""What is still to come, as far as can be told from what came."""

from shardlog.checksum import seal
from shardlog.protocol.entry import Entry, Kind, Member, sealed
from shardlog.protocol.header_bytes import ENTRY_HEADER_BYTES
from shardlog.protocol.transferring import Transferring

SOURCE = Member("a", 1)
BODY = b"x" * 20


def entry_at(base: int) -> Entry:
    body_checksum = len(BODY) << 32
    return Entry(sealed(seal, 1, base, 10, Kind.DATA, 0, 0, 0, 0, body_checksum), BODY)


def test_what_is_left_is_as_long_as_what_came():
    transfer = Transferring(SOURCE, 100, 200, now_ms=0)
    transfer.took(SOURCE, [entry_at(100), entry_at(110)], now_ms=1)
    assert transfer.left_bytes(120) == 4 * 2 * (ENTRY_HEADER_BYTES + len(BODY))
    assert transfer.left_bytes(200) == 0


def test_nobody_knows_before_anything_came():
    assert Transferring(SOURCE, 100, 200, now_ms=0).left_bytes(100) == 0
