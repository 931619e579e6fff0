"""One replica's disk: what the replica wants written, handed out in rounds.

A round is what one sync covers: the entries of one group, and the slots of the group before it,
which that one's sync has made durable.  While a round is on its way to the disk the next group
gathers.  A group is durable, and its `Sync` is reported, when its slots are; so an entry that was
acknowledged can always be told from one that was torn (rule 14).

Everything but entries is rare.  It is done alone: after all before it is durable, before anything
behind it starts.  So barriers hold by themselves.

Rounds are performed by somebody else, off the event loop; `finish` and `defer` tell how it went.
After any failure but a `Retriable` one the store is broken for good: what a failed sync left behind
nobody knows, and only a restart reads it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

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
    TruncateLog,
    WriteEntries,
    WriteSuperblock,
)
from shardlog.protocol.entry import Entry, Header
from shardlog.protocol.failures import ImpossibleState
from shardlog.storage import changes
from shardlog.storage.archive import StoredHeaders
from shardlog.storage.failures import Retriable, StorageFailure
from shardlog.storage.files import Buffer
from shardlog.storage.handles import Handles
from shardlog.storage.layout import Context
from shardlog.storage.opening import Opened, is_formatted, opened
from shardlog.storage.plan import Plan
from shardlog.storage.relaxing import UNSYNCED_MAX, Relax, flush
from shardlog.storage.replica_files import ReplicaFiles
from shardlog.storage.rounds import Append, Group, Round, append_of
from shardlog.storage.scrubbing import Scrubbed, scrub
from shardlog.storage.segment import Raw


class Store:
    """`submit` what a replica emits; `take` a round, perform it, `finish` it."""

    def __init__(self, files: ReplicaFiles) -> None:
        self.files = files
        self._queue: deque[Append | changes.Change | Barrier] = deque()
        # Operations counted; a token is due when all that were submitted before it are completed.
        self._submitted = 0
        self._completed = 0
        self._tokens: deque[tuple[int, int]] = deque()
        # Durable entries whose slots are not written yet.
        self._slotless: Group | None = None
        self._running: Round | None = None
        # Entries that cannot be found through a slot yet.
        self.fresh: dict[int, Entry] = {}
        # End and checksum of the entries that may end the next commit context, in order.
        self._ends: deque[tuple[int, int]] = deque()
        # Entries made durable since it was opened, headers included.
        self.written_bytes = 0
        # Set by the node: what is written now is old, and need not be kept in memory.
        self.passing = False
        self.stalled: Retriable | None = None
        self.broken = False
        # `durability: Relaxed`, as it was asked for last; see `relaxing`.
        self.relaxed = False

    @classmethod
    def open(
        cls, handles: Handles, directory: str, shard: str, node: str, plan: Plan
    ) -> tuple[Store, Recovered | None]:
        """The store, and what was found; None if there is no replica here."""
        found: Opened | None = None
        if is_formatted(handles, directory):
            found = opened(handles, directory, shard, node, plan)
        store = cls(ReplicaFiles(handles, directory, shard, node, plan, found))
        if found is None:
            return store, None
        for header in found.recovered.headers:
            if header.checksum and header.end > found.context.end:
                store._ends.append((header.end, header.checksum))
        return store, found.recovered

    # --- the replica's side ----------------------------------------------------------------------

    def submit(self, effect: Disk) -> None:
        """Queue one operation; what it writes can be read at once."""
        if isinstance(effect, Sync):
            self._tokens.append((effect.token, self._submitted))
            return
        if isinstance(effect, WriteEntries):
            commit, fresh = effect.commit, self.fresh
            queue, ends = self._queue.append, self._ends.append
            for entry in effect.entries:
                header = entry.header
                base = header.base
                queue(append_of((entry, commit)))
                fresh[base] = entry
                ends((base + header.count, header.checksum))
            self._submitted += len(effect.entries)
            return
        self._submitted += 1
        self._queue.append(effect)
        if isinstance(effect, RewriteEntry):
            self.fresh[effect.entry.header.base] = effect.entry
            self._note_end(effect.entry.header)
        elif isinstance(effect, TruncateLog):
            self._forget(effect.end)
        elif isinstance(effect, ResetLog | Erase | Format):
            self._forget(0)
            self.relaxed = self.relaxed and isinstance(effect, ResetLog)

    def tend(self, change: changes.Tended) -> None:
        """Queue what the node asks for by itself."""
        self._submitted += 1
        self._queue.append(change)
        if isinstance(change, Relax):
            self.relaxed = change.relaxed

    def _note_end(self, header: Header) -> None:
        """An entry that could not be read is known again, and may end a commit context."""
        end = (header.end, header.checksum)
        if header.end > self.files.context.end and end not in self._ends:
            self._ends = deque(sorted((*self._ends, end)))

    def _forget(self, end: int) -> None:
        """What lies at or behind `end` is not to be read any more."""
        for base in [base for base in self.fresh if base >= end]:
            del self.fresh[base]
        while self._ends and self._ends[-1][0] > end:
            self._ends.pop()

    def read(self, header: Header) -> Entry | None:
        """The entry, verified; None if its copy here is damaged."""
        entry = self.fresh.get(header.base)
        if entry is not None and entry.header.checksum == header.checksum:
            return entry
        return self.files.segments.entry(header)

    def read_run(self, headers: Sequence[Header]) -> tuple[Entry, ...]:
        """Entries one behind the other, verified, up to the first whose copy is damaged.

        What stands together in a file is read at once; an `EntryRun`, if all of it does.
        """
        found: list[Entry] = []
        fresh, segments = self.fresh, self.files.segments
        while len(found) < len(headers):
            header = headers[len(found)]
            entry = fresh.get(header.base)
            if entry is not None and entry.header.checksum == header.checksum:
                found.append(entry)
                continue
            run = segments.entries(headers[len(found) :])
            if len(run) == len(headers):
                return run
            if not run:
                entry = segments.entry(header)
                if entry is None:
                    break
                found.append(entry)
            found += run
        return tuple(found)

    def headers(self, start: int, end: int, most: int) -> list[Header]:
        """Headers of durable entries, for the protocol's `Archive`."""
        stored = self._stored()
        return stored.headers(start, end, most) if stored else []

    def covering(self, offset: int) -> Header | None:
        """The header of the durable entry, or the unreadable stretch, that holds an offset."""
        stored = self._stored()
        return stored.covering(offset) if stored else None

    def _stored(self) -> StoredHeaders | None:
        root = self.files.root
        if root is None:
            return None
        history = root.superblock.history
        return StoredHeaders(self.files.segments, root.first, history, self.fresh)

    def raw(self, start: int, end: int, bytes_max: int) -> Raw | None:
        """Whole durable entries as they stand in a file, for sending without a copy."""
        return self.files.segments.raw(start, min(end, self.files.segments.end), bytes_max)

    def read_raw(self, raw: Raw, *, once: bool = False) -> bytes:
        """Their bytes, not verified; may be called in any thread.

        What is read `once` need not stay in memory.
        """
        with self.files.handles.use(raw.path) as file:
            data = file.read(raw.position, raw.length)
        self.files.segments.read_on(raw, once=once)
        return data

    def read_cached(self, start: int, end: int, bytes_max: int) -> tuple[Raw, Buffer] | None:
        """Both at once, if that takes no disk: recent entries mostly are in memory."""
        if not self.files.segments.is_recent(start):
            return None
        try:
            raw = self.raw(start, end, bytes_max)
            if raw is None:
                return None
            with self.files.handles.use(raw.path) as file:
                data = file.read_cached(raw.position, raw.length)
        except StorageFailure:
            return None
        return None if data is None else (raw, data)

    def at_time(self, timestamp_ms: int) -> int:
        """The offset of the first durable entry that is not older."""
        root = self.files.root
        return self.files.segments.at_time(timestamp_ms, root.first if root else 0)

    def scrub(self, start: int, end: int, most: int, bytes_max: int) -> Scrubbed:
        """Read durable entries again; may be called in any thread."""
        return scrub(self.files.segments, start, min(end, self.durable_end), most, bytes_max)

    def is_whole(self) -> bool:
        """Whether superblock and heads are as they were written; may be called in any thread.

        A root that is just being written may look damaged: mending looks again, and alone.
        """
        files = self.files
        return files.root is None or (
            files.superblocks.is_whole()
            and all(segment.has_head() for segment in files.segments.items)
        )

    @property
    def durable_end(self) -> int:
        """Where the durable log ends."""
        return self.files.segments.end

    # --- rounds ----------------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """Whether there is something to do that nobody is doing."""
        return self._running is None and bool(self._queue or self._slotless or self._tokens)

    def take(self) -> Round | None:
        """The next round; None if one is on its way, or there is nothing to do."""
        if self.broken:
            raise ImpossibleState("a broken store was asked for more")
        if not self.waiting:
            return None
        relaxed = self.files.relaxed
        round_ = Round(
            self.files.handles, slotted=self._slotless, relaxed=relaxed, passing=self.passing
        )
        if self.files.unsynced_entries >= UNSYNCED_MAX:
            round_.alone = lambda: flush(self.files)
        elif self._queue and isinstance(self._queue[0], Append):
            self._take_group(round_)
        elif self._queue and self._slotless is None:
            self._take_alone(round_)
        self._running = round_
        return round_

    def _take_alone(self, round_: Round) -> None:
        change = self._queue[0]
        round_.settles = True
        if not isinstance(change, Barrier | Append):
            promise = self._promised() if isinstance(change, ResetLog) else None
            round_.alone = lambda: changes.perform(self.files, change, promise)

    def _promised(self) -> Superblock | None:
        """The next superblock in the queue: a log is started over together with it."""
        queued = (each.superblock for each in self._queue if isinstance(each, WriteSuperblock))
        return next(queued, None)

    def _take_group(self, round_: Round) -> None:
        """As many entries as fit; if not even the first does, a segment for it is made, alone."""
        group = self._next_group()
        if group is not None and not self.files.segments.doubt:
            commit, context = -1, self.files.context
            most = UNSYNCED_MAX - self.files.unsynced_entries
            for append in self._queue:
                if not isinstance(append, Append):
                    break
                if append.commit != commit:
                    commit = append.commit
                    context = self._context(commit)
                if len(group.slots) >= most or not group.add(append.entry, context):
                    break
        if group is not None and group.slots:
            round_.group = group
        elif self._slotless is None:
            first = self._queue[0]
            assert isinstance(first, Append)
            base, length = first.entry.header.base, len(first.entry.body)
            passing = round_.passing
            round_.alone = lambda: changes.begin_segment(self.files, base, length, passing)

    def _next_group(self) -> Group | None:
        """An empty group, at the log's end."""
        items = self.files.segments.items
        if not items:
            return None
        before = self._slotless
        if before is not None and before.segment is items[-1]:
            return Group(before.segment, before.index + len(before.slots), before.after)
        return Group(items[-1], items[-1].count, items[-1].position)

    def _context(self, commit: int) -> Context:
        """The context for a commit offset; an older one, which is safe, if nobody knows its end."""
        ends = self._ends
        if ends and ends[0][0] <= commit:
            while ends and ends[0][0] <= commit:
                last = ends.popleft()
            self.files.context = Context(*last)
        return self.files.context

    def change_of(self, round_: Round) -> changes.Change | None:
        """The rare operation that a round performs."""
        change = self._queue[0] if round_.settles else None
        return None if isinstance(change, Append | Barrier) else change

    def is_last(self, round_: Round) -> bool:
        """Whether nothing waits behind its entries, so that their slots need not wait either.

        May be asked in any thread: what comes right now finds its turn anyway.
        """
        return round_.group is not None and len(self._queue) == len(round_.group.slots)

    def finish(self, round_: Round) -> list[int]:
        """It is durable; the tokens that were due."""
        assert round_ is self._running
        self._running = None
        self.stalled = None
        if round_.relaxed:
            self._note_unsynced(round_)
        round_.release()
        if round_.slotted is not None:
            self._settle(round_.slotted)
        self._slotless = None if round_.complete else round_.group
        if round_.group is not None:
            for _ in round_.group.slots:
                self._queue.popleft()
            if round_.complete:
                self._settle(round_.group)
        if round_.settles:
            change = self._queue.popleft()
            self._completed += 1
            if isinstance(change, RewriteEntry):
                self._drop_fresh(change.entry.header)
        due: list[int] = []
        while self._tokens and self._tokens[0][1] <= self._completed:
            due.append(self._tokens.popleft()[0])
        return due

    def _note_unsynced(self, round_: Round) -> None:
        files = self.files
        for group in (round_.group, round_.slotted):
            if group is not None:
                files.unsynced.add(group.segment.path)
        files.unsynced_entries += len(round_.group.slots) if round_.group else 0

    def _settle(self, group: Group) -> None:
        """The slots are durable, and with them the group."""
        segment = group.segment
        segment.count = group.index + len(group.slots)
        segment.position = group.after
        self.written_bytes += group.after - group.position
        self.files.segments.end = group.slots[-1].header.end
        self._completed += len(group.slots)
        fresh = self.fresh
        for slot in group.slots:
            header = slot.header
            entry = fresh.get(header.base)
            if entry is not None and entry.header.checksum == header.checksum:
                del fresh[header.base]

    def _drop_fresh(self, header: Header) -> None:
        entry = self.fresh.get(header.base)
        if entry is not None and entry.header.checksum == header.checksum:
            del self.fresh[header.base]

    def defer(self, round_: Round, failure: Retriable) -> None:
        """Nothing of it counts; it will be taken again when there may be room."""
        assert round_ is self._running
        self._running = None
        self.stalled = failure
        round_.release()

    def fail(self, round_: Round) -> None:
        """Nobody knows what of it is durable: this store is at its end."""
        self.broken = True
        self._running = None
        round_.release()

    def abandon(self) -> None:
        """Nothing more is taken; a round that is on its way is still to be failed."""
        self.broken = True

    @property
    def running(self) -> bool:
        """Whether a round is on its way to the disk."""
        return self._running is not None
