"""The driver: effects in their order, and damage told to the replica."""

from itertools import takewhile
from typing import Any

from shardlog.checksum import seal, seal_body
from shardlog.protocol.effects import (
    Barrier,
    ReadFailed,
    Send,
    SendEntries,
    SendFetched,
    ServeRead,
    Sync,
)
from shardlog.protocol.entry import Entry, Kind, Member, sealed
from shardlog.protocol.failures import CorruptEntry
from shardlog.protocol.messages import (
    ClientRefused,
    Entries,
    Envelope,
    Fetched,
    Heartbeat,
    ReadResult,
)
from shardlog_node.driver import Driver

BEAT = Envelope("orders", "a", 1, "b", 2, Heartbeat(1, 0, 0, 1, True))


def entry(base: int) -> Entry:
    body = b"x" * (base + 1)
    return Entry(sealed(seal, 1, base, 1, Kind.DATA, 0, 0, 0, 0, seal_body(body)), body)


class Bench:
    """A driver between a replica that says what it is told to, and what it does with it."""

    shard, node, incarnation = "orders", "a", 1

    def __init__(self, *held: Entry) -> None:
        self.held = {each.header: each for each in held}
        self.done: list[Any] = []
        self.events: list[Any] = []
        self.answers: list[list[Any]] = []
        replica: Any = self
        self.driver = Driver(replica, self, self.done.append)

    def steps(self, now_ms: int, events: Any) -> list[Any]:
        self.events += events
        return self.answers.pop(0) if self.answers else []

    def submit(self, effect: Any) -> None:
        self.done.append(effect)

    def read(self, header: Any) -> Entry | None:
        return self.held.get(header)

    def read_run(self, headers: Any) -> tuple[Entry, ...]:
        return tuple(takewhile(bool, map(self.held.get, headers)))  # type: ignore[arg-type]


def test_effects_are_performed_in_their_order():
    bench = Bench()
    bench.driver.perform([Barrier(), Send(BEAT), Sync(1)])
    assert bench.done == [Barrier(), BEAT, Sync(1)]


def test_nothing_is_performed_after_a_stop():
    bench = Bench()
    bench.driver.stop()
    bench.driver.perform([Send(BEAT), Sync(1)])
    assert bench.done == []


def test_entries_are_sent_up_to_a_damaged_one_which_the_replica_hears_of():
    whole, bad = entry(0), entry(1)
    bench = Bench(whole)
    headers = (whole.header, bad.header)
    bench.answers = [[SendEntries(Member("b", 2), 1, headers, 0, 0)]]
    bench.driver.step(5, "event")  # type: ignore[arg-type]
    assert bench.done == [Envelope("orders", "a", 1, "b", 2, Entries(1, (whole,), 0, 0))]
    assert bench.events == ["event", ReadFailed(1)]


def test_nothing_more_is_announced_behind_a_damaged_entry():
    whole, bad = entry(0), entry(1)
    to = Member("b", 2)
    bench = Bench(whole)
    bench.driver.perform([SendFetched(to, 1, (whole.header,), 5)])
    bench.driver.perform([SendFetched(to, 1, (whole.header, bad.header), 5)])
    assert [each.message for each in bench.done] == [
        Fetched(1, (whole,), 5),
        Fetched(1, (whole,), 0),
    ]


def test_a_read_over_damage_is_refused_and_a_whole_one_answered():
    whole, bad = entry(0), entry(1)
    bench = Bench(whole)
    bench.driver.perform([ServeRead("c", 7, (whole.header, bad.header), 2)])
    bench.driver.perform([ServeRead("c", 8, (whole.header,), 2)])
    refused, result = (each.message for each in bench.done)
    assert refused == ClientRefused(0, 7, CorruptEntry(bad.header.id))
    assert result == ReadResult(8, (whole,), 2)
