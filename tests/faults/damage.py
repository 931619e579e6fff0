"""Ways to damage a replica's files, each a choice of bytes that belong to its live data.

A way looks at the files, chooses by the given randomness, and tells which bytes to put where and
which entries they are part of.  It changes nothing itself: whether that much may be lost is decided
by whoever asked, and the files must stand still from the look to the blow.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from faults.live_files import SECTOR, LiveFiles, sector_of, slots_in
from shardlog.protocol.entry import Header
from shardlog.storage.layout import ENTRY_HEADER_BYTES, HEAD_COPY_BYTES, SLOT_BYTES, Slot
from shardlog.storage.segment import Segment

FLIPPED_MAX = 16
STRETCH_MAX = 40
TAIL_ENTRIES = 40
"""So many of the latest entries are chosen more often: they are what an election is about."""
TAIL_SHARE = 0.4
COPY_SHOWN_BYTES = 64
"""Of a superblock's copy: magic, checksum and the first fields always are live."""


@dataclass(frozen=True, slots=True)
class Blow:
    """`new` in the place of `old`.  `entries` are damaged by it, `slots` are entries whose slot is.

    `blanks`: it leaves zeros, or what stood there before, so that a slot may look never written.
    `contradicts`: it leaves a slot that speaks of another entry, after which nothing here can be
    believed any more.
    """

    path: str
    position: int
    old: bytes
    new: bytes
    entries: tuple[Header, ...] = ()
    slots: tuple[Header, ...] = ()
    blanks: bool = False
    contradicts: bool = False
    superblock_copy: int | None = None
    heads: bool = False

    @property
    def changes(self) -> bool:
        return self.old != self.new

    def strike(self) -> None:
        file = os.open(self.path, os.O_WRONLY)
        try:
            written = os.pwrite(file, self.new, self.position)
        finally:
            os.close(file)
        assert written == len(self.new)

    def __str__(self) -> str:
        hit = [f"{header.epoch}/{header.base}" for header in (*self.entries, *self.slots)]
        where = "/".join(self.path.split("/")[-3:])
        told = f"{where}:{self.position}+{len(self.new)}"
        return f"{told} ({', '.join(hit[:4])}{', …' if len(hit) > 4 else ''})" if hit else told


Way = Callable[[LiveFiles, Random], list[Blow]]
"""No blow at all if there is nothing of that kind to hit."""


# --- bytes ---------------------------------------------------------------------------------------


def body(files: LiveFiles, random: Random) -> list[Blow]:
    """Some bytes of a body."""
    found = _entry(files, random)
    return [] if found is None else body_of(random, *found)


def body_of(random: Random, segment: Segment, slot: Slot) -> list[Blow]:
    """Some bytes of the body of one entry; control entries have none."""
    if not slot.length:
        return []
    start = slot.position + ENTRY_HEADER_BYTES
    return [_flipped(random, segment.path, start, slot.after, entries=(slot.header,))]


def header(files: LiveFiles, random: Random) -> list[Blow]:
    """Some bytes of the header in front of a body."""
    found = _entry(files, random)
    if found is None:
        return []
    segment, slot = found
    end = slot.position + ENTRY_HEADER_BYTES
    return [_flipped(random, segment.path, slot.position, end, entries=(slot.header,))]


def slot(files: LiveFiles, random: Random) -> list[Blow]:
    """Some bytes of a slot."""
    found = _slot(files, random)
    if found is None:
        return []
    segment, index, its = found
    at = segment.slot_position(index)
    return [_flipped(random, segment.path, at, at + SLOT_BYTES, slots=(its.header,))]


def slot_and_header(files: LiveFiles, random: Random) -> list[Blow]:
    """Both copies of a header: nothing here tells any more what stood there."""
    return _stretch(files, random, 1)


def stretch(files: LiveFiles, random: Random) -> list[Blow]:
    """The same for entries in a row, often the last ones: not even their number is known."""
    return _stretch(files, random, random.randint(2, STRETCH_MAX))


def _stretch(files: LiveFiles, random: Random, entries: int) -> list[Blow]:
    found = _slot(files, random)
    if found is None:
        return []
    segment, first, _ = found
    blows: list[Blow] = []
    for index in range(first, min(first + entries, segment.count)):
        its = segment.slot(index)
        if its is None:
            break
        at, end = segment.slot_position(index), its.position + ENTRY_HEADER_BYTES
        hit = (its.header,)
        blows.append(_flipped(random, segment.path, at, at + SLOT_BYTES, entries=hit))
        blows.append(_flipped(random, segment.path, its.position, end, entries=hit))
    return blows


def segment_head(files: LiveFiles, random: Random) -> list[Blow]:
    """One of the two copies."""
    if not files.log.items:
        return []
    segment = random.choice(files.log.items)
    at = random.choice([0, HEAD_COPY_BYTES])
    return [_flipped(random, segment.path, at, at + HEAD_COPY_BYTES, heads=True)]


def superblock_copy(files: LiveFiles, random: Random) -> list[Blow]:
    """Bytes, or a whole sector, of one of the four."""
    place = random.choice(files.inspection.places)
    path = str(files.superblock)
    if random.random() < 0.5:
        old = _read(path, place.position, SECTOR)
        blow = Blow(path, place.position, old, bytes(SECTOR), superblock_copy=place.number)
    else:
        end = place.position + COPY_SHOWN_BYTES
        blow = _flipped(random, path, place.position, end, superblock_copy=place.number)
    return [blow]


# --- sectors -------------------------------------------------------------------------------------


def zeroed_sector(files: LiveFiles, random: Random) -> list[Blow]:
    """A sector of entries, all zeros."""
    return _sector_of_entries(files, random, lambda path, at: bytes(SECTOR))


def zeroed_slots(files: LiveFiles, random: Random) -> list[Blow]:
    """A sector of slots, all zeros: as if 32 entries had never been written."""
    found = _slot(files, random)
    if found is None:
        return []
    segment, index, _ = found
    return [_slot_sector(segment, sector_of(segment.slot_position(index)), bytes(SECTOR))]


def misplaced_sector(files: LiveFiles, random: Random) -> list[Blow]:
    """A sector of entries that holds what belongs elsewhere in the file."""

    def another(path: str, at: int) -> bytes:
        return _read(path, sector_of(random.randrange(os.path.getsize(path))), SECTOR)

    return _sector_of_entries(files, random, another)


# --- parts ---------------------------------------------------------------------------------------


def _slot(files: LiveFiles, random: Random) -> tuple[Segment, int, Slot] | None:
    """Any, but more often one of the latest."""
    segments = files.segments
    if not segments:
        return None
    near_the_end = random.random() < TAIL_SHARE
    segment = segments[-1] if near_the_end else random.choice(segments)
    found = list(files.slots(segment))
    if not found:
        return None
    index, slot = random.choice(found[-TAIL_ENTRIES:] if near_the_end else found)
    return segment, index, slot


def _entry(files: LiveFiles, random: Random) -> tuple[Segment, Slot] | None:
    found = _slot(files, random)
    return None if found is None else (found[0], found[2])


def _flipped(random: Random, path: str, start: int, end: int, **about: object) -> Blow:
    """Up to so many bytes in `[start, end)`, each another one than before."""
    at = random.randrange(start, end)
    old = _read(path, at, min(random.randint(1, FLIPPED_MAX), end - at))
    new = bytes(byte ^ random.randint(1, 255) for byte in old)
    return Blow(path, at, old, new, **about)  # type: ignore[arg-type]


def _sector_of_entries(
    files: LiveFiles, random: Random, content: Callable[[str, int], bytes]
) -> list[Blow]:
    """Whatever stands in it is hit, but neither slots nor what lies behind the log."""
    found = _entry(files, random)
    if found is None:
        return []
    segment, chosen = found
    at = sector_of(random.randrange(chosen.position, chosen.after))
    start = max(at, segment.head.body_start)
    slots = [its for _, its in files.slots(segment)]
    end = min(at + SECTOR, slots[-1].after)
    hit = tuple(its.header for its in slots if its.position < end and its.after > start)
    old = _read(segment.path, start, end - start)
    new = content(segment.path, at)[start - at : end - at]
    return [Blow(segment.path, start, old, new, entries=hit, blanks=True)]


def _slot_sector(segment: Segment, at: int, content: bytes) -> Blow:
    """As much of a sector as holds slots that were written."""
    inside = slots_in(segment, at)
    start, end = segment.slot_position(inside.start), segment.slot_position(inside.stop)
    slots = [segment.slot(index) for index in inside]
    hit = tuple(its.header for its in slots if its is not None)
    old = _read(segment.path, start, end - start)
    new = content[start - at : end - at]
    pieces = (new[n : n + SLOT_BYTES] for n in range(0, len(new), SLOT_BYTES))
    then = [segment.unpacked(piece, index) for index, piece in zip(inside, pieces, strict=True)]
    contradicts = any(
        before is not None and now is not None and before.header != now.header
        for before, now in zip(then, slots, strict=True)
    )
    return Blow(segment.path, start, old, new, slots=hit, blanks=True, contradicts=contradicts)


def _read(path: str, position: int, length: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(position)
        return file.read(length).ljust(length, b"\0")


# --- what stood there before ---------------------------------------------------------------------


class OldSectors:
    """Sectors as they once were, to be put back: a disk that lost a write it had acknowledged."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], bytes] = {}

    def keep(self, files: LiveFiles) -> None:
        """The newest slots and entries, and every copy of the superblock, as they are now."""
        for place in files.inspection.places:
            self._keep(str(files.superblock), place.position)
        if files.segments:
            segment = files.segments[-1]
            last = segment.last_readable()
            self._keep(segment.path, sector_of(segment.slot_position(segment.count - 1)))
            if last is not None and last.after < segment.head.size:
                self._keep(segment.path, sector_of(last.after))

    def _keep(self, path: str, at: int) -> None:
        self._kept.setdefault((path, at), _read(path, at, SECTOR))

    def stale(self, files: LiveFiles, random: Random) -> list[Blow]:
        """One of those that were kept of this replica, and are others by now."""
        mine = [
            (path, at) for path, at in self._kept if path.startswith(files.inspection.directory)
        ]
        random.shuffle(mine)
        for path, at in mine:
            old = self._kept.pop((path, at))
            blow = self._put_back(files, path, at, old)
            if blow is not None and blow.changes:
                return [blow]
        return []

    def _put_back(self, files: LiveFiles, path: str, at: int, content: bytes) -> Blow | None:
        if path == str(files.superblock):
            (number,) = [it.number for it in files.inspection.places if it.position == at] or (
                None,
            )
            now = _read(path, at, SECTOR)
            return None if number is None else Blow(path, at, now, content, superblock_copy=number)
        segment = next((it for it in files.segments if it.path == path), None)
        if segment is None:
            return None
        if at + SECTOR <= segment.head.body_start:
            return _slot_sector(segment, at, content)
        slots = [its for _, its in files.slots(segment)]
        start, end = max(at, segment.head.body_start), min(at + SECTOR, slots[-1].after)
        if start >= end:
            return None
        hit = tuple(it.header for it in slots if it.position < end and it.after > start)
        now = _read(path, start, end - start)
        return Blow(path, start, now, content[start - at : end - at], entries=hit, blanks=True)
