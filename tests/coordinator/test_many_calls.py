"""Questions that travel together, and news of nodes, over real gRPC."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from cluster_keys import KEY

from shardlog.coordinator.calls import GATHERED_MAX, GATHERED_TIMEOUT_MS, NodeControl
from shardlog.coordinator.driver import CannotLook, NotListening, Unanswered
from shardlog.protocol.entry import Member
from shardlog.protocol.failures import NoReplica
from shardlog.protocol.messages import (
    Create,
    Created,
    Envelope,
    Refused,
    StatusReport,
    StatusRequest,
)
from shardlog.transport.control import ControlClient, ControlLimits, ControlServer
from shardlog.transport.control_calls import Addresses, NewsRequest, NodeNews
from shardlog.transport.failures import Rejected

LIMITS = ControlLimits()
DEAD = "dead"
STRANGE = "strange"


class Node:
    """Answers for any shard; it has no answer for one, and no replica of another."""

    def __init__(self, name: str, *, old: bool = False) -> None:
        self.name = name
        self.singly = 0
        self.rounds: list[int] = []
        self.looks: list[NewsRequest] = []
        new = (None, None) if old else (self.answer, self.tell)
        self.server = ControlServer(self.handle, self.fetch, LIMITS, None, *new, key=KEY, name=name)
        self.address = ""

    async def start(self) -> None:
        self.address = f"127.0.0.1:{await self.server.start('127.0.0.1', 0)}"

    def answer(self, asked: Envelope) -> Envelope | None:
        if asked.shard == DEAD:
            return None
        message = asked.message
        assert isinstance(message, StatusRequest)
        if asked.shard == STRANGE:
            said = Refused("StatusRequest", 0, NoReplica(0, asked.dst_incarnation))
            return Envelope(asked.shard, self.name, 0, asked.src, 0, said)
        report = StatusReport(
            message.epoch, Member(self.name, 5), "FOLLOWER", message.epoch, (), 0, 0, None, -1,
            False, False, (), (),
        )  # fmt: skip
        return Envelope(asked.shard, self.name, 5, asked.src, 0, report)

    async def handle(self, asked: Envelope, _: Addresses) -> Envelope | None:
        self.singly += 1
        if isinstance(asked.message, Create):
            return Envelope(asked.shard, self.name, 0, asked.src, 0, Created(5))
        return self.answer(asked)

    def tell(self, asked: NewsRequest) -> NodeNews:
        self.looks.append(asked)
        if asked.node != self.name:
            raise Rejected(f"this is {self.name}")
        return NodeNews(7, asked.since + 1, ("orders",))

    async def fetch(self, envelope: Envelope) -> AsyncIterator[bytes]:
        pieces: tuple[bytes, ...] = ()
        for piece in pieces:
            yield piece


class CountingClient(ControlClient):
    """A client that remembers how many questions it sent at once."""

    def __init__(self) -> None:
        super().__init__(LIMITS, None, KEY)
        self.rounds: list[int] = []
        self.timeouts_ms: list[int] = []

    async def status_of_many(self, address, envelopes, timeout_ms):
        self.rounds.append(len(envelopes))
        self.timeouts_ms.append(timeout_ms)
        return await super().status_of_many(address, envelopes, timeout_ms)


@asynccontextmanager
async def served(*nodes: Node) -> AsyncIterator[tuple[NodeControl, CountingClient]]:
    client = CountingClient()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.close)
        for node in nodes:
            await node.start()
            stack.push_async_callback(node.server.stop, 0)
        where = {node.name: node.address for node in nodes}
        yield NodeControl(client, where.get, lambda _: None), client


def ask(node: str, shard: str, epoch: int = 1) -> Envelope:
    return Envelope(shard, "operator", 0, node, 5, StatusRequest(epoch))


def test_questions_for_one_node_travel_together_and_each_gets_its_answer():
    async def story() -> None:
        a, b = Node("a"), Node("b")
        async with served(a, b) as (control, client):
            asked = [ask(node, f"s{epoch}", epoch) for epoch in range(100) for node in "ab"]
            answers = await asyncio.gather(*[control.call(each, 30_000) for each in asked])
            for question, answer in zip(asked, answers, strict=True):
                assert answer is not None
                assert isinstance(answer.message, StatusReport)
                assert (answer.shard, answer.src) == (question.shard, question.dst)
                assert f"s{answer.message.asked}" == question.shard
            assert client.rounds == [100, 100]
            assert a.singly == b.singly == 0

    asyncio.run(story())


def test_a_round_waits_no_longer_than_the_most_impatient_of_its_questions():
    async def story() -> None:
        async with served(Node("a")) as (control, client):
            for patience_ms in ((30_000, 900, 5_000), (30_000, 5_000)):
                asked = [control.call(ask("a", f"s{each}"), each) for each in patience_ms]
                await asyncio.gather(*asked)
            assert client.timeouts_ms == [900, GATHERED_TIMEOUT_MS]

    asyncio.run(story())


def test_a_round_is_bounded():
    async def story() -> None:
        node = Node("a")
        async with served(node) as (control, client):
            asked = [ask("a", f"s{number}") for number in range(2 * GATHERED_MAX + 1)]
            await asyncio.gather(*[control.call(each, 30_000) for each in asked])
            assert client.rounds == [GATHERED_MAX, GATHERED_MAX, 1]

    asyncio.run(story())


def test_one_bad_shard_spoils_no_other():
    async def story() -> None:
        node = Node("a")
        async with served(node) as (control, client):
            shards = ["orders", DEAD, STRANGE, "invoices"]
            answers = await asyncio.gather(
                *[control.call(ask("a", shard), 30_000) for shard in shards], return_exceptions=True
            )
            assert client.rounds == [4]
            first, dead, strange, last = answers
            assert isinstance(dead, Unanswered)
            assert not isinstance(dead, NotListening)
            assert isinstance(first, Envelope)
            assert isinstance(last, Envelope)
            assert isinstance(strange, Envelope)
            assert isinstance(strange.message, Refused)

    asyncio.run(story())


def test_other_calls_are_made_at_once_and_alone():
    async def story() -> None:
        node = Node("a")
        async with served(node) as (control, client):
            asked = Envelope("orders", "operator", 0, "a", 0, Create())
            answers = await asyncio.gather(*[control.call(asked, 30_000) for _ in range(3)])
            assert all(answer and isinstance(answer.message, Created) for answer in answers)
            assert (node.singly, client.rounds) == (3, [])

    asyncio.run(story())


def test_a_node_of_an_older_version_is_asked_singly():
    async def story() -> None:
        old = Node("old", old=True)
        async with served(old) as (control, client):
            for _ in range(2):
                answers = await asyncio.gather(
                    *[control.call(ask("old", shard), 30_000) for shard in ("one", "two", DEAD)],
                )
                assert [answer and answer.shard for answer in answers] == ["one", "two", None]
            assert client.rounds == [3]
            assert old.singly == 6
            with pytest.raises(CannotLook):
                await control.look("old", 0, 0, 30_000)

    asyncio.run(story())


def test_nobody_listens_where_many_are_asked():
    async def story() -> None:
        node = Node("a")
        async with served(node) as (control, _):
            await node.server.stop(0)
            answers = await asyncio.gather(
                *[control.call(ask("a", f"s{number}"), 30_000) for number in range(20)],
                return_exceptions=True,
            )
            assert all(isinstance(each, NotListening) for each in answers)
            assert len(set(map(id, answers))) == len(answers)
            with pytest.raises(NotListening):
                await control.look("a", 0, 0, 30_000)

    asyncio.run(story())


def test_who_no_longer_waits_keeps_nobody_from_an_answer():
    async def story() -> None:
        node = Node("a")
        async with served(node) as (control, client):
            gone = asyncio.create_task(control.call(ask("a", "one"), 30_000))
            other = asyncio.create_task(control.call(ask("a", "two"), 30_000))
            await asyncio.sleep(0)
            gone.cancel()
            answer = await other
            assert answer is not None
            assert gone.cancelled()
            assert client.rounds == [2]

    asyncio.run(story())


def test_an_address_that_is_forgotten_while_questions_gather():
    async def story() -> None:
        node = Node("a")
        async with served(node):
            where: dict[str, str] = {"a": node.address}
            client = CountingClient()
            control = NodeControl(client, where.get, lambda _: None)
            asked = asyncio.create_task(control.call(ask("a", "one"), 30_000))
            await asyncio.sleep(0)
            where.clear()
            with pytest.raises(Unanswered, match="nobody knows where a is"):
                await asked
            with pytest.raises(Unanswered, match="nobody knows where a is"):
                await control.look("a", 0, 0, 30_000)
            await client.close()

    asyncio.run(story())


def test_news_are_asked_for_since_the_latest():
    async def story() -> None:
        node, other = Node("a"), Node("b")
        async with served(node, other) as (control, _):
            first = await control.look("a", 0, 0, 30_000)
            assert first == NodeNews(7, 1, ("orders",))
            await control.look("a", first.life, first.number, 30_000)
            assert node.looks == [NewsRequest("a", 0, 0), NewsRequest("a", 7, 1)]
            where = {"a": other.address}
            client = ControlClient(LIMITS, None, KEY)
            misled = NodeControl(client, where.get, lambda _: None)
            with pytest.raises(Unanswered, match="this is b"):
                await misled.look("a", 0, 0, 30_000)
            await client.close()

    asyncio.run(story())
