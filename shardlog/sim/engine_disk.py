"""The storage engine itself as a simulated disk, over files that fail in every way.

It has the face of `ModelDisk`, so that the same faults, atlas and oracle work on both: `stable` and
`cache` show each entry with its two copies, slot and body, judged from the bytes that are really
there.  What was meant to stand where is known from the rounds that were performed.

A round runs when its time comes; a crash before that cuts it off after some of its operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from shardlog.protocol.effects import (
    Disk,
    Erase,
    Format,
    Recovered,
    ResetLog,
    RewriteEntry,
    Superblock,
    TrimLog,
    TruncateLog,
)
from shardlog.protocol.entry import Entry, Header
from shardlog.sim.disk import FLUSH_US, ModelDisk
from shardlog.sim.faulty_files import Crashed, FaultyFiles
from shardlog.sim.scheduler import Scheduler
from shardlog.sim.slot import Part, Slot
from shardlog.storage.changes import Change
from shardlog.storage.failures import DiskFailed, MissingFile, StorageFailure
from shardlog.storage.handles import Handles
from shardlog.storage.layout import (
    BLANK_SLOT,
    ENTRY_HEADER_BYTES,
    SLOT_BYTES,
    SLOTS_START,
    Head,
    pack_header,
    slot_sequence,
    unpack_slot,
)
from shardlog.storage.plan import Plan
from shardlog.storage.relaxing import Flush, Relax
from shardlog.storage.rounds import Round
from shardlog.storage.store import Store
from shardlog.storage.superblock import NAME, SuperblockFile

VOLUME = "volume"
PLAN = Plan(size_min=6 << 10, size_max=24 << 10, slots_min=12, slots_max=96, zeroed_bytes=512)
OPERATIONS_CUT_MAX = 12
KILLED = 0.4


@dataclass(frozen=True, slots=True)
class Placed:
    """An entry, and where its two copies were written."""

    entry: Entry
    path: str
    slot_at: int
    sequence: int
    lineage: int
    position: int


class EngineDisk:
    """One volume with one replica.  `on_synced(token)` and `on_error()` tell its node."""

    def __init__(
        self,
        scheduler: Scheduler,
        random: Random,
        sync_us: int,
        on_synced: Callable[[int], None],
        on_error: Callable[[], None],
        shard: str,
        node: str,
        relaxed: bool = False,
    ) -> None:
        self.relaxed = relaxed
        self.scheduler = scheduler
        self.random = random
        self.sync_us = sync_us
        self.on_synced = on_synced
        self.on_error = on_error
        self.shard = shard
        self.node = node
        self.directory = f"{VOLUME}/{shard}"
        self.files = FaultyFiles(random)
        self._begin_volume()
        self.generation = 0
        self.running: Round | None = None
        self._waking = False
        self.failing = False
        self.misdirecting: int | None = None
        self.damaged = 0
        self.placed: dict[int, Placed] = {}
        self._views: dict[bool, dict[int, Slot]] = {}
        self.store = self._opened()[0]

    def _begin_volume(self) -> None:
        self.files.make_directory(VOLUME)
        self.files.sync_directory("")

    def _opened(self) -> tuple[Store, Recovered | None]:
        return Store.open(Handles(self.files, 4, 0), self.directory, self.shard, self.node, PLAN)

    # --- the process's side ----------------------------------------------------------------------

    def submit(self, effect: Disk) -> None:
        self.store.submit(effect)
        if not self._waking:
            self._waking = True
            self.scheduler.after(0, self._wake, self.generation)

    def _wake(self, generation: int) -> None:
        """All that the replica wanted in one step has been submitted."""
        if generation == self.generation:
            self._waking = False
            self._start()

    def read(self, header: Header) -> Entry | None:
        """The entry, or None if its copy here is damaged."""
        return self.store.read(header)

    def read_run(self, headers: Sequence[Header]) -> tuple[Entry, ...]:
        return self.store.read_run(headers)

    def headers(self, start: int, end: int, most: int) -> list[Header]:
        return self.store.headers(start, end, most)

    def covering(self, offset: int) -> Header | None:
        return self.store.covering(offset)

    def _start(self) -> None:
        if self.running is not None:
            return
        if self.relaxed and not self.store.relaxed and self.store.files.root is not None:
            self.store.tend(Relax(True))
            self.scheduler.after(FLUSH_US, self._flush, self.generation)
        self.running = self.store.take()
        if self.running is not None:
            delay = int(self.sync_us * (0.5 + self.random.random()))
            self.scheduler.after(delay, self._finish, self.generation)

    def _flush(self, generation: int) -> None:
        """As a node does: what has been written is synced a moment later."""
        if generation == self.generation and self.store.relaxed:
            self.store.tend(Flush())
            self.scheduler.after(FLUSH_US, self._flush, self.generation)
            self._start()

    def _finish(self, generation: int) -> None:
        round_ = self.running
        if generation != self.generation or round_ is None:
            return
        change = self.store.change_of(round_)
        try:
            self._perform(round_)
        except StorageFailure:
            self.store.fail(round_)
            self.on_error()
            return
        self.running = None
        tokens = self.store.finish(round_)
        self._follow(change)
        self._start()
        for token in tokens:
            if generation == self.generation:
                self.on_synced(token)

    def _perform(self, round_: Round) -> None:
        self._views.clear()
        self._note(round_)
        if self.failing:
            self.failing = False
            files = self.files
            self.random.choice(
                (files.fail_next_write, files.fail_next_sync, files.fail_next_open)
            )()
        self._misdirect(round_)
        try:
            round_.write()
            round_.sync()
        finally:
            self.files.fail_next_open(False)

    # --- what was meant to stand where -----------------------------------------------------------

    def _note(self, round_: Round) -> None:
        group = round_.group
        if group is None:
            return
        head = group.segment.head
        for at, slot in enumerate(group.slots):
            entry = Entry(slot.header, bytes(group.buffers[2 * at + 1]))
            self._place(entry, group.segment.path, group.index + at, head, slot.position)

    def _place(self, entry: Entry, path: str, index: int, head: Head, position: int) -> None:
        self.placed[entry.header.base] = Placed(
            entry,
            path,
            SLOTS_START + index * SLOT_BYTES,
            slot_sequence(head.number, index),
            head.lineage,
            position,
        )

    def _follow(self, change: Change | None) -> None:
        """A rare operation was done: what it dropped is not expected any more."""
        if isinstance(change, TruncateLog):
            self._expect(lambda base: base < change.end)
        elif isinstance(change, TrimLog):
            self._expect(lambda base: base >= change.first)
        elif isinstance(change, Format | Erase | ResetLog):
            self.placed.clear()
        elif isinstance(change, RewriteEntry):
            place = self.store.files.segments.covering(change.entry.header.base)
            assert place is not None
            segment = place.segment
            self._place(change.entry, segment.path, place.number, segment.head, place.slot.position)

    def _expect(self, kept: Callable[[int], bool]) -> None:
        self.placed = {base: it for base, it in self.placed.items() if kept(base)}

    # --- crashes ---------------------------------------------------------------------------------

    def crash(self, power: bool = False) -> None:
        """Cut off the round on its way, and decide what became of all that was not synced.

        Sometimes only the process is gone, and if it is relaxed always but with `power`: then all
        of it is still there, and still not durable.
        """
        if self.running is not None and not self.store.broken:
            self._note(self.running)
            self.files.crash_after(self.random.randrange(OPERATIONS_CUT_MAX))
            try:
                self.running.write()
                self.running.sync()
            except (Crashed, StorageFailure):
                pass
        killed = self.random.random() < KILLED
        if not power if self.relaxed else killed:
            self.files.kill()
        else:
            self.files.crash()
        self._forget()

    def _forget(self) -> None:
        self.generation += 1
        self.running = None
        self._waking = False
        self.failing = False
        self.misdirecting = None
        self._views.clear()

    def recover(self) -> Recovered | None:
        """What the engine finds at start; None if there is no replica."""
        self._views.clear()
        self.store, recovered = self._opened()
        shown = self._view(durable=True)
        self._expect(lambda base: base in shown)
        return recovered

    # --- damage, dealt by the adversary ----------------------------------------------------------

    def rot_body(self, base: int) -> None:
        it = self.placed[base]
        at = it.position + self.random.randrange(ENTRY_HEADER_BYTES + len(it.entry.body))
        self._rot(it.path, at)

    def rot_header(self, base: int) -> None:
        it = self.placed[base]
        self._rot(it.path, it.slot_at + self.random.randrange(SLOT_BYTES))

    def _rot(self, path: str, position: int) -> None:
        self._views.clear()
        self.damaged += 1
        self.files.rot(path, position)

    def misdirect_next_write(self, victim: int) -> None:
        """The next lone entry that is not longer than `victim` lands on it, and spoils it."""
        self.misdirecting = victim

    def _misdirect(self, round_: Round) -> None:
        group = round_.group
        victim = self.placed.get(-1 if self.misdirecting is None else self.misdirecting)
        if group is None or victim is None or len(group.slots) != 1:
            return
        if group.slots[0].length <= len(victim.entry.body):
            self.misdirecting = None
            self.damaged += 2
            self.files.misdirect_next_write(victim.path, victim.position)

    def fail_next(self) -> None:
        """The next round reports an error; a node stops at once then."""
        self.failing = True

    def wipe(self) -> None:
        """A new, empty volume under the old name.  The node is down while this is done."""
        self.files.wipe()
        self._begin_volume()
        self._forget()
        self.placed.clear()
        self.damaged += 1

    # --- for checkers ----------------------------------------------------------------------------

    @property
    def superblock(self) -> Superblock | None:
        """The one that a crash would leave."""
        if NAME not in self.files.list(self.directory):
            return None
        try:
            copies = SuperblockFile(self.files, self.directory).copies()
        except (MissingFile, DiskFailed):
            return None
        newest = max((copy for copy in copies if copy), key=lambda copy: copy.sequence)
        return newest.root.superblock

    @property
    def first(self) -> int:
        root = self.store.files.root
        return root.first if root else 0

    @property
    def stable(self) -> dict[int, Slot]:
        """What a crash is certain to leave."""
        return self._view(durable=True)

    @property
    def cache(self) -> dict[int, Slot]:
        """What the process reads, with what it has not written yet."""
        fresh = {base: Slot(entry) for base, entry in self.store.fresh.items()}
        return {**self._view(durable=False), **fresh}

    def holds(self, base: int, checksum: int) -> bool:
        slot = self.stable.get(base)
        return (
            slot is not None
            and slot.body is Part.OK
            and slot.entry.header.checksum == checksum
            and self.superblock is not None
        )

    def _view(self, durable: bool) -> dict[int, Slot]:
        known = self._views.get(durable)
        if known is None:
            known = {}
            for base, it in self.placed.items():
                slot = self._judged(it, self.files.image(it.path, durable))
                if slot is not None:
                    known[base] = slot
            self._views[durable] = known
        return known

    def _judged(self, it: Placed, image: bytearray | None) -> Slot | None:
        """An entry by its two copies; None if there is no trace of it."""
        if image is None:
            return None
        packed = bytes(image[it.slot_at : it.slot_at + SLOT_BYTES])
        length = len(it.entry.body)
        meant = pack_header(it.entry.header, length) + it.entry.body
        there = bytes(image[it.position : it.position + len(meant)])
        body = Part.OK if there == meant else Part.BAD
        slot = unpack_slot(packed, it.lineage, it.sequence) if len(packed) == SLOT_BYTES else None
        if slot is not None and slot.header == it.entry.header:
            return Slot(it.entry, Part.OK, body)
        if packed == BLANK_SLOT or not packed:
            return Slot(it.entry, Part.ABSENT, body) if body is Part.OK else None
        return Slot(it.entry, Part.BAD, body)


SimulatedDisk = ModelDisk | EngineDisk
