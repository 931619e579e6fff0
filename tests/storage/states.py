"""Entries to write, and the states that a replica goes through when it writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from shardlog.checksum import seal, seal_body
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
from shardlog.protocol.entry import GENESIS_CHECKSUM, Entry, Header, Kind, sealed
from shardlog.protocol.log import Log, Mark
from shardlog.storage.store import Store

# --- what is written ---------------------------------------------------------------------------


def superblock(epoch: int = 0, **changes: object) -> Superblock:
    made = Superblock(7, epoch, 0, (), 0, 0, (), None)
    return replace(made, **changes)  # type: ignore[arg-type]


def chain(
    count: int,
    base: int = 0,
    parent: int = GENESIS_CHECKSUM,
    epoch: int = 1,
    sizes: Sequence[int] = (40, 0, 130, 7, 300),
    records: Sequence[int] = (1,),
) -> list[Entry]:
    """Entries that follow each other; their bodies tell which they are."""
    made: list[Entry] = []
    for number in range(count):
        size = sizes[number % len(sizes)]
        body = (f"{epoch}.{base}." * (size // 3 + 1)).encode()[:size]
        length = records[number % len(records)]
        header = sealed(
            seal, epoch, base, length, Kind.DATA, 3, base + 1, 1000 + base, parent, seal_body(body)
        )
        made.append(Entry(header, body))
        base, parent = header.end, header.checksum
    return made


def after(entries: Sequence[Entry], count: int = 1, epoch: int = 1, **how: object) -> list[Entry]:
    """More entries, behind these."""
    last = entries[-1].header
    return chain(count, last.end, last.checksum, epoch, **how)  # type: ignore[arg-type]


def write(entries: Iterable[Entry], commit: int = 0) -> WriteEntries:
    return WriteEntries(tuple(entries), commit)


# --- what must be found ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class State:
    """A replica between two operations.  `ridden` is the newest commit context on disk."""

    superblock: Superblock | None = None
    first: int = 0
    boundary: int = GENESIS_CHECKSUM
    headers: tuple[Header, ...] = ()
    marks: tuple[tuple[int, int], ...] = ()
    ridden: int = 0
    tail_slots: int = 1

    @property
    def end(self) -> int:
        return self.headers[-1].end if self.headers else self.first

    def told(self) -> str:
        """For a failing test."""
        block = self.superblock
        if block is None:
            return "no replica"
        log = " ".join(
            f"{header.base}+{header.count}@{header.epoch}"
            + ("?" if header.kind is Kind.UNKNOWN else "")
            for header in self.headers
        )
        spans = " ".join(map(str, block.history[:9]))
        return (
            f"#{block.incarnation} epoch {block.epoch} led {block.led} [{spans}]"
            f" commit {block.commit} from {self.first}: {log} marks {self.marks}"
        )

    def log(self) -> Log:
        log = Log(self.first, self.boundary)
        for header in self.headers:
            log.append(header)
        for base, mark in self.marks:
            log.mark(base, Mark(mark))
        log.tail_slots = self.tail_slots
        return log

    def with_log(self, log: Log) -> State:
        marks = tuple(sorted(log.marks.items()))
        return replace(
            self,
            first=log.first,
            boundary=log.boundary,
            headers=tuple(log.headers),
            marks=marks,
            tail_slots=log.tail_slots,
        )

    def after(self, effect: Disk) -> State:
        if isinstance(effect, Format):
            return State(effect.superblock)
        if isinstance(effect, Erase):
            return State()
        if isinstance(effect, WriteSuperblock):
            return replace(self, superblock=effect.superblock)
        if isinstance(effect, Barrier | Sync):
            return self
        if isinstance(effect, ResetLog):
            log = Log(effect.first, effect.boundary)
            return replace(self.with_log(log), ridden=effect.first)
        log = self.log()
        ridden = self.ridden
        if isinstance(effect, WriteEntries):
            for entry in effect.entries:
                log.append(entry.header)
                ridden = max(ridden, self._known_commit(effect.commit, entry.header.base))
        elif isinstance(effect, RewriteEntry):
            assert log.repair(effect.entry.header) is None
        elif isinstance(effect, TruncateLog):
            log.truncate(effect.end)
        else:
            log.trim(effect.first)
        return replace(self.with_log(log), ridden=ridden)

    def torn(self, repaired: Header) -> State:
        """A repair that was cut short: of what was lost the header is known, at best."""
        log = self.log()
        mark = log.marks.get(repaired.base, Mark.CORRUPT)
        if log.repair(repaired) is None:
            log.mark(repaired.base, Mark.CORRUPT if mark is Mark.FAULT else mark)
        return self.with_log(log)

    def _known_commit(self, commit: int, end: int) -> int:
        ends = [self.first, *(header.end for header in self.headers if header.checksum)]
        return max((each for each in ends if each <= min(commit, end)), default=0)


def found(store: Store, recovered: Recovered | None) -> State:
    """What was found, as a state: of what lies below the checkpoint only the headers are read."""
    if recovered is None:
        return State()
    block = recovered.superblock
    tail = recovered.headers
    start = max(min(block.sessions_at, block.commit), recovered.first)
    below: list[Header] = []
    if tail and tail[0].base > recovered.first:
        assert tail[0].base <= start
        below = store.headers(recovered.first, tail[0].base, 1000)
    return State(
        block,
        recovered.first,
        recovered.boundary,
        (*below, *tail),
        tuple((base, int(mark)) for base, mark in recovered.marks),
        block.commit,
        recovered.tail_slots,
    )


def same(state: State, seen: State) -> bool:
    """Equal but for the commit offset, of which an older one is safe."""
    if state.superblock is None or seen.superblock is None:
        return state.superblock is seen.superblock
    return (
        replace(state.superblock, commit=0) == replace(seen.superblock, commit=0)
        and (state.first, state.boundary) == (seen.first, seen.boundary)
        and state.headers == seen.headers
        and state.marks == seen.marks
    )
