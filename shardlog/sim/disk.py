"""A model of one replica's disk: what a power cut, decay and a confused controller leave behind.

An entry is written twice: whole (its *body*, which carries its header too) and, apart from it, a
*header copy* of one sector, which lands whole or not at all.  The second copy is what tells torn
from corrupt (rule 14).  A slot is classified at start:

    body ok                           present, whatever became of the header copy
    header copy ok, body not ok       CORRUPT: we know what was here
    header copy absent, body not ok   blank: never written, the log ends here
    header copy bad, body not ok      FAULT: something may have been here

There are two pictures of the log.  `cache` is what the process reads, unsynced writes included;
`stable` is what a crash is certain to leave.  They share the slot objects, so that decay strikes
both.  Operations wait in one queue: a `Sync` makes durable what stands before it, and nothing
behind a `Barrier` reaches the medium before the barrier is passed.  At a crash each operation that
may have reached the medium, and was not synced, landed, did not land, or was torn, independently.

A relaxed disk calls entries durable as soon as they are written, and syncs them a moment later, or
before anything else is written.  A power cut takes what is not synced, wholly or in part, and the
next start says that the tail is in doubt; the end of a process takes nothing.

The superblock is kept in alternating copies, so its write is atomic: the old one or the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from random import Random

from shardlog.protocol.effects import (
    Barrier,
    Disk,
    Erase,
    Format,
    Recovered,
    ResetLog,
    RewriteEntry,
    Superblock,
    Sync,
    TrimLog,
    TruncateLog,
    WriteEntries,
    WriteSuperblock,
)
from shardlog.protocol.entry import GENESIS_CHECKSUM, Entry, Header
from shardlog.protocol.failures import ImpossibleState
from shardlog.sim.failures import SafetyFailure
from shardlog.sim.recovery import classify
from shardlog.sim.scheduler import Scheduler
from shardlog.sim.slot import Part, Slot
from shardlog.storage.relaxing import IN_DOUBT

FLUSH_US = 1_000_000
"""A relaxed disk syncs what it has written at least so often."""

Operation = tuple[type, object, object]
"""An effect's type and what is left to do: slots and a commit offset, a superblock, an offset."""


class ModelDisk:
    """One volume.  `on_synced(token)` and `on_error()` tell its node what happened."""

    __slots__ = (
        "boundary",
        "cache",
        "cached_superblock",
        "damaged",
        "failing",
        "first",
        "flushed_commit",
        "generation",
        "headers_last",
        "loose",
        "misdirecting",
        "on_error",
        "on_synced",
        "pending",
        "random",
        "relaxed",
        "ridden_commit",
        "running",
        "scheduler",
        "stable",
        "superblock",
        "sync_us",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        random: Random,
        sync_us: int,
        on_synced: Callable[[int], None],
        on_error: Callable[[], None],
        headers_last: bool = False,
        relaxed: bool = False,
    ) -> None:
        self.relaxed = relaxed
        # Written, called durable, and not synced: each with the commit offset that rode along.
        self.loose: list[tuple[Slot, int]] = []
        self.flushed_commit = 0
        self.scheduler = scheduler
        self.random = random
        self.sync_us = sync_us
        self.on_synced = on_synced
        self.on_error = on_error
        self.headers_last = headers_last
        # Durable: None if there is no replica.
        self.superblock: Superblock | None = None
        self.first = 0
        self.boundary = GENESIS_CHECKSUM
        self.stable: dict[int, Slot] = {}
        # The latest commit offset that rode in with durable entries (rule 17).
        self.ridden_commit = 0
        # As the process sees it.
        self.cache: dict[int, Slot] = {}
        self.cached_superblock: Superblock | None = None
        self.pending: list[Operation] = []
        # How many of `pending` the sync under way covers; 0 if none is.
        self.running = 0
        self.generation = 0
        self.misdirecting: int | None = None
        self.failing = False
        self.damaged = 0

    # --- the process's side ----------------------------------------------------------------------

    def submit(self, effect: Disk) -> None:
        """Queue one operation; what it writes can be read at once."""
        if self.failing:
            self.failing = False
            self.on_error()
            return
        if isinstance(effect, WriteEntries):
            slots = [Slot(entry) for entry in effect.entries]
            cache = self.cache
            for slot in slots:
                cache[slot.entry.header.base] = slot
            if self.misdirecting is not None:
                self._misdirect(slots)
            self.pending.append((WriteEntries, slots, effect.commit))
        elif isinstance(effect, Sync | Barrier):
            self.pending.append((type(effect), effect, None))
            if not self.running:
                self._start()
        else:
            self.pending.append(self._cached(effect))

    def _cached(self, effect: Disk) -> Operation:
        """The rarer operations: show them in the cache, and keep what landing them needs."""
        if isinstance(effect, RewriteEntry):
            slot = Slot(effect.entry)
            self.cache[slot.entry.header.base] = slot
            return (RewriteEntry, [slot], 0)
        if isinstance(effect, WriteSuperblock):
            self.cached_superblock = effect.superblock
            return (WriteSuperblock, effect.superblock, None)
        if isinstance(effect, TruncateLog):
            _drop_from(self.cache, effect.end)
            return (TruncateLog, effect.end, None)
        if isinstance(effect, TrimLog):
            boundary = self._checksum_before(effect.first)
            _drop_below(self.cache, effect.first)
            return (TrimLog, effect.first, boundary)
        self.cache.clear()
        if isinstance(effect, ResetLog):
            return (ResetLog, effect.first, effect.boundary)
        if isinstance(effect, Format):
            self.cached_superblock = effect.superblock
            return (Format, effect.superblock, None)
        self.cached_superblock = None
        return (Erase, None, None)

    def _checksum_before(self, first: int) -> int:
        follower = self.cache.get(first)
        if follower is not None:
            return follower.entry.header.parent
        for slot in reversed(self.cache.values()):
            if slot.entry.header.end == first:
                return slot.entry.header.checksum
        return self.boundary

    def read(self, header: Header) -> Entry | None:
        """The entry, or None if its copy here is damaged."""
        slot = self.cache.get(header.base)
        if slot is None or slot.entry.header.checksum != header.checksum:
            raise ImpossibleState(f"asked to read {header.id}, which was never written here")
        return slot.entry if slot.body is Part.OK else None

    def read_run(self, headers: Sequence[Header]) -> tuple[Entry, ...]:
        """Up to the first that is damaged."""
        found = (self.read(header) for header in headers)
        return tuple(entry for entry in takewhile(lambda entry: entry is not None, found) if entry)

    # --- syncing ---------------------------------------------------------------------------------

    def _start(self) -> None:
        """Sync up to the next `Sync` or `Barrier`; sometimes several syncs are merged into one."""
        pending = self.pending
        merge = self.random.random() < 0.5
        covered = 0
        for position, (kind, _, _) in enumerate(pending):
            if kind is Barrier:
                covered = covered or position + 1
                break
            if kind is Sync:
                covered = position + 1
                if not merge:
                    break
        self.running = covered
        if covered:
            delay = int(self.sync_us * (0.5 + self.random.random()))
            self.scheduler.after(delay, self._finish, self.generation)

    def _finish(self, generation: int) -> None:
        """All before the mark is durable; tell the tokens, then go on with what came meanwhile."""
        if generation != self.generation:
            return
        if self.failing:
            self.failing = False
            self.on_error()
            return
        done = self.pending[: self.running]
        del self.pending[: self.running]
        self.running = 0
        if self.relaxed:
            self._loosen(done)
        tokens: list[int] = []
        for kind, what, also in done:
            if kind is WriteEntries:
                assert isinstance(what, list) and isinstance(also, int)
                for slot in what:
                    self._settle(slot)
                self.ridden_commit = also
            elif kind is Sync:
                assert isinstance(what, Sync)
                tokens.append(what.token)
            elif kind is not Barrier:
                self._land(kind, what, also)
                if kind is ResetLog:
                    self._land_promise(0)
        if self.pending:
            self._start()
        for token in tokens:
            if generation == self.generation:
                self.on_synced(token)

    def _loosen(self, done: list[Operation]) -> None:
        """Entries alone are synced later; with anything else, all that was written before."""
        if any(kind not in (WriteEntries, Sync) for kind, _, _ in done):
            self.flush()
            return
        if not self.loose:
            self.scheduler.after(FLUSH_US, self.flush, self.generation)
        for kind, what, also in done:
            if kind is WriteEntries:
                assert isinstance(what, list) and isinstance(also, int)
                for slot in what:
                    slot.loose = True
                    self.loose.append((slot, also))

    def flush(self, generation: int | None = None) -> None:
        """What was written before is synced."""
        if generation is None or generation == self.generation:
            for slot, _ in self.loose:
                slot.loose = False
            self.loose.clear()
            self.flushed_commit = self.ridden_commit

    def _settle(self, slot: Slot) -> None:
        """A whole write reached the medium."""
        header = slot.entry.header
        stable = self.stable
        if header.count > 1:
            for base in range(header.base + 1, header.base + header.count):
                stable.pop(base, None)
        stable[header.base] = slot

    def _land(self, kind: type, what: object, also: object) -> None:
        """Everything but appends and syncs."""
        if kind is RewriteEntry:
            assert isinstance(what, list)
            self._settle(what[0])
        elif kind is WriteSuperblock:
            assert isinstance(what, Superblock)
            if self.superblock is not None:
                self.superblock = what
        elif kind is TruncateLog:
            assert isinstance(what, int)
            _drop_from(self.stable, what)
        elif kind is TrimLog or kind is ResetLog:
            assert isinstance(what, int) and isinstance(also, int)
            if kind is ResetLog:
                self.stable.clear()
                self.ridden_commit = 0
            else:
                _drop_below(self.stable, what)
            self.first, self.boundary = what, also
        else:
            assert what is None or isinstance(what, Superblock)
            self._clear()
            self.superblock = what

    def _clear(self) -> None:
        self.stable.clear()
        self.superblock = None
        self.first, self.boundary, self.ridden_commit = 0, GENESIS_CHECKSUM, 0
        self.loose.clear()
        self.flushed_commit = 0

    # --- crashes ---------------------------------------------------------------------------------

    def crash(self, power: bool = False) -> None:
        """Decide for each unsynced operation what became of it; the cache is gone.

        Whether the power goes or the process alone makes a difference to a relaxed disk.
        """
        luck = self.random.choice((0.0, 0.5, 0.5, 1.0))
        if self.relaxed and power:
            self._lose_loose(luck)
        self.flush()
        for position, (kind, what, also) in enumerate(self.pending):
            if kind is Barrier:
                break
            if kind is Sync:
                continue
            if kind is WriteEntries or kind is RewriteEntry:
                assert isinstance(what, list) and isinstance(also, int)
                for slot in what:
                    self._tear(slot, luck)
                if kind is WriteEntries and self.random.random() < luck:
                    self.ridden_commit = also
            elif self.random.random() < luck:
                self._land(kind, what, also)
                if kind is ResetLog:
                    self._land_promise(position)
        self.pending.clear()
        self.running = 0
        self.generation += 1
        self.failing = False
        self.misdirecting = None
        self.cache.clear()
        self.cached_superblock = None

    def _lose_loose(self, luck: float) -> None:
        """Each entry that was not synced lands or not; nothing else is written before they are."""
        commits = [self.flushed_commit]
        for slot, commit in self.loose:
            base = slot.entry.header.base
            if self.stable.get(base) is slot:
                del self.stable[base]
                self._tear(slot, luck)
                commits += [commit] if base in self.stable else []
        self.ridden_commit = max(commits)
        self.loose.clear()
        self.pending = [each for each in self.pending if each[0] in (WriteEntries, Sync)]
        if self.superblock is not None:
            in_doubt = max(self.superblock.in_doubt, IN_DOUBT)
            self.superblock = replace(self.superblock, in_doubt=in_doubt)

    def _land_promise(self, position: int) -> None:
        """A log is started over in one write with the superblock that explains it."""
        for kind, what, _ in self.pending[position:]:
            if kind is WriteSuperblock:
                self._land(kind, what, None)
                return

    def _tear(self, slot: Slot, luck: float) -> None:
        """An unsynced entry: header copy and body land or not, each by itself."""
        random = self.random.random
        header_landed = random() < luck
        body_landed = random() < luck
        if self.headers_last:
            header_landed = header_landed and body_landed
        body_torn = not body_landed and luck > 0 and random() < 0.5
        old = self.stable.get(slot.entry.header.base)
        if not header_landed:
            slot.header = old.header if old else Part.ABSENT
        if body_torn:
            slot.body = Part.BAD
        elif not body_landed:
            slot.body = old.body if old else Part.ABSENT
            if old is not None and old.body is Part.OK:
                _same_entry(old, slot)
        if header_landed or body_landed or body_torn:
            self._settle(slot)

    def recover(self) -> Recovered | None:
        """What is found at start; None if there is no replica.

        Finding it also mends it, durably, as a real start must before it takes writes: header
        copies are written again from whole bodies (else a later damage to the body would look
        like a blank), and what lies behind the log's end is wiped (else it could come back).
        """
        if self.superblock is None:
            self._clear()
            return None
        found = classify(self.superblock, self.first, self.boundary, self.stable)
        self.stable = found.slots
        self.cache = dict(found.slots)
        self.cached_superblock = self.superblock
        unknown = bool(found.headers) and not found.headers[-1].count
        if self.ridden_commit > found.end and not (unknown or self.relaxed):
            # A real store refuses to start (V2).
            raise SafetyFailure(
                "ContextInLog",
                f"a commit context of {self.ridden_commit} in a log that ends at {found.end}",
            )
        durable = max(self.superblock.commit, self.ridden_commit, self.first)
        commit = min(durable, found.end)
        return Recovered(
            replace(self.superblock, commit=commit),
            self.first,
            self.boundary,
            found.headers,
            found.marks,
            found.tail_slots,
        )

    # --- damage, dealt by the adversary ----------------------------------------------------------

    def rot_body(self, base: int) -> None:
        self.stable[base].body = Part.BAD
        self.damaged += 1

    def rot_header(self, base: int) -> None:
        self.stable[base].header = Part.BAD
        self.damaged += 1

    def misdirect_next_write(self, victim: int) -> None:
        """The next body written goes to the place of `victim`'s body, and spoils it."""
        self.misdirecting = victim

    def _misdirect(self, slots: list[Slot]) -> None:
        victim = self.stable.get(self.misdirecting or 0)
        self.misdirecting = None
        if slots and victim is not None and victim is not slots[0]:
            slots[0].body = Part.ABSENT
            victim.body = Part.BAD
            self.damaged += 2

    def fail_next(self) -> None:
        """The next write or sync reports an error; a node stops at once then."""
        self.failing = True

    def wipe(self) -> None:
        """A new, empty volume under the old name.  The node is down while this is done."""
        self.pending.clear()
        self.generation += 1
        self.running = 0
        self.cache.clear()
        self.cached_superblock = None
        self._clear()
        self.damaged += 1

    # --- for checkers ----------------------------------------------------------------------------

    def holds(self, base: int, checksum: int) -> bool:
        """Whether an intact, durable copy of this entry is here."""
        slot = self.stable.get(base)
        return (
            slot is not None
            and slot.body is Part.OK
            and slot.entry.header.checksum == checksum
            and not slot.loose
            and self.superblock is not None
        )


def _drop_from(slots: dict[int, Slot], end: int) -> None:
    for base in [base for base in slots if base >= end]:
        del slots[base]


def _drop_below(slots: dict[int, Slot], first: int) -> None:
    for base in [base for base in slots if base < first]:
        del slots[base]


def _same_entry(old: Slot, new: Slot) -> None:
    """A whole entry may be overwritten only by itself: what is cut must be cut durably before."""
    if old.entry.header.checksum != new.entry.header.checksum:
        raise ImpossibleState(
            f"{new.entry.header.id} was written over {old.entry.header.id} before that was cut"
        )
