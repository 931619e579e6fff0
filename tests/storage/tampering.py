"""Writing what only somebody who knows the format can write: false, with right checksums."""

from __future__ import annotations

import pytest

from shardlog.checksum import seal
from shardlog.protocol.entry import Header, sealed
from shardlog.storage.failures import Damaged
from shardlog.storage.layout import (
    Slot,
    pack_slot,
    slot_sequence,
)
from storage.driver import Driver


def overwrite(driver: Driver, path: str, position: int, data: bytes) -> None:
    """As a tool would that knows the format."""
    file = driver.files.open(path)
    file.write(position, [data])
    file.sync()
    file.close()


def tamper(driver: Driver, base: int, **changes: object) -> tuple[str, int]:
    """Write a slot anew, with a right checksum; its file and position."""
    place = driver.store.files.segments.covering(base)
    assert place is not None
    slot: Slot = place.slot._replace(**changes)  # type: ignore[arg-type]
    head = place.segment.head
    packed = pack_slot(slot, head.lineage, slot_sequence(head.number, place.number))
    at = place.segment.slot_position(place.number)
    overwrite(driver, place.segment.path, at, packed)
    return place.segment.path, at


def refused(driver: Driver) -> Damaged:
    driver.files.crash("none")
    with pytest.raises(Damaged) as caught:
        driver.open()
    return caught.value


def resealed(header: Header, **changes: object) -> Header:
    made: Header = header._replace(**changes)  # type: ignore[arg-type]
    return sealed(
        seal,
        made.epoch,
        made.base,
        made.count,
        made.kind,
        made.session,
        made.request,
        made.timestamp_ms,
        made.parent,
        made.body_checksum,
    )
