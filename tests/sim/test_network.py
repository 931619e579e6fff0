"""The network model: what each kind of trouble does to a stream of messages."""

from random import Random
from typing import Any

from shardlog.protocol.messages import Entries, Envelope, Fetched, Register
from shardlog.sim.network import Network
from shardlog.sim.scheduler import Scheduler


class Pair:
    """Two ends, a and b, and what b and a have received."""

    def __init__(self, **trouble: Any) -> None:
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, Random(1), 1000, **trouble)
        self.got: dict[str, list[int]] = {"a": [], "b": []}
        for name in self.got:
            self.network.attach(name, self._received)

    def _received(self, envelope: Envelope) -> None:
        assert isinstance(envelope.message, Register)
        self.got[envelope.dst].append(envelope.message.nonce)

    def send(self, count: int, src: str = "a", dst: str = "b") -> None:
        for nonce in range(count):
            self.network.send(Envelope("s", src, 0, dst, 0, Register(nonce)))

    def run(self) -> list[int]:
        self.scheduler.run()
        return self.got["b"]


def test_a_good_link_keeps_the_order_and_takes_time():
    pair = Pair()
    pair.send(100)
    assert pair.run() == list(range(100))
    assert pair.scheduler.now_us > 250
    assert pair.network.delivered == 100


def test_loss_duplication_and_reordering():
    pair = Pair(loss=0.2)
    pair.send(500)
    assert 300 < len(pair.run()) < 480
    pair = Pair(duplicate=0.2)
    pair.send(500)
    assert len(pair.run()) > 550
    pair = Pair(reorder=0.2)
    pair.send(500)
    got = pair.run()
    assert got != sorted(got)
    assert sorted(got) == list(range(500))


def test_one_way_cut():
    pair = Pair()
    pair.network.cut([("a", "b")])
    pair.send(3)
    pair.send(3, "b", "a")
    assert pair.run() == []
    assert pair.got["a"] == [0, 1, 2]


def test_overlapping_cuts_hold_until_the_last_is_mended():
    pair = Pair()
    pair.network.cut([("a", "b")])
    pair.network.cut([("a", "b")])
    pair.network.mend([("a", "b")])
    pair.send(1)
    assert pair.run() == []
    pair.network.mend([("a", "b")])
    pair.send(1)
    assert pair.run() == [0]


def test_clogged_link_releases_later_in_order_or_not():
    pair = Pair()
    pair.network.clog("a", "b")
    pair.send(20)
    assert pair.run() == []
    pair.network.unclog("a", "b")
    assert pair.run() == list(range(20))
    pair.network.clog("a", "b")
    pair.send(20)
    pair.network.unclog("a", "b", in_order=False)
    assert pair.run()[20:] != list(range(20))
    assert sorted(pair.got["b"][20:]) == list(range(20))


def test_healing_ends_all_trouble():
    pair = Pair(loss=1.0)
    pair.network.cut([("a", "b")])
    pair.network.clog("b", "a")
    pair.send(1, "b", "a")
    pair.network.heal()
    pair.send(5)
    assert pair.run() == list(range(5))
    assert pair.got["a"] == [0]


def test_a_thin_link_loses_entries_and_nothing_else():
    pair = Pair()
    got: list[str] = []
    pair.network.attach("b", lambda envelope: got.append(type(envelope.message).__name__))
    pair.network.make_thin([("a", "b")])
    pair.send(3)
    pair.network.send(Envelope("s", "a", 0, "b", 0, Entries(1, (), 0, 0)))
    pair.network.send(Envelope("s", "a", 0, "b", 0, Fetched(1, ())))
    pair.run()
    assert got == ["Register"] * 3 + ["Fetched"]
    pair.network.widen([("a", "b")])
    pair.network.send(Envelope("s", "a", 0, "b", 0, Entries(1, (), 0, 0)))
    pair.run()
    assert got == ["Register"] * 3 + ["Fetched", "Entries"]
