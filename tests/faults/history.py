"""What clients of one shard did and saw, and whether a log explains it.

The rules, each a function from a history to what contradicts it:

- a record that was acknowledged stands in the log once, at the offset that was acknowledged;
- records of one producer that were acknowledged stand in the order in which they were sent;
- a record whose fate is unknown stands there at most once, one that failed for certain not at all;
- nothing stands there that nobody sent;
- everybody who tailed the log saw just the log, and so does every replica's disk;
- whoever read a part of it again saw just that part, byte for byte;
- appends and confirmed reads are linearizable: `shardlog.sim.linearizability` has the argument.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from shardlog.sim.linearizability import Operation, check

_NAMED = struct.Struct("<QQ")


class Standing(NamedTuple):
    """A record as it was read."""

    offset: int
    producer: int
    number: int


class Fate(Enum):
    """What its sender knows of a record."""

    WAITING = auto()
    ACKNOWLEDGED = auto()
    UNKNOWN = auto()
    FAILED = auto()


@dataclass(slots=True)
class Sent:
    """A record on its way; times are in ns of one clock."""

    producer: int
    number: int
    called_ns: int
    replied_ns: int | None = None
    offset: int | None = None
    fate: Fate = Fate.WAITING

    def __str__(self) -> str:
        return f"record {self.number} of producer {self.producer}"

    @property
    def name(self) -> tuple[int, int]:
        return self.producer, self.number


@dataclass(frozen=True, slots=True)
class ConfirmedRead:
    """Everything in [start, end), where `end` was the log's end by a quorum's word."""

    called_ns: int
    replied_ns: int
    start: int
    end: int
    seen: tuple[Standing, ...]


@dataclass(frozen=True, slots=True)
class Reread:
    """Everything that stands in [start, end), as somebody saw it long after it was appended."""

    start: int
    end: int
    seen: tuple[Standing, ...]


@dataclass(slots=True)
class History:
    """`log` is what is read in the end; `tails` and `disks` are what others say, by name."""

    sent: list[Sent] = field(default_factory=list)
    reads: list[ConfirmedRead] = field(default_factory=list)
    rereads: list[Reread] = field(default_factory=list)
    log: Sequence[Standing] = ()
    tails: dict[str, Sequence[Standing]] = field(default_factory=dict)
    disks: dict[str, Sequence[Standing]] = field(default_factory=dict)

    def with_fate(self, fate: Fate) -> list[Sent]:
        return [sent for sent in self.sent if sent.fate is fate]


def value_of(producer: int, number: int, size: int) -> bytes:
    return _NAMED.pack(producer, number).ljust(size, b".")


def standing_of(offset: int, value: bytes) -> Standing:
    """Who sent it and as which; nothing that was sent has a byte other than these."""
    standing = Standing(offset, *_NAMED.unpack_from(value))
    assert value == value_of(*standing[1:], len(value)), f"bad bytes at {offset}: {value!r:.200}"
    return standing


# --- rules ---------------------------------------------------------------------------------------


def lost_or_moved(history: History) -> Iterator[str]:
    places = _places(history.log)
    for sent in history.with_fate(Fate.ACKNOWLEDGED):
        found = places.get(sent.name, [])
        if found != [sent.offset]:
            yield f"{sent} was acknowledged at {sent.offset} and stands at {found}"


def out_of_order(history: History) -> Iterator[str]:
    """Senders count their records, so numbers tell the order of the calls."""
    last: dict[int, Sent] = {}
    acknowledged = history.with_fate(Fate.ACKNOWLEDGED)
    for sent in sorted(acknowledged, key=lambda sent: sent.name):
        before = last.get(sent.producer)
        if before is not None and _offset(before) >= _offset(sent):
            yield f"{sent} stands at {sent.offset}, not behind {before} at {before.offset}"
        last[sent.producer] = sent


def twice_or_undead(history: History) -> Iterator[str]:
    places = _places(history.log)
    for sent in history.sent:
        found = places.pop(sent.name, [])
        if sent.fate is Fate.WAITING:
            yield f"{sent} was never settled"
        elif sent.fate is Fate.UNKNOWN and len(found) > 1:
            yield f"{sent}, of unknown fate, stands at {found}"
        elif sent.fate is Fate.FAILED and found:
            yield f"{sent} failed and stands at {found}"
    for (producer, number), found in places.items():
        yield f"record {number} of producer {producer} at {found} was sent by nobody"


def seen_otherwise(history: History) -> Iterator[str]:
    for name, found in {**history.tails, **history.disks}.items():
        if list(found) != list(history.log):
            yield f"{name} {_difference(found, history.log)}"


def reread_otherwise(history: History) -> Iterator[str]:
    offsets = [standing.offset for standing in history.log]
    for read in history.rereads:
        stands = history.log[bisect_left(offsets, read.start) : bisect_left(offsets, read.end)]
        if list(read.seen) != list(stands):
            yield f"a read of [{read.start}, {read.end}) {_difference(read.seen, stands)}"


def not_linearizable(history: History) -> Iterator[str]:
    numbers = {sent.name: value for value, sent in enumerate(history.sent)}
    operations = [
        Operation(
            sent.producer, sent.called_ns, sent.replied_ns, "append",
            value=numbers[sent.name], offset=sent.offset,
        )
        for sent in history.sent
        if sent.fate is not Fate.FAILED
    ]  # fmt: skip
    for read in history.reads:
        seen = tuple((it.offset, numbers.get(it[1:], -1)) for it in read.seen)
        operations.append(
            Operation(
                -1, read.called_ns, read.replied_ns, "read",
                start=read.start, limit=len(history.sent) + 1, seen=seen, end=read.end,
            )
        )  # fmt: skip
    found = check(operations)
    if found is not None:
        yield f"not linearizable: {found.text}"


RULES: tuple[Callable[[History], Iterator[str]], ...] = (
    lost_or_moved,
    out_of_order,
    twice_or_undead,
    seen_otherwise,
    reread_otherwise,
    not_linearizable,
)


def contradictions(history: History) -> list[str]:
    """What no correct log could have done."""
    return [what for rule in RULES for what in rule(history)]


# --- parts ---------------------------------------------------------------------------------------


def _places(log: Sequence[Standing]) -> dict[tuple[int, int], list[int]]:
    places: dict[tuple[int, int], list[int]] = defaultdict(list)
    for offset, producer, number in log:
        places[producer, number].append(offset)
    return dict(places)


def _offset(sent: Sent) -> int:
    assert sent.offset is not None
    return sent.offset


def _difference(found: Sequence[Standing], log: Sequence[Standing]) -> str:
    for mine, theirs in zip(found, log, strict=False):
        if mine != theirs:
            return f"has {mine} where the log has {theirs}"
    return f"has {len(found)} records where the log has {len(log)}"
