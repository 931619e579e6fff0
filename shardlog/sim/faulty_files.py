"""A volume in memory that does to `Files` what power cuts, decay and kernels do.

What a crash leaves of unsynced bytes is in `faulty_content`, of unsynced names in `faulty_names`.
All chance comes from the `Random` given, so a run is a function of its seed; a test that tries all
crashes counts the `operations` of a script once, then runs it with `crash_after(n)` for each n.

After a crash the process is gone.  The operation that meets it raises `Crashed`, and so does every
later one until `crash()` has decided what is left; code that cleans up on its way out changes
nothing any more.  A handle from before `crash()` is dead: using it is an error of the simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Literal

from shardlog.sim.faulty_content import Alteration, Content
from shardlog.sim.faulty_names import Directory, Names
from shardlog.storage.failures import (
    DiskFailed,
    DiskFull,
    MissingFile,
    ReadOnlyVolume,
    TooManyOpenFiles,
)
from shardlog.storage.files import SECTOR_BYTES, Buffer

Keep = Literal["none", "all", "random"]
SortedNames = list[str]
CLOSED = -1

Tree = dict[str, "Tree | tuple[bytes, frozenset[int]]"]
"""A snapshot: directories are dicts, a file is its bytes and the sectors that cannot be read."""


class Crashed(BaseException):
    """The power is off.  No `Exception`: whoever handles failures of a disk is gone as well."""


class FaultyFile:
    """An open file, for as long as the process that opened it lives."""

    __slots__ = ("_content", "_files", "_life", "_path", "_sync_failed", "_write")

    def __init__(self, files: FaultyFiles, content: Content, path: str, write: bool) -> None:
        self._files = files
        self._content = content
        self._path = path
        self._write = write
        self._life = files.life
        self._sync_failed = False

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        if self._life != self._files.life:
            self._refuse()
        return len(self._content.cached)

    def read(self, position: int, length: int) -> bytes:
        if self._life != self._files.life:
            self._refuse()
        assert position >= 0 and length >= 0
        content = self._content
        if content.unreadable and not content.readable(position, position + length):
            raise DiskFailed(self._path, "read: Input/output error")
        return bytes(memoryview(content.cached)[position : position + length])

    read_alone = read

    def read_cached(self, position: int, length: int) -> Buffer | None:
        """Nothing is: every read is one of the medium."""
        return None

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        assert position >= 0
        self._begin("write")
        data = b"".join(buffers)
        if not data:
            return
        content = self._content
        end = position + len(data)
        self._files.reserve(self._path, end - len(content.cached))
        if content.unreadable and not content.writable(position, end):
            raise DiskFailed(self._path, "write: Input/output error")
        if self._files.adversary:
            self._write_badly(position, data)
        else:
            content.write(position, data)

    def _write_badly(self, position: int, data: bytes) -> None:
        """A failed write may have got some way; a misdirected one spoils another place."""
        files, content = self._files, self._content
        if files.take_failing_write():
            sectors = len(data) // SECTOR_BYTES
            written = data[: files.random.randint(0, sectors) * SECTOR_BYTES]
            if written:
                content.write(position, written)
            raise DiskFailed(self._path, "write: Input/output error")
        victim = files.take_misdirection()
        if victim is None:
            content.write(position, data)
            return
        content.write(max(position + len(data), len(content.cached)), b"")
        struck, start = victim
        struck.damage(start, start + len(data), lambda at, old: data[at : at + len(old)])

    def allocate(self, size: int) -> None:
        self._begin("allocate")
        growth = size - len(self._content.cached)
        if growth > 0:
            self._files.reserve(self._path, growth)
            self._content.write(size, b"")

    def sync(self) -> None:
        content, files = self._content, self._files
        if self._life != files.life:
            self._refuse()
        assert not self._sync_failed, f"{self._path}: synced again after a sync that failed"
        files.mutating()
        if files.read_only and content.pending:
            raise ReadOnlyVolume(self._path)
        if files.adversary and files.take_failing_sync():
            self._sync_failed = True
            content.land_some(files.random, files.luck())
            raise DiskFailed(self._path, "sync: Input/output error")
        content.sync()

    def settle(self) -> None:
        self.sync()
        self._content.settle()

    def fetch(self, position: int, length: int) -> None:
        """As with `drop`."""

    def drop(self, position: int, length: int) -> None:
        """What can be read is the same, wherever it is kept."""

    def close(self) -> None:
        if self._life == self._files.life:
            self._files.open_files -= 1
        self._life = CLOSED

    def _begin(self, operation: str) -> None:
        if self._life != self._files.life:
            self._refuse()
        if not self._write:
            raise DiskFailed(self._path, f"{operation}: Bad file descriptor")
        self._files.mutating()
        if self._files.read_only:
            raise ReadOnlyVolume(self._path)

    def _refuse(self) -> None:
        if self._files.down:
            raise Crashed
        if self._life == CLOSED:
            raise DiskFailed(self._path, "Bad file descriptor")
        raise AssertionError(f"{self._path}: used with a handle from before a crash")


class FaultyFiles:
    """One volume.  The upper half is `Files`, the lower half is for the adversary and for tests."""

    def __init__(self, random: Random) -> None:
        self.random = random
        # Mutating operations so far, refused ones included.
        self.operations = 0
        self.read_only = False
        self.open_files_max: int | None = None
        self.open_files = 0
        # Between the operation that met a crash and `crash()`.
        self.down = False
        # Counts crashes: a handle lives as long as the number it was opened with.
        self.life = 0
        self.power_cuts = 0
        # Whether the next write or sync has to ask for a fault that was dealt.
        self.adversary = False
        self._failing_open = False
        self._failing_write = False
        self._failing_sync = False
        self._misdirection: tuple[Content, int] | None = None
        self._crash_at: int | None = None
        self._capacity_bytes: int | None = None
        self._names = Names()

    # --- Files -----------------------------------------------------------------------------------

    def open(self, path: str, *, write: bool = True) -> FaultyFile:
        self._check_up()
        content = self._names.content(path)
        if write and self.read_only:
            raise ReadOnlyVolume(path)
        if self._failing_open:
            self._failing_open = False
            raise DiskFailed(path, "open: Input/output error")
        self._check_handles(path)
        self.open_files += 1
        return FaultyFile(self, content, path, write)

    def create(self, path: str) -> FaultyFile:
        self._change(path)
        self._check_handles(path)
        content = self._names.create(path)
        self.open_files += 1
        return FaultyFile(self, content, path, True)

    def make_directory(self, path: str) -> None:
        self._check_up()
        if not isinstance(self._names.find(path), Directory):
            self._change(path)
            self._names.make_directory(path)

    def list(self, path: str) -> SortedNames:
        self._check_up()
        try:
            return sorted(self._names.directory(path).cached)
        except MissingFile:
            return []

    def rename(self, old: str, new: str) -> None:
        self._change(old)
        self._names.rename(old, new)

    def remove(self, path: str) -> None:
        self._change(path)
        self._names.remove(path)

    def sync_directory(self, path: str) -> None:
        self._check_up()
        self.mutating()
        self._names.sync(self._names.directory(path))

    def machine_run(self) -> str:
        return f"run {self.power_cuts}"

    def _check_handles(self, path: str) -> None:
        if self.open_files_max is not None and self.open_files >= self.open_files_max:
            raise TooManyOpenFiles(path)

    def _change(self, path: str) -> None:
        self._check_up()
        self.mutating()
        if self.read_only:
            raise ReadOnlyVolume(path)

    def _check_up(self) -> None:
        if self.down:
            raise Crashed

    # --- for the handles -------------------------------------------------------------------------

    def mutating(self) -> None:
        """Called before a mutating operation takes effect."""
        if self.operations == self._crash_at:
            self.down = True
            self.life += 1
            raise Crashed
        self.operations += 1

    def reserve(self, path: str, growth_bytes: int) -> None:
        if self._capacity_bytes is None or growth_bytes <= 0:
            return
        if self._names.used_bytes() + growth_bytes > self._capacity_bytes:
            raise DiskFull(path)

    def luck(self) -> float:
        """How much of what was not synced landed: a crash is rarely halfway in everything."""
        return self.random.choice((0.0, 0.5, 0.5, 1.0))

    def take_failing_write(self) -> bool:
        failing, self._failing_write = self._failing_write, False
        self._look_for_faults()
        return failing

    def take_failing_sync(self) -> bool:
        failing, self._failing_sync = self._failing_sync, False
        self._look_for_faults()
        return failing

    def take_misdirection(self) -> tuple[Content, int] | None:
        victim, self._misdirection = self._misdirection, None
        self._look_for_faults()
        return victim

    def _look_for_faults(self) -> None:
        self.adversary = bool(self._failing_write or self._failing_sync or self._misdirection)

    # --- crashes ---------------------------------------------------------------------------------

    def crash_after(self, operations: int) -> None:
        """So many more mutating operations take effect; the next one raises `Crashed` before it."""
        self._crash_at = self.operations + operations

    def crash(self, keep: Keep = "random") -> None:
        """A power cut: decide what became of all that was not synced.  Every handle is dead."""
        luck = {"none": 0.0, "all": 1.0}.get(keep)
        if luck is None:
            luck = self.luck()
        self._names.crash(self.random, luck)
        for content in self._names.durable_contents():
            content.crash(self.random, luck)
        self.power_cuts += 1
        self._begin_life()

    def kill(self) -> None:
        """The process is gone, the machine is not: what was not synced may still be lost later."""
        self._begin_life()

    def _begin_life(self) -> None:
        self.life += 1
        self.down = False
        self.open_files = 0
        self._crash_at = None
        self._failing_open = self._failing_write = self._failing_sync = False
        self._misdirection = None
        self.adversary = False

    def wipe(self) -> None:
        """A new, empty volume in the place of the old."""
        self._names = Names()
        self._begin_life()

    def snapshot(self) -> Tree:
        """What is durable; a start for many runs."""
        return _copied(self._names.root)

    def restore(self, tree: Tree) -> None:
        """As if the power had been cut when `tree` was all there was."""
        self._names = Names()
        self._names.root = _planted(tree)
        self._begin_life()

    def image(self, path: str, durable: bool) -> bytearray | None:
        """A file's bytes, as a crash would leave them or as the process reads them."""
        content = self._names.find(path, durable=durable)
        if not isinstance(content, Content):
            return None
        return content.durable if durable else content.cached

    # --- damage, dealt by the adversary ----------------------------------------------------------

    def rot(self, path: str, position: int, length: int = 1) -> None:
        """Bits flip in each of these bytes, whether or not they were synced."""
        mask = bytes(self.random.randint(1, 255) for _ in range(length))
        self._damage(
            path,
            position,
            position + length,
            lambda at, old: bytes(byte ^ bits for byte, bits in zip(old, mask[at:], strict=False)),
        )

    def lose_sector(self, path: str, sector: int) -> None:
        """Reads as zeros until it is written again."""
        start = sector * SECTOR_BYTES
        self._damage(path, start, start + SECTOR_BYTES, lambda _, old: bytes(len(old)))

    def unreadable_sector(self, path: str, sector: int) -> None:
        """Reads that touch it fail, and writes of a part of it, until it is written whole."""
        content = self._names.content(path)
        assert sector * SECTOR_BYTES < len(content.cached), "there is no such sector"
        content.unreadable.add(sector)
        content.covered.discard(sector)

    def misdirect_next_write(self, path: str, position: int) -> None:
        """The next write, to whatever file, overwrites what is here instead; it grows nothing."""
        self._misdirection = (self._names.content(path), position)
        self.adversary = True

    def fail_next_write(self) -> None:
        self._failing_write = self.adversary = True

    def fail_next_open(self, failing: bool = True) -> None:
        """Of a file that is there; or let that failure pass, if it has not been met."""
        self._failing_open = failing

    def fail_next_sync(self) -> None:
        self._failing_sync = self.adversary = True

    def full(self, bytes_free: int | None = 0) -> None:
        """No more than so many bytes can be added; None lifts the limit."""
        used = self._names.used_bytes()
        self._capacity_bytes = None if bytes_free is None else used + bytes_free

    def _damage(self, path: str, start: int, end: int, alter: Alteration) -> None:
        content = self._names.content(path)
        assert 0 <= start < len(content.cached), "the damage must hit something"
        content.damage(start, end, alter)


def _copied(directory: Directory) -> Tree:
    return {
        name: _copied(node)
        if isinstance(node, Directory)
        else (bytes(node.durable), frozenset(node.unreadable))
        for name, node in directory.durable.items()
    }


def _planted(tree: Tree) -> Directory:
    directory = Directory()
    for name, copy in tree.items():
        directory.durable[name] = _planted(copy) if isinstance(copy, dict) else Content(*copy)
    directory.cached = dict(directory.durable)
    return directory
