"""The superblock file: four copies of the root, of which at most one is being written.

A root is written to two of the four places, those that hold the older one, and each copy is
synced before the next is begun.  So a power cut leaves at most one copy torn.  Two places that
cannot be read are damage, not a torn write; if they may have held the newest root, the replica does
not know any more what it has promised, and must not be started (T4).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from shardlog.checksum import sum_of
from shardlog.storage.failures import Damaged, DiskFailed, MissingFile, WrongFormat
from shardlog.storage.files import SECTOR_BYTES, File, Files
from shardlog.storage.layout import FORMAT_VERSION
from shardlog.storage.movement import flaw
from shardlog.storage.root import Malformed, Root, pack_root, unpack_root

NAME = "superblock"
_GROWN = "superblock.new"
MAGIC = b"SHARDSUP"
COPIES = 4
STRIDE_BYTES = 8192
COPY_BYTES_MAX = 64 << 20
"""More than any root has, so that a damaged length costs no more memory."""
_PREFIX = struct.Struct("<8sIIQQ")
"""magic, CRC32C of all that follows it, format version, sequence, length of the root"""
_SUMMED_FROM = 12


@dataclass(frozen=True, slots=True)
class Copy:
    """One readable copy, at its place."""

    place: int
    sequence: int
    root: Root


class SuperblockFile:
    """One replica's.  `sequence` is that of the newest root; `stride` the room for one copy."""

    def __init__(self, files: Files, directory: str) -> None:
        self.files = files
        self.directory = directory
        self.path = f"{directory}/{NAME}"
        self.sequence = 0
        self.stride = STRIDE_BYTES

    # --- writing ---------------------------------------------------------------------------------

    def create(self, root: Root) -> None:
        """All copies of the first root stand in the file before it gets its name."""
        self._make(2, pack_root(root))
        self.sequence = 2

    def write(self, root: Root) -> None:
        """Durable when it returns."""
        data = pack_root(root)
        sequence = self.sequence + 1
        if _PREFIX.size + len(data) > self.stride:
            self._make(sequence, data)
        else:
            self._overwrite(sequence, data)
        self.sequence = sequence

    def renew(self, root: Root) -> None:
        """All copies anew, in a new file."""
        sequence = self.sequence + 1
        self._make(sequence, pack_root(root))
        self.sequence = sequence

    def _overwrite(self, sequence: int, data: bytes) -> None:
        file = self.files.open(self.path)
        try:
            for place in _places(sequence):
                file.write(place * self.stride, [_packed(sequence, data)])
                file.sync()
        finally:
            file.close()

    def _make(self, newest: int, data: bytes) -> None:
        """A new file, with room for roots twice as long as this one."""
        assert _PREFIX.size + len(data) <= COPY_BYTES_MAX, f"a root of {len(data)} bytes"
        stride = self.stride
        while _PREFIX.size + 2 * len(data) > stride:
            stride *= 2
        made = f"{self.directory}/{_GROWN}"
        file = self.files.create(made)
        try:
            file.allocate(COPIES * stride)
            for sequence in (newest - 1, newest):
                for place in _places(sequence):
                    file.write(place * stride, [_packed(sequence, data)])
            file.sync()
        finally:
            file.close()
        self.files.rename(made, self.path)
        self.files.sync_directory(self.directory)
        self.stride = stride

    # --- reading ---------------------------------------------------------------------------------

    def load(self) -> Root:
        """The newest root, for certain; what was lost of its copies is made good."""
        places = self.copies()
        copies = [copy for copy in places if copy is not None]
        newest = max(copies, key=lambda copy: copy.sequence, default=None)
        if newest is None:
            raise Damaged(self.path, 0, "no copy of the superblock can be read")
        first, second = _places(newest.sequence + 1)
        if places[first] is None and places[second] is None:
            at = first * self.stride
            raise Damaged(self.path, at, "two copies, perhaps of a newer superblock, are lost")
        why = flaw(newest.root.records)
        if why:
            raise Damaged(self.path, newest.place * self.stride, why)
        self.sequence = newest.sequence
        if not _as_written(places, newest.sequence):
            self.write(newest.root)
            self.write(newest.root)
        return newest.root

    def is_whole(self) -> bool:
        """Whether every copy is as it was written last.

        May be asked in any thread; while a root is written it may seem that it is not.
        """
        try:
            places = SuperblockFile(self.files, self.directory).copies()
        except (Damaged, WrongFormat, MissingFile):
            return False
        return _as_written(places, self.sequence)

    def copies(self) -> list[Copy | None]:
        """What stands in each of the four places; None for one that cannot be read."""
        file = self.files.open(self.path, write=False)
        try:
            size = file.size()
            if size < COPIES * STRIDE_BYTES or size % (COPIES * STRIDE_BYTES):
                raise Damaged(self.path, size, "the file was cut short")
            self.stride = size // COPIES
            return [self._copy(file, place) for place in range(COPIES)]
        finally:
            file.close()

    def _copy(self, file: File, place: int) -> Copy | None:
        try:
            data = file.read(place * self.stride, _PREFIX.size)
            magic, total, version, sequence, length = _PREFIX.unpack(data)
            end = _PREFIX.size + length
            if magic != MAGIC or end > min(self.stride, COPY_BYTES_MAX):
                return None
            data = file.read(place * self.stride, end)
        except DiskFailed:
            return None
        if sum_of(data[_SUMMED_FROM:]) != total:
            return None
        if version != FORMAT_VERSION:
            raise WrongFormat(self.path, f"format version {version}, this is {FORMAT_VERSION}")
        try:
            root = unpack_root(data[_PREFIX.size : end])
        except Malformed as error:
            raise Damaged(self.path, place * self.stride, str(error)) from error
        return Copy(place, sequence, root) if place in _places(sequence) else None


def _as_written(places: list[Copy | None], newest: int) -> bool:
    """All can be read, and both of the newest root are there."""
    same = sum(1 for copy in places if copy is not None and copy.sequence == newest)
    return None not in places and same == 2


def _places(sequence: int) -> tuple[int, int]:
    """Which two places a root is written to."""
    return (0, 1) if sequence % 2 else (2, 3)


def _packed(sequence: int, data: bytes) -> bytes:
    """Whole sectors, so that one that cannot be read any more is made good."""
    summed = struct.pack("<IQQ", FORMAT_VERSION, sequence, len(data)) + data
    packed = MAGIC + struct.pack("<I", sum_of(summed)) + summed
    return packed + bytes(-len(packed) % SECTOR_BYTES)
