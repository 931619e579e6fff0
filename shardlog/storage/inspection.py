"""Looking at a replica's files without touching them.

Opening a replica finishes and mends; whoever wants to know what is on the disk must not.  So all
reading here goes through `ReadOnlyFiles`, which can do nothing else, and what would stop a start is
collected as a `Finding` instead of raised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from shardlog.protocol.entry import Kind
from shardlog.protocol.history import OPEN_END
from shardlog.storage.failures import (
    Damaged,
    DiskFailed,
    ReadOnlyVolume,
    StorageFailure,
    WrongFormat,
)
from shardlog.storage.files import File, Files
from shardlog.storage.findings import Consequence, Finding, Found
from shardlog.storage.handles import Handles
from shardlog.storage.layout import HEAD_COPY_BYTES, Context, unpack_head
from shardlog.storage.movement import flaw
from shardlog.storage.opening import tail_from
from shardlog.storage.root import Root
from shardlog.storage.scan import Bounds, Scan
from shardlog.storage.segment import MAKING, SUFFIX, Segment, name_of, numbers_in
from shardlog.storage.spares import PREFIX
from shardlog.storage.superblock import COPIES, NAME, Copy, SuperblockFile

Listing = list[str]


class ReadOnlyFiles:
    """A volume that can only be read, whatever it is asked for."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def open(self, path: str, *, write: bool = True) -> File:
        """Never for writing: those who ask for it by habit get a file that refuses to."""
        return self._files.open(path, write=False)

    def list(self, path: str) -> Listing:
        return self._files.list(path)

    def create(self, path: str) -> File:
        raise ReadOnlyVolume(path)

    def make_directory(self, path: str) -> None:
        raise ReadOnlyVolume(path)

    def rename(self, old: str, new: str) -> None:
        raise ReadOnlyVolume(old)

    def remove(self, path: str) -> None:
        raise ReadOnlyVolume(path)

    def sync_directory(self, path: str) -> None:
        raise ReadOnlyVolume(path)

    def machine_run(self) -> str:
        return self._files.machine_run()


def replica_directories(files: Files, path: str) -> list[str]:
    """`path` itself if it is a replica's, else those in it that are."""
    if _is_replica(files, path):
        return [path]
    inside = [f"{path}/{name}" for name in files.list(path)]
    return [each for each in inside if _is_replica(files, each)]


def _is_replica(files: Files, path: str) -> bool:
    try:
        names = files.list(path)
    except DiskFailed:
        return False
    return any(name == NAME or _lineage(name) for name in names)


def _lineage(name: str) -> int:
    """That of a segment; 0 for all other files."""
    return numbers_in(name)[0] if name.endswith(SUFFIX) else 0


@dataclass(frozen=True, slots=True)
class Place:
    """One of the four places of the superblock; `sequence` is None if it cannot be read."""

    number: int
    position: int
    sequence: int | None
    state: str


@dataclass(slots=True)
class SegmentSummary:
    """One segment's file, as far as it has been read; `segment` is None if it cannot be opened."""

    path: str
    segment: Segment | None = None
    number: int = -1
    left_over: bool = False
    entries: int = 0
    end: int | None = None

    @property
    def first(self) -> int:
        return -1 if self.segment is None else self.segment.first


class Inspection:
    """One replica's directory.  `findings` grows while `scan` goes on; close it in the end.

    Raises `WrongFormat` if another version of Shardlog wrote the superblock.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self.handles = Handles(ReadOnlyFiles(files), open_files_max=8)
        self.directory = directory
        self.findings: list[Finding] = []
        self.root: Root | None = None
        self.places: list[Place] = []
        self.context = Context(0, 0)
        names = self.handles.files.list(directory)
        self._read_superblock(names)
        self.segments = self._open_segments(names)
        # There may be many inspections at a time; a scan opens again what it needs.
        self.handles.close()

    def close(self) -> None:
        self.handles.close()

    @property
    def size_bytes(self) -> int:
        """How much a scan has to go through, at most."""
        return sum(each.segment.head.size for each in self.segments if each.segment)

    @property
    def damage(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.is_damage]

    def is_damaged(self, path: str) -> bool:
        return any(finding.path == path for finding in self.damage)

    def _tell(self, path: str, position: int, what: str, consequence: Consequence) -> None:
        self.findings.append(Finding(path, position, what, consequence))

    # --- the superblock --------------------------------------------------------------------------

    def _read_superblock(self, names: Sequence[str]) -> None:
        file = SuperblockFile(self.handles.files, self.directory)
        if NAME not in names:
            what = "there is no superblock: it is lost, or the replica was being erased"
            self._tell(file.path, 0, what, Consequence.REPLACE)
            return
        try:
            copies = file.copies()
        except (Damaged, DiskFailed) as failure:
            self._tell(file.path, *_why(failure), Consequence.REPLACE)
            return
        newest = max(
            (copy for copy in copies if copy), key=lambda copy: copy.sequence, default=None
        )
        for number, copy in enumerate(copies):
            state = "lost" if copy is None else "older"
            if newest is not None and copy is not None and copy.sequence == newest.sequence:
                state = "newest"
            sequence = None if copy is None else copy.sequence
            self.places.append(Place(number, number * file.stride, sequence, state))
        self._judge(file, newest)

    def _judge(self, file: SuperblockFile, newest: Copy | None) -> None:
        lost = [place for place in self.places if place.state == "lost"]
        if newest is None:
            what = "no copy of the superblock can be read"
            self._tell(file.path, 0, what, Consequence.REPLACE)
            return
        self.root = newest.root
        in_danger = {0, 1} if newest.sequence % 2 == 0 else {2, 3}
        if in_danger <= {place.number for place in lost}:
            position = min(in_danger) * file.stride
            what = "two copies, perhaps of a newer superblock, are lost"
            self._tell(file.path, position, what, Consequence.REPLACE)
            lost = [place for place in lost if place.number not in in_danger]
        for place in lost:
            what = f"copy {place.number + 1} of {COPIES} of the superblock is torn or damaged"
            self._tell(file.path, place.position, what, Consequence.MENDED)
        why = flaw(newest.root.records)
        if why:
            self._tell(file.path, newest.place * file.stride, why, Consequence.REPLACE)
        if newest.root.cut_to is not None:
            what = f"a cut to offset {newest.root.cut_to} is under way"
            self._tell(file.path, newest.place * file.stride, what, Consequence.FINISHED)

    # --- the segments ----------------------------------------------------------------------------

    def _open_segments(self, names: Sequence[str]) -> list[SegmentSummary]:
        """Those of the log in their order, and what is left over of others."""
        newest = max(map(_lineage, names), default=0)
        lineage = newest if self.root is None else self.root.lineage
        found: list[SegmentSummary] = []
        for name in names:
            path = f"{self.directory}/{name}"
            if name.endswith(SUFFIX) and _lineage(name) >= lineage:
                number = numbers_in(name)[1]
                segment = self._opened(path, lineage, number)
                found.append(SegmentSummary(path, segment, number))
            elif name.endswith(SUFFIX):
                self._tell_left_over(path, lineage)
                found.append(SegmentSummary(path, left_over=True))
            elif name.startswith(PREFIX):
                self._tell(path, 0, "kept to become a segment", Consequence.REMOVED)
            elif name.startswith(NAME) and name != NAME:
                self._tell(path, 0, "left over from writing a superblock", Consequence.IGNORED)
            elif name != NAME:
                self._tell(path, 0, "not a file of Shardlog's", Consequence.IGNORED)
        self._check_order([each for each in found if not each.left_over])
        return found

    def _opened(self, path: str, lineage: int, number: int) -> Segment | None:
        try:
            segment = Segment.open(self.handles, path)
            self._check_heads(segment)
        except (Damaged, DiskFailed, WrongFormat) as failure:
            self._tell(path, *_why(failure), Consequence.REPLACE)
            return None
        head, root = segment.head, self.root
        if root and (head.shard, head.incarnation) != (root.shard, root.superblock.incarnation):
            what = f"it belongs to shard {head.shard} #{head.incarnation}"
        elif (head.lineage, head.number) != (lineage, number):
            what = "the file was renamed"
        else:
            return segment
        self._tell(path, 0, what, Consequence.REPLACE)
        return None

    def _tell_left_over(self, path: str, lineage: int) -> None:
        """Of an earlier log, or of a segment that was not finished; but not a renamed one."""
        try:
            head = Segment.open(self.handles, path).head
        except (Damaged, DiskFailed, WrongFormat):
            head = None
        if head is not None and head.lineage == lineage and not path.endswith(MAKING):
            self._tell(path, 0, "the file was renamed", Consequence.REPLACE)
        else:
            self._tell(path, 0, "left over from an earlier log", Consequence.REMOVED)

    def _check_heads(self, segment: Segment) -> None:
        with self.handles.use(segment.path) as file:
            for position in (0, HEAD_COPY_BYTES):
                try:
                    known = unpack_head(file.read(position, HEAD_COPY_BYTES))
                except DiskFailed:
                    known = None
                if known is None:
                    what = "a copy of the segment's head is damaged"
                    self._tell(segment.path, position, what, Consequence.MENDED)

    def _check_order(self, summaries: Sequence[SegmentSummary]) -> None:
        for before, after in pairwise(summaries):
            if after.number != before.number + 1:
                what = f"segment {before.number + 1}, the one before, is missing"
                self._tell(after.path, 0, what, Consequence.REPLACE)
        opened = [each for each in summaries if each.segment is not None]
        first = 0 if self.root is None else self.root.first
        while len(opened) > 1 and opened[1].first <= first:
            trimmed = opened.pop(0)
            self._tell(trimmed.path, 0, "everything in it is trimmed", Consequence.REMOVED)
            trimmed.left_over, trimmed.segment = True, None
        if self.root is None:
            return
        last = summaries[-1].number if summaries else -1
        if self.root.cut_to is None and self.root.segments > last + 1:
            path = f"{self.directory}/{name_of(self.root.lineage, self.root.segments - 1)}"
            self._tell(path, 0, "it is missing", Consequence.REPLACE)
        if opened and opened[0].first > first:
            what = f"the segment with offset {first} is missing"
            self._tell(opened[0].path, 0, what, Consequence.REPLACE)

    # --- entries ---------------------------------------------------------------------------------

    def scan(self, *, bodies: bool) -> Iterator[Found]:
        """Everything in the log, in order; without `bodies` only slots are read, where they can.

        What is trimmed, or about to be cut, may still be in the files, but is no part of the log.
        """
        scan = Scan(self._bounds(), self.findings, bodies)
        items = [(each, each.segment) for each in self.segments if each.segment is not None]
        ends = [segment.first for _, segment in items[1:]]
        for (summary, segment), end in zip(items, [*ends, None], strict=False):
            for found in scan.segment(segment, end):
                if scan.bounds.hold(found.header):
                    summary.entries += found.header.kind is not Kind.UNKNOWN
                    yield found
            summary.end = scan.at
        yield from scan.finish(self.directory)
        self.context = scan.context
        self._check_context(scan, [segment for _, segment in items])

    def _bounds(self) -> Bounds:
        root = self.root
        if root is None:
            return Bounds()
        block = root.superblock
        cut_to = OPEN_END if root.cut_to is None else root.cut_to
        return Bounds(
            block.history, root.first, root.boundary, block.commit, tail_from(root), cut_to
        )

    def _check_context(self, scan: Scan, segments: Sequence[Segment]) -> None:
        """The latest commit context must agree with the log (rule 17, V2).

        Its checksum is 0 if the entry that ends there could not be read when it was written.
        """
        end, checksum = self.context
        wrong = end == scan.bounds.first and checksum not in (0, scan.bounds.boundary)
        if end > scan.at and not scan.doubt:
            what = f"commit context {end} beyond the log's end {scan.at}"
            self._tell(*scan.context_at, what, Consequence.REPLACE)
        holding = [segment for segment in segments if segment.first < end]
        if holding and end > scan.bounds.first:
            slot = holding[-1].slot(max(holding[-1].find(end - 1), 0))
            if slot is not None and slot.header.base < end <= slot.header.end:
                wrong = slot.header.end != end or checksum not in (0, slot.header.checksum)
        if wrong and self.root is not None:
            what = f"commit context {end} does not match the log"
            self._tell(*scan.context_at, what, Consequence.REPLACE)


def _why(failure: StorageFailure) -> tuple[int, str]:
    """Position and reason, apart."""
    if isinstance(failure, Damaged):
        return failure.position, failure.why.removeprefix(f"at byte {failure.position}: ")
    return 0, failure.why
