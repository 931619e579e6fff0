"""Appends of many clients that wait for each other, and those that need not."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import uvloop

from node.bodies import body_of
from node.cluster import registration
from node.planes import BareClient, PlaneCluster
from shardlog.checksum import seal_body
from shardlog.protocol.messages import Append, Appended, Envelope, Registered
from shardlog_node import data_plane
from shardlog_node.host import NodeHost
from shardlog_node.waves import BYTES_ENOUGH, LOOKS_MAX, Wave

BODY = body_of(b"body")


def asked(client: str) -> Envelope:
    return Envelope("shard", client, 0, "node", 0, Append(1, 1, 1, BODY, seal_body(BODY)))


class Clients:
    """Each has one append under way at a time, and appends again when it is answered."""

    def __init__(self, count: int) -> None:
        self.wave = Wave()
        self.names = [f"client {number}" for number in range(count)]
        self.under_way: set[str] = set()

    def append(self, client: str, back: bool = True, size: int = len(BODY)) -> list[str] | None:
        """Whose appends go; None if this one waits."""
        self.wave.present += 1
        self.under_way.add(client)
        return [each.src for each in self.wave.admit(asked(client), size, back)] or None

    def answer(self, *clients: str) -> None:
        for client in clients:
            self.under_way.remove(client)
            self.wave.present -= 1

    def round(self, back: bool = True) -> list[list[str]]:
        """All of them once; which groups they went in."""
        groups = [group for name in self.names if (group := self.append(name, back)) is not None]
        for group in groups:
            self.answer(*group)
        while self.under_way:
            if not self.wave.goes_on():
                late = [each.src for each in self.wave.release()]
                self.answer(*late)
                groups.append(late)
        return groups

    def come_back(self, rounds: int = 200) -> None:
        for _ in range(rounds):
            if self.round() == [self.names]:
                return
        raise AssertionError("they never went together")


def test_who_is_alone_never_waits():
    clients = Clients(1)
    for _ in range(1000):
        assert clients.round() == [clients.names]


@pytest.mark.parametrize("count", [2, 3, 64])
def test_those_who_come_back_together_go_together(count: int):
    clients = Clients(count)
    clients.come_back()
    for _ in range(100):
        assert clients.round() == [clients.names]


def test_who_comes_when_he_likes_waits_for_nobody():
    clients = Clients(64)
    for _ in range(100):
        assert clients.round(back=False) == [[name] for name in clients.names]


def test_who_comes_later_goes_with_the_others_soon():
    clients = Clients(4)
    clients.come_back()
    clients.names.append("another")
    assert [name for group in clients.round() for name in group] == clients.names
    clients.come_back()


def test_much_does_not_wait():
    clients = Clients(64)
    clients.come_back()
    assert clients.append("client 0") is None
    assert clients.append("client 1", size=BYTES_ENOUGH) == ["client 0", "client 1"]
    clients.answer("client 0", "client 1")
    assert clients.append("client 2", size=BYTES_ENOUGH) == ["client 2"]
    clients.answer("client 2")
    clients.come_back()


def test_whoever_waits_goes_with_one_who_does_not():
    clients = Clients(4)
    clients.come_back()
    assert clients.append("client 0") is None
    assert [each.src for each in clients.wave.go_by(asked("another"))] == ["client 0", "another"]
    assert [each.src for each in clients.wave.go_by(asked("another"))] == ["another"]


def test_whoever_is_under_way_is_waited_for_but_not_for_ever():
    clients = Clients(4)
    clients.come_back()
    clients.wave.present += 1  # another one's append
    assert clients.append("client 0") is None
    assert [clients.wave.goes_on() for _ in range(LOOKS_MAX)] == [True] * (LOOKS_MAX - 1) + [False]


def test_whoever_has_gone_is_waited_for_once():
    clients = Clients(4)
    clients.come_back()
    clients.names.pop()
    assert [clients.append(name) for name in clients.names] == [None] * 3
    assert not clients.wave.goes_on()
    clients.answer(*(each.src for each in clients.wave.release()))
    for _ in range(10):
        assert clients.round() == [clients.names]


def test_what_was_in_vain_is_not_done_again_soon():
    """One comes back at once, another is here now and then only."""
    clients = Clients(2)
    clients.come_back()
    rare = clients.names.pop()
    waits = []
    for _ in range(20):
        waits.append(0)
        for _ in range(50):
            group = clients.append("client 0")
            if group is None:
                waits[-1] += 1
                assert not clients.wave.goes_on()
                group = [each.src for each in clients.wave.release()]
            clients.answer(*group)
        clients.under_way.add(rare)
        clients.wave.present += 1  # it comes while the other one is under way
        clients.append("client 0")
        clients.answer("client 0", rare)
        clients.wave.release()
    assert waits[0] == 1
    assert sum(waits[10:]) < 5


def test_held_appends_keep_their_order():
    clients = Clients(3)
    clients.come_back()
    sent = ["client 2", "client 0", "client 1"]
    assert [clients.append(name) for name in sent] == [None, None, sent]


def test_clients_with_one_append_each_are_served_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Over real connections: nothing is lost, doubled or out of order, and they do go together."""
    count, appends = 4, 100
    delivered: list[int] = []
    receive_all = NodeHost.receive_all

    def noted(host: NodeHost, shard: str, envelopes: Sequence[Envelope]) -> None:
        delivered.append(len({each.src for each in envelopes if isinstance(each.message, Append)}))
        receive_all(host, shard, envelopes)

    monkeypatch.setattr(NodeHost, "receive_all", noted)
    monkeypatch.setattr(data_plane, "BACK_S", 60.0)  # however slow this machine is
    held = []
    admit = Wave.admit

    def admitted(wave: Wave, envelope: Envelope, size: int, back: bool) -> list[Envelope]:
        going = admit(wave, envelope, size, back)
        held.append(not going)
        return going

    monkeypatch.setattr(Wave, "admit", admitted)

    async def loop(client: BareClient) -> list[int]:
        registered = await client.ask(registration())
        assert isinstance(registered, Registered)
        bases = []
        for request in range(1, appends + 1):
            message = Append(registered.session, request, 1, BODY, seal_body(BODY))
            answer = await client.ask(message)
            assert isinstance(answer, Appended)
            assert answer.request == request
            bases.append(answer.base)
        return bases

    async def told() -> None:
        cluster = PlaneCluster(tmp_path, "a b c")
        async with cluster.running(), AsyncExitStack() as stack:
            leader = await cluster.create("orders")
            clients = [
                await stack.enter_async_context(cluster.client(leader, "orders"))
                for _ in range(count)
            ]
            bases = await asyncio.gather(*map(loop, clients))
        assert all(each == sorted(each) for each in bases)
        assert len({base for each in bases for base in each}) == count * appends

    uvloop.run(told())  # asyncio 3.11 leaks what it accepts while it stops to listen
    assert len(held) == count * appends
    assert any(held), "they have waited for each other"
    assert max(delivered) == count, "and gone together"
