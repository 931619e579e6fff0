"""A replica's files, seen from outside while its node runs, stands still or is down.

Nothing here goes through the node: what stands where is read off the files themselves, so that
whoever damages them knows what was hit, and whether others still have a good copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from shardlog.protocol.entry import Header
from shardlog.storage.failures import StorageFailure
from shardlog.storage.inspection import Inspection, replica_directories
from shardlog.storage.layout import SLOTS_START, Slot
from shardlog.storage.real_files import RealFiles
from shardlog.storage.root import Root
from shardlog.storage.segment import Segment
from shardlog.storage.segments import Place, Segments
from shardlog.storage.superblock import NAME

SECTOR = 4096
NO_END = 1 << 62


class LiveFiles:
    """The only replica on a volume.  What it says holds for as long as nobody writes there."""

    def __init__(self, inspection: Inspection, root: Root) -> None:
        self.inspection = inspection
        self.root = root
        self.superblock = Path(inspection.directory) / NAME
        items = [each.segment for each in inspection.segments if each.segment is not None]
        self.log = Segments(inspection.handles, inspection.directory)
        self.log.table = (tuple(items), tuple(segment.first for segment in items))
        self.log.end = NO_END
        for segment in items:
            segment.load_count()

    @property
    def segments(self) -> list[Segment]:
        """Those that hold entries."""
        return [segment for segment in self.log.items if segment.count > 0]

    @property
    def incarnation(self) -> int:
        return self.root.superblock.incarnation

    def slots(self, segment: Segment) -> Iterator[tuple[int, Slot]]:
        """The readable ones, with their index."""
        for index, slot in segment.walk(0):
            if slot is not None and slot.header.end > self.root.first:
                yield index, slot

    def place(self, offset: int) -> Place | None:
        return self.log.covering(offset)

    def holds(self, header: Header) -> bool:
        """Whether there is a good copy of an entry here, with a slot that tells what it is."""
        try:
            place = self.place(header.base)
        except StorageFailure:
            return False
        return (
            place is not None
            and place.slotted
            and place.slot.header == header
            and self.log.entry(header) is not None
        )

    def whole(self) -> bool:
        """Whether nothing at all is bad; reads everything."""
        for _ in self.inspection.scan(bodies=True):
            pass
        return not self.inspection.damage

    def end(self) -> int:
        """Where the last readable entry ends."""
        last = self.segments[-1].last_readable() if self.segments else None
        return last.header.end if last else self.root.first


@contextmanager
def live_files(volume: Path) -> Iterator[LiveFiles | None]:
    """None if there is no replica that could be read."""
    files = RealFiles()
    found = replica_directories(files, str(volume)) if volume.exists() else []
    if len(found) != 1:
        yield None
        return
    with ExitStack() as stack:
        try:
            inspection = stack.enter_context(closing(Inspection(files, found[0])))
            root = inspection.root
            there = None if root is None else LiveFiles(inspection, root)
        except StorageFailure:
            there = None  # it is being made, or removed, right now
        yield there


def sector_of(position: int) -> int:
    """Where the sector begins that holds a byte."""
    return position - position % SECTOR


def slots_in(segment: Segment, sector: int) -> range:
    """The slots that a sector holds, in part or whole."""
    first = (max(sector, SLOTS_START) - SLOTS_START) // 128
    last = (min(sector + SECTOR, segment.head.body_start) - SLOTS_START + 127) // 128
    return range(first, max(first, min(last, segment.count)))
