"""One segment: a file of entries, with their slots in front.

Slots stand in the order of their offsets and have one size, so they are the index too: an entry is
found by halving, in O(log n) reads of 128 bytes, and nothing has to be kept in memory or rebuilt.
A slot that cannot be read is passed over; its entry is found by walking on from the one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from shardlog.checksum import is_body
from shardlog.protocol.entry import Entry, Header
from shardlog.storage.failures import Damaged, DiskFailed, WrongFormat
from shardlog.storage.files import SECTOR_BYTES, File
from shardlog.storage.handles import Handles
from shardlog.storage.layout import (
    BLANK_SLOT,
    ENTRY_HEADER_BYTES,
    FORMAT_VERSION,
    HEAD_COPY_BYTES,
    LOST_SLOT,
    SEGMENT_MAGIC,
    SLOT_BYTES,
    SLOT_PLACE,
    SLOTS_START,
    Head,
    RecordType,
    Slot,
    foreign_version,
    headers_of,
    is_summed,
    pack_head,
    pack_header,
    peek_slot,
    slot_sequence,
    unpack_head,
    unpack_header,
    unpack_slot,
)
from shardlog.storage.recent import Stretch
from shardlog.storage.spares import Spares

SUFFIX = ".segment"
RUN_SLOTS = 256
"""A raw range has no more entries."""
WALK_SLOTS = 64
MAKING = f"making{SUFFIX}"
GROUP_BYTES_MAX = 2 << 20
"""No more bytes of entries than this, or else one single entry, are on their way to the disk."""


def name_of(lineage: int, number: int) -> str:
    return f"{lineage:08d}-{number:010d}{SUFFIX}"


def numbers_in(name: str) -> tuple[int, int]:
    """Lineage and number; a lineage of 0, which there never is, for any other name."""
    lineage, _, number = name.removesuffix(SUFFIX).partition("-")
    if not lineage.isdecimal() or not number.isdecimal():
        return 0, 0
    return int(lineage), int(number)


@dataclass(frozen=True, slots=True)
class Raw:
    """`count` whole entries as they stand in a file: `[first, end)` in `length` bytes from
    `position`."""

    path: str
    position: int
    length: int
    first: int
    end: int
    count: int


class Run(NamedTuple):
    """Entries `[first, end)` in the bytes `[position, after)`; `slot` is the one behind them."""

    first: int
    position: int
    end: int
    after: int
    slot: int


class Segment:
    """`count` slots are taken, -1 if nobody has looked yet; the next entry goes to `position`."""

    __slots__ = ("_found", "_told", "count", "handles", "head", "path", "position", "read_up_to")

    def __init__(self, handles: Handles, path: str, head: Head) -> None:
        self.handles = handles
        self.path = path
        self.head = head
        self.count = 0
        self.position = head.body_start
        # Where the last raw range ended: an offset, and the slot that stands behind it.
        self.read_up_to = (-1, 0)
        # The headers that were told last, of which not all need have been wanted, and their slot.
        self._told: tuple[int, list[Header]] = (0, [])
        # The slot that was found last.
        self._found = 0

    @property
    def first(self) -> int:
        return self.head.first

    @property
    def bodies(self) -> Stretch:
        """All but the head and the slots, which are looked at again and again."""
        start = self.head.body_start
        return Stretch(self.path, start, self.head.size - start)

    def fits(self, length: int, slots: int, position: int) -> bool:
        """Whether an entry with a body of `length` fits behind `slots` others, at `position`."""
        room = self.head.size - position
        return slots < self.head.slots and ENTRY_HEADER_BYTES + length <= room

    # --- making ----------------------------------------------------------------------------------

    @classmethod
    def make(
        cls,
        handles: Handles,
        spares: Spares,
        directory: str,
        head: Head,
        zeroed: int,
        lost: int = 0,
    ) -> Segment:
        """A new file, durable with its name; the slots and `zeroed` bytes behind are written out.

        The first `lost` slots are made unreadable: something may have been there.

        A block that was only reserved has to be recorded as written at its first sync; one that
        holds zeros already has not, nor has one of a spare file.
        """
        files = handles.files
        path = f"{directory}/{name_of(head.lineage, head.number)}"
        making = f"{directory}/{MAKING}"
        spared = spares.take(head.size, making)
        file = files.open(making) if spared else files.create(making)
        try:
            if spared:
                zeroed = 0
            else:
                file.allocate(head.size)
            copy = pack_head(head)
            blank = min(head.body_start + zeroed, head.size) - SLOTS_START
            slots = LOST_SLOT * lost
            file.write(0, [copy, copy, slots, bytes(blank - len(slots))])
            file.sync()
        finally:
            file.close()
        files.rename(making, path)
        files.sync_directory(directory)
        segment = cls(handles, path, head)
        segment.count = lost
        return segment

    @classmethod
    def open(cls, handles: Handles, path: str) -> Segment:
        """What the head says; the slots are not read."""
        with handles.use(path) as file:
            copies = [_head_copy(file, place) for place in (0, 1)]
            head = copies[0] or copies[1]
            if head is None:
                for place in (0, 1):
                    data = _read(file, place * HEAD_COPY_BYTES, HEAD_COPY_BYTES) or b""
                    version = foreign_version(data, SEGMENT_MAGIC)
                    if version is not None:
                        why = f"format version {version}, this is {FORMAT_VERSION}"
                        raise WrongFormat(path, why)
                raise Damaged(path, 0, "neither copy of the segment's head can be read")
            if file.size() < head.size:
                why = f"the file was cut short: it had {head.size} bytes"
                raise Damaged(path, file.size(), why)
        segment = cls(handles, path, head)
        segment.count, segment.position = -1, head.size
        return segment

    def has_head(self) -> bool:
        """Whether both copies are as they were written."""
        with self.handles.use(self.path) as file:
            return all(_head_copy(file, place) == self.head for place in (0, 1))

    def mend_head(self) -> int:
        """Write copies that were lost again; how many there were."""
        mended = 0
        with self.handles.use(self.path) as file:
            for place in (0, 1):
                if _head_copy(file, place) != self.head:
                    file.write(place * HEAD_COPY_BYTES, [pack_head(self.head)])
                    file.sync()
                    mended += 1
        return mended

    # --- slots -----------------------------------------------------------------------------------

    def slot_position(self, index: int) -> int:
        return SLOTS_START + index * SLOT_BYTES

    def unpacked(self, data: bytes, index: int) -> Slot | None:
        sequence = slot_sequence(self.head.number, index)
        slot = unpack_slot(data, self.head.lineage, sequence)
        if slot is None or slot.position < self.head.body_start or slot.after > self.head.size:
            return None
        return slot

    def slot_bytes(self, index: int, count: int) -> list[bytes | None]:
        """Some slots as they stand; None for one in a sector that cannot be read."""
        with self.handles.use(self.path) as file:
            data = _read(file, self.slot_position(index), count * SLOT_BYTES)
            if data is not None:
                return [data[at : at + SLOT_BYTES] for at in range(0, len(data), SLOT_BYTES)]
            return [
                _read(file, self.slot_position(at), SLOT_BYTES)
                for at in range(index, index + count)
            ]

    def slot(self, index: int) -> Slot | None:
        data = self.slot_bytes(index, 1)[0]
        return None if data is None else self.unpacked(data, index)

    def load_count(self) -> None:
        """Up to the last slot that is not blank, readable or not."""
        if self.count >= 0:
            return
        total = self.head.slots
        with self.handles.use(self.path) as file:
            data = _read(file, SLOTS_START, total * SLOT_BYTES)
        if data is not None:
            self.count = -(-len(data.rstrip(b"\0")) // SLOT_BYTES)
            return
        taken = [index for index, it in enumerate(self.slot_bytes(0, total)) if it != BLANK_SLOT]
        self.count = taken[-1] + 1 if taken else 0

    # --- finding ---------------------------------------------------------------------------------

    def find(self, offset: int) -> int:
        """The index of the last readable slot whose base is at or below `offset`; -1 if none."""
        low, high = 0, self.count
        found = -1
        with self.handles.use(self.path) as file:
            for known in (self._found, self.read_up_to[1]):
                if self._is_last(file, known, offset):
                    return known
            while low < high:
                middle = (low + high) // 2
                index, keys = self._peeked(file, middle, high)
                if keys is None or keys[0] > offset:
                    high = middle
                else:
                    found, low = index, index + 1
        self._found = found
        return found

    def _is_last(self, file: File, index: int, offset: int) -> bool:
        """Whether `find` would come to this slot: most search near to where they did before."""
        if not 0 <= index < self.count:
            return False
        keys = self._peeked(file, index, index + 1)[1]
        if keys is None or keys[0] > offset:
            return False
        if index + 1 == self.count:
            return True
        behind = self._peeked(file, index + 1, index + 2)[1]
        return behind is not None and behind[0] > offset

    def find_time(self, timestamp_ms: int) -> int:
        """The index of the first readable slot at or after a time; `count` if there is none."""
        low, high = 0, self.count
        found = self.count
        with self.handles.use(self.path) as file:
            while low < high:
                middle = (low + high) // 2
                index, keys = self._peeked(file, middle, high)
                if keys is None or keys[1] >= timestamp_ms:
                    found = index if keys is not None else found
                    high = middle
                else:
                    low = index + 1
        return found

    def _peeked(self, file: File, index: int, high: int) -> tuple[int, tuple[int, int] | None]:
        """The first slot in `[index, high)` that can be read: its base and timestamp."""
        lineage, number = self.head.lineage, self.head.number
        for at in range(index, high):
            data = _read(file, SLOTS_START + at * SLOT_BYTES, SLOT_BYTES)
            if data is not None and len(data) == SLOT_BYTES:
                keys = peek_slot(data, lineage, slot_sequence(number, at))
                if keys is not None:
                    return at, keys
        return high, None

    def slot_from(self, index: int) -> Slot | None:
        """The first readable slot at or behind `index`."""
        return self._readable(index, self.count)[1]

    def last_readable(self) -> Slot | None:
        slots = (self.slot(index) for index in range(self.count - 1, -1, -1))
        return next((slot for slot in slots if slot is not None), None)

    def next_readable(self, offset: int) -> int:
        """The index of the first readable slot with a base at or above `offset`, or `count`."""
        for index, slot in self.walk(max(self.find(offset), 0)):
            if slot is not None and slot.header.base >= offset:
                return index
        return self.count

    def _readable(self, index: int, high: int) -> tuple[int, Slot | None]:
        """The first slot in `[index, high)` that can be read."""
        for at in range(index, high):
            slot = self.slot(at)
            if slot is not None:
                return at, slot
        return high, None

    # --- entries ---------------------------------------------------------------------------------

    def header_at(self, position: int) -> tuple[Header, int] | None:
        """The header that stands before a body, and the body's length; None if it is damaged."""
        with self.handles.use(self.path) as file:
            data = _read(file, position, ENTRY_HEADER_BYTES)
        known = None if data is None else unpack_header(data)
        if known is None or position + ENTRY_HEADER_BYTES + known[1] > self.head.size:
            return None
        return known

    def entry(
        self, header: Header, position: int, length: int, *, alone: bool = False
    ) -> Entry | None:
        """The entry, verified; None if a bit of it is not as it was written.

        `alone` says that those behind it are not asked for next.
        """
        with self.handles.use(self.path) as file:
            data = _read(file, position, ENTRY_HEADER_BYTES + length, alone)
        if data is None or data[:ENTRY_HEADER_BYTES] != pack_header(header, length):
            return None
        body = data[ENTRY_HEADER_BYTES:]
        if not is_body(header, body):
            return None
        return Entry(header, body)

    def walk(self, index: int, batch: int = WALK_SLOTS) -> Iterator[tuple[int, Slot | None]]:
        """The slots from `index` on, None for those that cannot be read."""
        while index < self.count:
            pieces = self.slot_bytes(index, min(batch, self.count - index))
            for piece in pieces:
                yield index, None if piece is None else self.unpacked(piece, index)
                index += 1

    def headers_on(self, start: int, end: int, most: int) -> list[Header]:
        """See `Segments.headers_on`; whoever reads on is spared the search.

        No more at once than a raw range has.
        """
        index = self._told_at(start)
        if index < 0:
            known_end, index = self.read_up_to
            index = index if known_end == start else max(self.find(start), 0)
        head = self.head
        count = max(min(most, RUN_SLOTS, self.count - index), 0)
        body, sequence = range(head.body_start, head.size), slot_sequence(head.number, index)
        found = headers_of(self._packed(index, count), head.lineage, sequence, body, start)
        while found and found[-1].base >= end:
            found.pop()
        if found:
            self._told = (index, found.copy())
        return found

    def _told_at(self, start: int) -> int:
        """The slot of an entry that begins where one of those told last ended; -1 if none did."""
        index, headers = self._told
        for at in range(len(headers), 0, -1):
            if headers[at - 1].end == start:
                return index + at
        return -1

    def run(self, at: int, end: int, bytes_max: int, summed: bool = False) -> Run | None:
        """The entries that stand one behind the other from slot `at` on.

        At least one, and else no more than `bytes_max`; none that reaches beyond offset `end`.
        A slot's end and length are borne out by the base and position of the next, so only the
        first and the last are summed; if the last is bad, all are.
        """
        wanted = (int(RecordType.ENTRY), self.head.lineage, slot_sequence(self.head.number, at))
        packed = self._packed(at, min(RUN_SLOTS, self.count - at))
        if not packed or not is_summed(packed, 0):
            return None
        kind, lineage, sequence = wanted
        first = start = upto = after = -1
        slot = at
        for mine, its, place, position, base, count, length in SLOT_PLACE.iter_unpack(packed):
            behind = position + ENTRY_HEADER_BYTES + length
            if mine != kind or its != lineage or place != sequence or base + count > end:
                break
            if slot == at:
                first, start = base, position
            elif base != upto or position != after or behind - start > bytes_max:
                break
            if summed and not is_summed(packed, (slot - at) * SLOT_BYTES):
                break
            upto, after = base + count, behind
            slot, sequence = slot + 1, sequence + 1
        if slot == at:
            return None
        if not summed and not is_summed(packed, (slot - 1 - at) * SLOT_BYTES):
            return self.run(at, end, bytes_max, True)
        return Run(first, start, upto, after, slot)

    def _packed(self, slot: int, count: int) -> bytes:
        """Some slots, in one piece; nothing if they cannot be read."""
        with self.handles.use(self.path) as file:
            return _read(file, SLOTS_START + slot * SLOT_BYTES, count * SLOT_BYTES) or b""


def remove(handles: Handles, path: str) -> None:
    """Forgotten when it is gone: whoever opens it a moment before must not leave it to the next.

    There may be another file of that name soon.
    """
    handles.files.remove(path)
    handles.forget(path)


def wipe(file: File, position: int, end: int) -> bool:
    """Zeros in `[position, end)`; False if it was blank already, and nothing was written."""
    wrote = False
    while position < end:
        length = min(GROUP_BYTES_MAX, end - position)
        data = _read(file, position, length)
        used = length if data is None else len(data.rstrip(b"\0"))
        if used:
            overwrite(file, position, bytes(used))
            wrote = True
        position += length
    return wrote


def overwrite(file: File, position: int, data: bytes, lost: bytes = b"\0") -> None:
    """Write where sectors may not be readable any more.

    A disk has to read a sector of which only a part is written.  One that it cannot read is written
    whole instead, with `lost` in the place of the rest, which is gone anyway.
    """
    end = position + len(data)
    before = position % SECTOR_BYTES
    if before and _read(file, position - before, SECTOR_BYTES) is None:
        data = lost * before + data
        position -= before
    behind = -end % SECTOR_BYTES
    if behind and _read(file, end + behind - SECTOR_BYTES, SECTOR_BYTES) is None:
        data += lost * behind
    file.write(position, [data])


def _read(file: File, position: int, length: int, alone: bool = False) -> bytes | None:
    """The bytes; None if the disk cannot give them."""
    try:
        return (file.read_alone if alone else file.read)(position, length)
    except DiskFailed:
        return None


def _head_copy(file: File, place: int) -> Head | None:
    data = _read(file, place * HEAD_COPY_BYTES, HEAD_COPY_BYTES)
    return None if data is None else unpack_head(data)
