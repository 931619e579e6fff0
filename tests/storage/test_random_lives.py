"""Random lives against a list in memory: what is read by offset, range, file and time agrees."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardlog.checksum import seal_body
from shardlog.protocol.effects import (
    Barrier,
    ResetLog,
    RewriteEntry,
    Sync,
    TrimLog,
    TruncateLog,
    WriteSuperblock,
)
from shardlog.protocol.entry import Entry, Header, Kind
from shardlog.protocol.history import Span, extended
from shardlog.sim.faulty_files import Crashed
from shardlog.storage.layout import ENTRY_HEADER_BYTES, unpack_header
from shardlog.storage.movement import is_fenced
from storage.driver import Driver, begun
from storage.states import State, chain, write

Draw = Callable[[st.SearchStrategy[int]], int]


class Life:
    """Draws what happens next; keeps to what the protocol may ask for."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.driver: Driver = begun()
        self.driver.files.random.seed(self.pick(1000))
        self.token = 1000
        self.epoch = 1

    def pick(self, below: int) -> int:
        return self.draw(st.integers(0, max(below - 1, 0)))

    @property
    def state(self) -> State:
        return self.driver.state

    def ends(self, low: int) -> list[int]:
        """Where entries end, from `low` on."""
        ends = [self.state.first, *(header.end for header in self.state.headers)]
        return [end for end in ends if end >= low]

    @property
    def commit(self) -> int:
        block = self.state.superblock
        assert block is not None
        return min(max(block.commit, self.state.ridden, self.state.first), self.state.end)

    # --- steps -----------------------------------------------------------------------------------

    def append(self) -> None:
        state = self.state
        parent = state.headers[-1].checksum if state.headers else state.boundary
        sizes = [self.pick(400) for _ in range(3)]
        records = [1 + self.pick(3) for _ in range(2)]
        made = chain(1 + self.pick(6), state.end, parent, self.epoch, sizes, records)
        ends = self.ends(self.commit)
        self.driver.submit(write(made, ends[self.pick(len(ends))]))

    def promise(self) -> None:
        block = self.state.superblock
        assert block is not None
        self.epoch += 1
        history = extended(block.history, Span(self.epoch, self.state.end))
        self.driver.submit(
            Barrier(),
            WriteSuperblock(replace(block, epoch=self.epoch, history=history, commit=self.commit)),
        )

    def checkpoint(self) -> None:
        block = self.state.superblock
        assert block is not None
        ends = self.ends(self.commit)
        commit = ends[self.pick(len(ends))]
        below = [end for end in self.ends(0) if block.sessions_at <= end <= commit]
        at = below[self.pick(len(below))] if below else block.sessions_at
        changed = replace(block, commit=commit, sessions_at=at)
        self.driver.submit(Barrier(), WriteSuperblock(changed))

    def truncate(self) -> None:
        ends = self.ends(self.commit)
        self.driver.submit(TruncateLog(ends[self.pick(len(ends))]))
        self.promise()

    def trim(self) -> None:
        root = self.driver.store.files.root
        assert root is not None
        if is_fenced(root.records):
            return
        self.checkpoint()
        ends = [end for end in self.ends(0) if end <= self.commit]
        first = ends[self.pick(len(ends))]
        if first > self.state.first:
            log = self.state.log()
            self.driver.submit(Barrier(), TrimLog(first, log.checksum_before(first)))

    def reset(self) -> None:
        """Behind all that waits: else an older commit context rides along, which is safe."""
        self.driver.settle()
        block = self.state.superblock
        assert block is not None
        first = self.state.end + 1 + self.pick(9)
        self.driver.submit(ResetLog(first, 4711), Barrier())
        self.driver.submit(WriteSuperblock(replace(block, commit=first, sessions_at=first)))

    def repair(self) -> None:
        """Damage one whole entry above the commit offset, find it, write it again."""
        self.driver.sync()
        there = [header for header in self.state.headers if header.base >= self.commit]
        if there:
            header = there[self.pick(len(there))]
            (self.driver.rot_entry, self.driver.rot_both)[self.pick(2)](header.base)
            self.driver.damaged_restart()
            self.driver.do(RewriteEntry(Entry(header, self.driver.bodies[header.checksum])))
            self.driver.do(TruncateLog(header.end if header == there[-1] else self.state.end))

    def sync(self) -> None:
        self.token += 1
        self.driver.submit(Sync(self.token))

    def rounds(self) -> None:
        for _ in range(self.pick(4)):
            self.driver.step()

    def crash(self) -> None:
        self.driver.files.crash_after(self.pick(12))
        with suppress(Crashed):
            self.driver.settle()
        self.driver.crash("random")
        assert self.state.superblock is not None
        self.epoch = self.state.superblock.epoch

    def step(self) -> None:
        steps = (self.append, self.append, self.append, self.sync, self.rounds, self.promise,
                 self.checkpoint, self.truncate, self.trim, self.reset, self.repair,
                 self.crash)  # fmt: skip
        steps[self.pick(len(steps))]()


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_lives_agree_with_a_list_in_memory(data: st.DataObject) -> None:
    life = Life(data.draw)
    for _ in range(life.pick(14)):
        life.step()
    life.driver.sync()
    compare(life)
    life.driver.crash("none")
    compare(life)


def compare(life: Life) -> None:
    """Everything that can be asked of a store."""
    driver, state, store = life.driver, life.state, life.driver.store
    headers = list(state.headers)
    assert not state.marks
    for header in headers:
        assert store.read(header) == Entry(header, driver.bodies[header.checksum])
        for offset in (header.base, header.end - 1):
            assert store.covering(offset) == header
    assert store.covering(state.end) is None
    ranges(life, headers)
    raw(life, headers)
    times(life, headers)


def ranges(life: Life, headers: list[Header]) -> None:
    store, state = life.driver.store, life.state
    assert store.headers(0, state.end + 10, 1000) == headers
    for _ in range(3):
        start = state.first + life.pick(state.end - state.first + 1)
        end = start + life.pick(12)
        most = 1 + life.pick(4)
        expected = [header for header in headers if start <= header.base < end]
        assert store.headers(start, end, most) == expected[:most]


def raw(life: Life, headers: list[Header]) -> None:
    """Bytes of a file are entries again, one behind the other."""
    store, state = life.driver.store, life.state
    at = state.first
    while at < state.end:
        found = store.raw(at, state.end, 1 + life.pick(900))
        assert found is not None
        assert found.first == at
        data = life.driver.files.open(found.path).read(found.position, found.length)
        while data:
            parsed = unpack_header(data)
            assert parsed is not None
            header, length = parsed
            body = data[ENTRY_HEADER_BYTES : ENTRY_HEADER_BYTES + length]
            assert header == next(each for each in headers if each.base == at)
            assert seal_body(body) == header.body_checksum
            data = data[ENTRY_HEADER_BYTES + length :]
            at = header.end
        assert at == found.end
    assert store.raw(state.end, state.end + 5, 100) is None


def times(life: Life, headers: list[Header]) -> None:
    state = life.state
    assert all(header.kind is Kind.DATA for header in headers)
    for when in (0, *(1000 + life.pick(state.end + 3) for _ in range(3))):
        later = [header.base for header in headers if header.timestamp_ms >= when]
        assert life.driver.store.at_time(when) == (later[0] if later else state.end)
