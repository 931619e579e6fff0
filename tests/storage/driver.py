"""Driving one replica's store over the simulated volume, and knowing what it must hold.

A `Driver` performs rounds one by one and remembers every state that the replica went through, one
for each operation.  What is found after a crash must be one of them, and none from before the last
token that was reported: so nothing is lost, nothing is half done, and nothing is invented.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from shardlog.protocol.effects import (
    Disk,
    Format,
    Recovered,
    RewriteEntry,
    Sync,
    WriteEntries,
    WriteSuperblock,
)
from shardlog.protocol.entry import Entry, Kind
from shardlog.protocol.history import Span
from shardlog.sim.faulty_files import FaultyFiles, Keep, Tree
from shardlog.storage.handles import Handles
from shardlog.storage.layout import SLOT_BYTES, SLOTS_START
from shardlog.storage.movement import flaw
from shardlog.storage.plan import Plan
from shardlog.storage.segment import Segment
from shardlog.storage.store import Store
from shardlog.storage.superblock import SuperblockFile
from storage.states import State, found, same, superblock, write

SHARD, NODE = "orders", "node-a"
VOLUME = "volume"
DIRECTORY = f"{VOLUME}/{SHARD}"
SLOTS = 8
SMALL = Plan(
    size_min=SLOTS_START + SLOTS * SLOT_BYTES + 2048,
    size_max=SLOTS_START + SLOTS * SLOT_BYTES + 2048,
    slots_min=SLOTS,
    slots_max=SLOTS,
    zeroed_bytes=1024,
)

# --- the driver --------------------------------------------------------------------------------


@dataclass
class Driver:
    """`states[n]` is what `n` operations make; `kept` of them were reported as durable."""

    files: FaultyFiles = field(default_factory=lambda: FaultyFiles(Random(0)))
    plan: Plan = SMALL
    states: list[State] = field(default_factory=lambda: [State()])
    kept: int = 0
    reported: list[int] = field(default_factory=list)
    bodies: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.files.make_directory(VOLUME)
        self.files.sync_directory("")
        self.due: dict[int, int] = {}
        self.token = 0
        self.handles = Handles(self.files, recent_bytes_max=0)
        self.recovered: Recovered | None = None
        self.open()

    def open(self) -> Recovered | None:
        self.handles = Handles(self.files, recent_bytes_max=0)
        self.store, self.recovered = Store.open(self.handles, DIRECTORY, SHARD, NODE, self.plan)
        return self.recovered

    @property
    def state(self) -> State:
        return self.states[-1]

    # --- performing ------------------------------------------------------------------------------

    def submit(self, *effects: Disk) -> None:
        for effect in effects:
            self._expect(effect)
            self.store.submit(effect)

    def _expect(self, effect: Disk) -> None:
        if isinstance(effect, Sync):
            self.due[effect.token] = len(self.states) - 1
        elif isinstance(effect, WriteEntries):
            for entry in effect.entries:
                self.bodies[entry.header.checksum] = bytes(entry.body)
                self.states.append(self.state.after(WriteEntries((entry,), effect.commit)))
        else:
            torn = isinstance(effect, RewriteEntry)
            if isinstance(effect, RewriteEntry):
                self.bodies[effect.entry.header.checksum] = bytes(effect.entry.body)
                self.states.append(self.state.torn(effect.entry.header))
            self.states.append(self.states[-1 - torn].after(effect))

    def step(self) -> bool:
        """One round; False if there is nothing to do."""
        round_ = self.store.take()
        if round_ is None:
            return False
        round_.write()
        round_.sync()
        for token in self.store.finish(round_):
            self.reported.append(token)
            self.kept = max(self.kept, self.due[token])
        self.check_control_records()
        return True

    def settle(self) -> None:
        while self.step():
            pass

    def sync(self) -> None:
        """Everything so far is durable, and reported."""
        self.token += 1
        self.submit(Sync(-self.token))
        self.settle()
        assert self.kept == len(self.states) - 1

    def do(self, *effects: Disk) -> None:
        self.submit(*effects)
        self.sync()

    # --- crashes ---------------------------------------------------------------------------------

    def crash(self, keep: Keep = "none") -> Recovered | None:
        self.files.crash(keep)
        return self.restart()

    def restart(self) -> Recovered | None:
        """Open again; what is there must be a state not older than the last reported one."""
        recovered = self.open()
        seen = found(self.store, recovered)
        for number in range(len(self.states) - 1, self.kept - 1, -1):
            if same(self.states[number], seen):
                break
        else:
            expected = "\n or ".join(each.told() for each in self.states[self.kept :])
            raise AssertionError(f"found {seen.told()}\n not {expected}")
        self.check_commit(number)
        self.states = [seen]
        self.kept = 0
        self.due.clear()
        self.check_control_records()
        self.check_reading()
        return recovered

    @property
    def commit(self) -> int:
        return 0 if self.recovered is None else self.recovered.superblock.commit

    def check_commit(self, number: int) -> None:
        """Neither older than what was reported nor newer than what was written."""
        low, high = self.states[self.kept], self.states[number]
        if high.superblock is not None and low.superblock is not None:
            written = max(high.ridden, high.superblock.commit, high.first)
            assert self.commit <= min(written, high.end)
            if low.superblock.incarnation == high.superblock.incarnation:
                least = max(low.ridden, low.superblock.commit, low.first)
                assert self.commit >= min(least, low.end, high.end)

    def check_control_records(self) -> None:
        """M3, in memory and on disk."""
        root = self.store.files.root
        if root is not None:
            assert flaw(root.records) is None
            copies = SuperblockFile(self.handles.files, DIRECTORY).copies()
            newest = max((copy for copy in copies if copy), key=lambda copy: copy.sequence)
            assert newest.root == root

    def check_reading(self) -> None:
        """Every entry that is not marked is read as it was written; the chain holds."""
        state = self.state
        bad = {base for base, _ in state.marks}
        parent: int | None = state.boundary if self._from_first() else None
        for header in state.headers:
            if header.kind is Kind.UNKNOWN:
                parent = None
                continue
            assert parent is None or header.parent == parent
            parent = header.checksum
            entry = self.store.read(header)
            if header.base in bad:
                assert entry is None
            else:
                assert entry == Entry(header, self.bodies[header.checksum])

    def _from_first(self) -> bool:
        return not self.state.headers or self.state.headers[0].base == self.state.first

    # --- where things stand ----------------------------------------------------------------------

    def place(self, base: int) -> tuple[Segment, int, int]:
        """Segment, slot number and position of an entry."""
        place = self.store.files.segments.covering(base)
        assert place is not None
        return place.segment, place.number, place.slot.position

    def rot_slot(self, base: int) -> None:
        segment, number, _ = self.place(base)
        self.files.rot(segment.path, segment.slot_position(number), 16)

    def rot_entry(self, base: int) -> None:
        segment, _, position = self.place(base)
        self.files.rot(segment.path, position, 16)

    def rot_both(self, *bases: int) -> None:
        """All at once, before any of it is missed."""
        places = [self.place(base) for base in bases]
        for segment, number, position in places:
            self.files.rot(segment.path, segment.slot_position(number), 16)
            self.files.rot(segment.path, position, 16)

    def damaged_restart(self) -> Recovered:
        """Take what is found after damage as the state to go on from."""
        self.files.crash("all")
        recovered = self.open()
        assert recovered is not None
        self.states = [found(self.store, recovered)]
        self.kept = 0
        self.check_reading()
        return recovered


def begun(entries: Sequence[Entry] = (), commit: int = 0, plan: Plan = SMALL) -> Driver:
    """A formatted replica in epoch 1, with these entries."""
    driver = Driver(plan=plan)
    driver.do(Format(superblock()))
    driver.do(WriteSuperblock(superblock(1, history=(Span(1, 0),))))
    if entries:
        driver.do(write(entries, commit))
    return driver


def from_snapshot(tree: Tree, like: Driver, seed: int) -> Driver:
    """The same replica on a volume of its own."""
    files = FaultyFiles(Random(seed))
    files.restore(tree)
    made = Driver(files, like.plan)
    made.states = list(like.states)
    made.kept = like.kept
    made.bodies = dict(like.bodies)
    return made
