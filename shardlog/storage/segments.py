"""The segments of one log, in order: finding, reading, cutting.

Which segment holds an offset is known from their first offsets alone; within it the slots are
halved.  Nothing here decides what is durable: `store` does, and calls these in its order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from shardlog.checksum import is_body
from shardlog.protocol.entry import Entry, EntryRun, Header, Kind, entry_of
from shardlog.protocol.failures import ImpossibleState
from shardlog.storage.failures import Damaged, DiskFailed, WrongIdentity
from shardlog.storage.handles import Handles
from shardlog.storage.layout import (
    ENTRY_HEADER_BYTES,
    LOST_BYTE,
    SLOT_BYTES,
    Context,
    Head,
    Slot,
    pack_header,
)
from shardlog.storage.plan import Plan
from shardlog.storage.recent import Stretch
from shardlog.storage.root import Root
from shardlog.storage.segment import (
    MAKING,
    SUFFIX,
    Raw,
    Segment,
    name_of,
    numbers_in,
    overwrite,
    remove,
    wipe,
)
from shardlog.storage.spares import SPARES_MAX, Spares

_NO_CONTEXT = Context(0, 0)
_NOTHING = EntryRun()
RECENT_SEGMENTS = 4
RUN_BYTES_MAX = 1 << 20
"""So much is read at once of entries that stand together."""


class Place(NamedTuple):
    """Where an entry stands."""

    segment: Segment
    number: int
    slot: Slot

    @property
    def slotted(self) -> bool:
        """Whether the slot could be read; if not, it is made up from the entry."""
        return self.slot.context is not _NO_CONTEXT


class Segments:
    """`end` is where the readable log ends; `doubt` counts the lost slots behind it, if any."""

    def __init__(self, handles: Handles, directory: str) -> None:
        self.handles = handles
        self.directory = directory
        # The segments and their first offsets; replaced together, because others may be reading.
        self.table: tuple[tuple[Segment, ...], tuple[int, ...]] = ((), ())
        self.end = 0
        self.doubt = 0
        self.spares = Spares(handles, directory)
        # How many segments there had been when the log was last trimmed.
        self._made_at_trim = 0

    # --- opening ---------------------------------------------------------------------------------

    def open(self, root: Root) -> None:
        """Those of this lineage that are not trimmed; what is left over of others is removed."""
        present = self.handles.files.list(self.directory)
        self.spares.remove_left_over(present)
        names = [name for name in present if name.endswith(SUFFIX)]
        kept: list[Segment] = []
        for name in names:
            path = f"{self.directory}/{name}"
            lineage, number = numbers_in(name)
            if lineage < root.lineage:
                self._remove_left_over(path, root)
                continue
            segment = Segment.open(self.handles, path)
            self._check(segment, root, lineage, number)
            kept.append(segment)
        for before, after in pairwise(kept):
            if after.head.number != before.head.number + 1:
                raise self._missing(root, before.head.number + 1)
        if root.cut_to is None and root.segments > (kept[-1].head.number + 1 if kept else 0):
            raise self._missing(root, root.segments - 1)
        while len(kept) > 1 and kept[1].first <= root.first:
            remove(self.handles, kept.pop(0).path)
        if kept and kept[0].first > root.first:
            raise Damaged(kept[0].path, 0, f"the segment with offset {root.first} is missing")
        self._set(kept)
        for full in reversed(kept[:-1]):
            self.handles.recent.found(full.bodies)
        self.end = root.first
        self._made_at_trim = self.made

    def _remove_left_over(self, path: str, root: Root) -> None:
        """Of an earlier log, or of a segment that was not finished; but not a renamed one."""
        try:
            head = Segment.open(self.handles, path).head
        except Damaged:
            head = None
        if head is not None and head.lineage == root.lineage and not path.endswith(MAKING):
            raise Damaged(path, 0, "the file was renamed")
        remove(self.handles, path)

    def _missing(self, root: Root, number: int) -> Damaged:
        return Damaged(f"{self.directory}/{name_of(root.lineage, number)}", 0, "it is missing")

    def _check(self, segment: Segment, root: Root, lineage: int, number: int) -> None:
        head = segment.head
        if head.shard != root.shard or head.incarnation != root.superblock.incarnation:
            raise WrongIdentity(
                segment.path,
                f"it belongs to shard {head.shard} #{head.incarnation},"
                f" not to {root.shard} #{root.superblock.incarnation}",
            )
        if head.number != number or not head.lineage == lineage == root.lineage:
            raise Damaged(segment.path, 0, "the file was renamed")

    @property
    def items(self) -> tuple[Segment, ...]:
        return self.table[0]

    @property
    def made(self) -> int:
        """How many there have been, the trimmed ones included."""
        return self.items[-1].head.number + 1 if self.items else 0

    def _set(self, items: Sequence[Segment]) -> None:
        self.table = (tuple(items), tuple(segment.first for segment in items))

    def extend(self, root: Root, plan: Plan, first: int, length: int, lost: int = 0) -> Segment:
        """A new last segment from `first` on, with room for a body of `length`.

        As many slots as were `lost` are lost in it as well, from its beginning on.
        """
        last = self.items[-1] if self.items else None
        slots, size = plan.next(last, length, lost)
        number = last.head.number + 1 if last else 0
        incarnation = root.superblock.incarnation
        head = Head(root.shard, incarnation, root.lineage, number, first, 0, slots, size)
        made = Segment.make(
            self.handles, self.spares, self.directory, head, plan.zeroed_bytes, lost
        )
        self._set((*self.items, made))
        return made

    def start_over(self, first: int) -> None:
        """An empty log that begins at `first`; the files are somebody else's to remove."""
        self._set(())
        self.end, self.doubt = first, 0
        self._made_at_trim = 0
        self.spares.drop()

    # --- finding ---------------------------------------------------------------------------------

    def holding(self, offset: int) -> Segment | None:
        """The segment that holds, or would hold, an offset."""
        items, firsts = self.table
        return items[max(bisect_right(firsts, offset) - 1, 0)] if items else None

    def covering(self, offset: int) -> Place | None:
        """The entry whose range holds `offset`; None if it cannot be read, or is not here."""
        segment = self.holding(offset)
        if segment is None:
            return None
        segment.load_count()
        index = segment.find(offset)
        slot = segment.slot(index) if index >= 0 else None
        if slot is not None and slot.header.base <= offset < slot.header.end:
            return Place(segment, index, slot)
        return self._unslotted(segment, index, slot, offset)

    def _unslotted(
        self, segment: Segment, index: int, slot: Slot | None, offset: int
    ) -> Place | None:
        """Behind the last readable slot: walk over entries whose slots were lost."""
        position, at = (
            (slot.after, slot.header.end) if slot else (segment.head.body_start, segment.first)
        )
        while index + 1 < segment.count:
            index += 1
            known = segment.header_at(position)
            if known is None:
                return None
            header, length = known
            if header.base != at or header.base > offset:
                return None
            at = header.end
            found = Slot(header, length, position, _NO_CONTEXT)
            if offset < header.end:
                return Place(segment, index, found)
            position = found.after
        return None

    def from_offset(self, start: int, end: int) -> Iterator[Place | tuple[int, int]]:
        """The entries with a base in `[start, end)`, in order.

        A stretch that cannot be read comes as a pair of offsets.
        """
        at, end = start, min(end, self.end)
        first = self.covering(start)
        if first is not None and first.slot.header.base < start:
            at = first.slot.header.end
        while at < end:
            place = first if first is not None and first.slot.header.base == at else None
            place, first = place or self.covering(at), None
            if place is None:
                upto = min(self.readable_after(at), end)
                yield (at, upto)
                at = upto
                continue
            yield place
            at = place.slot.header.end
            for number, slot in place.segment.walk(place.number + 1):
                if slot is None or slot.header.base != at or at >= end:
                    break
                yield Place(place.segment, number, slot)
                at = slot.header.end

    def headers_on(self, start: int, end: int, most: int) -> list[Header]:
        """Up to `most` headers, of entries one behind the other, the first of which is at `start`.

        Fewer where something cannot be read, where a segment ends and where they are many, which
        says nothing of what comes then; none if the first cannot be read, or there is none.
        """
        segment = self.holding(start)
        if segment is None:
            return []
        segment.load_count()
        return segment.headers_on(start, min(end, self.end), most)

    def readable_after(self, offset: int) -> int:
        """The base of the next readable entry behind an unreadable one, or the end."""
        segment = self.holding(offset)
        if segment is not None:
            slot = segment.slot_from(segment.next_readable(offset + 1))
            if slot is not None:
                return slot.header.base
        return next((first for first in self.table[1] if first > offset), self.end)

    def at_time(self, timestamp_ms: int, start: int) -> int:
        """The base of the first entry at or behind `start` that is not older, or the end."""
        items = self.items
        low, high = 0, len(items)
        found: Slot | None = None
        while low < high:
            middle = (low + high) // 2
            index, last = self._readable(items, middle, high)
            if last is None:
                high = middle
            elif last.header.timestamp_ms < timestamp_ms:
                low = index + 1
            else:
                found = items[index].slot_from(items[index].find_time(timestamp_ms))
                high = middle
        return self._not_older(
            timestamp_ms, start, self.end if found is None else found.header.base
        )

    def _not_older(self, timestamp_ms: int, start: int, base: int) -> int:
        """`base`, or an entry right before it whose slot is lost, so that no search has seen it."""
        while base > start:
            place = self.covering(base - 1)
            if place is None:
                before = self.readable_before(base - 1)
                return max(before, start)
            if place.slot.header.timestamp_ms < timestamp_ms:
                return base
            base = place.slot.header.base
        return max(base, start)

    def readable_before(self, offset: int) -> int:
        """Where the unreadable stretch around an offset begins."""
        segment = self.holding(offset)
        if segment is None:
            return offset
        index = segment.find(offset)
        slot = segment.slot(index) if index >= 0 else None
        base = slot.header.end if slot else segment.first
        while base < offset and (place := self.covering(base)) is not None:
            base = place.slot.header.end
        return base

    def _readable(self, items: Sequence[Segment], index: int, high: int) -> tuple[int, Slot | None]:
        """The first segment in `[index, high)` with a slot that can be read, and the last such."""
        for at in range(index, high):
            items[at].load_count()
            last = items[at].last_readable()
            if last is not None:
                return at, last
        return high, None

    # --- reading ---------------------------------------------------------------------------------

    def entry(self, header: Header) -> Entry | None:
        """The entry, verified; None if its copy here is damaged."""
        place = self.covering(header.base)
        if place is None or place.slot.header != header:
            return None
        return place.segment.entry(header, place.slot.position, place.slot.length)

    def entries(self, headers: Sequence[Header]) -> EntryRun:
        """As many of them, from the first on, as stand in one range and are as they were written.

        None at all if they have to be looked at one by one.
        """
        end = min(headers[-1].end, self.end)
        raw = self.raw(headers[0].base, end, RUN_BYTES_MAX)
        if raw is None or raw.first != headers[0].base:
            return _NOTHING
        try:
            with self.handles.use(raw.path) as file:
                data = file.read(raw.position, raw.length)
        except DiskFailed:
            return _NOTHING
        self.read_on(raw, once=True)
        found: list[Entry] = []
        view, at = memoryview(data), 0
        for header in headers[: raw.count]:
            start = at + ENTRY_HEADER_BYTES
            length = header.body_checksum >> 32
            if data[at:start] != pack_header(header, length):
                break
            body = view[start : start + length]
            if not is_body(header, body):
                break
            found.append(entry_of((header, body)))
            at = start + length
        run = EntryRun(found)
        run.raw = view[:at]
        return run

    def read_on(self, raw: Raw, *, once: bool) -> None:
        """Who has read entries that were not in memory mostly wants those behind them next.

        If they are read `once` they need not stay there.  May be called in any thread.
        """
        items, firsts = self.table
        at = bisect_right(firsts, raw.first)
        if not 0 < at < len(items) or items[at - 1].path != raw.path:
            return  # the last one, or the log is another by now
        recent, size = self.handles.recent, items[at - 1].head.size
        if recent.holds(raw.path):
            return
        after = size if raw.end >= firsts[at] else raw.position + raw.length
        read = Stretch(raw.path, raw.position, after - raw.position)
        self.handles.ahead.has_read(read, size, once=once and not recent.keeps(raw.path))

    def raw(self, start: int, end: int, bytes_max: int) -> Raw | None:
        """Whole entries that stand one behind the other, from the one that holds `start` on.

        At least one, even if it is longer than `bytes_max`; never beyond `end`.  None if the slot
        cannot be read: then the entries have to be read one by one.  Whoever reads on is spared
        the search.
        """
        segment = self.holding(start)
        if segment is None:
            return None
        segment.load_count()
        known_end, index = segment.read_up_to
        run = segment.run(index, end, bytes_max) if known_end == start else None
        if run is None or run.first != start:
            index = segment.find(start)
            run = segment.run(index, end, bytes_max) if index >= 0 else None
        if run is None or not run.first <= start < run.end:
            return None
        segment.read_up_to = (run.end, run.slot)
        length, count = run.after - run.position, run.slot - index
        return Raw(segment.path, run.position, length, run.first, run.end, count)

    def is_recent(self, offset: int) -> bool:
        """Whether it stands where entries were written lately, so that slots are in memory.

        A segment that nobody has looked into since the start was not.
        """
        recent = self.items[-RECENT_SEGMENTS:]
        segment = self.holding(offset) if recent and recent[0].first <= offset else None
        return segment is not None and segment.count >= 0

    # --- placing ---------------------------------------------------------------------------------

    def behind(self, base: int) -> tuple[Segment, int, int] | None:
        """Segment, slot and position for the entry at `base`: right behind the one before it.

        None if that one cannot be read.
        """
        segment = self.holding(base)
        if segment is None:
            raise ImpossibleState(f"no segment for offset {base}")
        if segment.first == base:
            return segment, 0, segment.head.body_start
        place = self.covering(base - 1)
        if place is None or place.slot.header.end != base or place.segment is not segment:
            return None
        if place.slot.header.kind is Kind.LOST:
            return None  # what it stands for was longer
        return segment, place.number + 1, place.slot.after

    def following(self, segment: Segment, base: int) -> Place | None:
        """The first entry behind `base` in its segment that has a readable slot."""
        index = segment.next_readable(base + 1)
        slot = segment.slot(index) if index < segment.count else None
        return None if slot is None else Place(segment, index, slot)

    def has_room(self, segment: Segment, index: int, position: int, length: int) -> bool:
        """Whether an entry fits there, before the next readable one begins."""
        if not segment.fits(length, index, position) or segment.slot(index) is not None:
            return False
        following = segment.slot_from(index + 1)
        return following is None or position + ENTRY_HEADER_BYTES + length <= following.position

    # --- cutting ---------------------------------------------------------------------------------

    def truncate(self, end: int, root: Root, plan: Plan) -> None:
        """Drop everything from `end` on, durably.  Begun again after a crash, it ends the same.

        If `end` lies in an unreadable stretch, that is kept up to there: then nobody knows where in
        its file the log goes on, so it does in a new one, whose beginning ends the stretch.
        """
        while len(self.items) > 1 and self.items[-1].first >= end:
            gone = self.items[-1]
            self._set(self.items[:-1])
            remove(self.handles, gone.path)
        self.handles.files.sync_directory(self.directory)
        if self.items and not self._cut(self.items[-1], end):
            self.extend(root, plan, end, 0)
        self.end, self.doubt = end, 0

    def _cut(self, segment: Segment, end: int) -> bool:
        """False if nobody knows where in the file `end` is."""
        segment.load_count()
        clean = True
        if end <= segment.first:
            keep, position = 0, segment.head.body_start
        else:
            place = self.covering(end - 1)
            if place is not None and place.slot.header.end != end:
                raise ImpossibleState(f"cannot cut inside an entry at {end}")
            if place is not None:
                keep, position = place.number + 1, place.slot.after
            else:
                keep, position = segment.next_readable(end), segment.head.size
                clean = False
        with self.handles.use(segment.path) as file:
            if segment.count > keep:
                blank = bytes((segment.count - keep) * SLOT_BYTES)
                overwrite(file, segment.slot_position(keep), blank, LOST_BYTE)
            wipe(file, position, segment.head.size)
            file.sync()
        segment.count, segment.position = keep, position
        return clean

    def trim(self, first: int) -> None:
        """Let go of the segments that end at or below `first`; the last one stays.

        As many files are kept as were used since the last time, so a log at rest keeps few.
        """
        wanted = min(self.made - self._made_at_trim, SPARES_MAX)
        self._made_at_trim = self.made
        size = self.items[-1].head.size if self.items else 0
        while len(self.items) > 1 and self.items[1].first <= first:
            gone = self.items[0]
            self._set(self.items[1:])
            if gone.head.size == size and len(self.spares) < wanted:
                self.spares.keep(gone.path, size)
            else:
                remove(self.handles, gone.path)
        self.spares.drop(wanted)
