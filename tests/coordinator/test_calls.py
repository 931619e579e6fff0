"""Coordinators that call nodes over real control connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from cluster_keys import KEY, OTHER_KEY

from coordinator.nodes import SHARD, Cluster, now_ms
from shardlog.coordinator.calls import NodeControl, is_refused, nodes_of
from shardlog.coordinator.driver import DriverLimits, NotListening, Unanswered
from shardlog.coordinator.host import CoordinatorHost
from shardlog.protocol import messages
from shardlog.protocol.coordination import Accepted, CreateShard, Promote, TrimShard
from shardlog.protocol.entry import Member
from shardlog.protocol.history import Span
from shardlog.protocol.messages import Envelope, Message
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Shard, Status
from shardlog.transport.control import ControlClient, ControlLimits, ControlServer
from shardlog.transport.control_calls import Addresses
from shardlog.transport.failures import DeadlineExceeded, NotPermitted, Unreachable

LIMITS = ControlLimits()
HISTORY = (Span(1, 0),)
A, B, C, D = (Member(node, number) for number, node in enumerate("abcd", 1))
DATA = {"a": "host-a:1", "b": "host-b:1", "c": "host-c:1"}


def answer_of(member: Member) -> messages.FenceAnswer:
    return messages.FenceAnswer(member, 1, HISTORY, 0, 0, 1, 7, False, False, ())


class Served:
    """One node of a cluster behind a control server of its own."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.told: list[tuple[Message, Addresses]] = []
        self.server = ControlServer(self.handle, self.fetch_snapshot, LIMITS, key=KEY, name=name)
        self.address = ""

    async def start(self) -> None:
        port = await self.server.start("127.0.0.1", 0)
        self.address = f"127.0.0.1:{port}"

    async def handle(self, envelope: Envelope, addresses: Addresses) -> Envelope | None:
        self.told.append((envelope.message, addresses))
        if isinstance(envelope.message, messages.Trim):
            self.cluster.send(envelope)
            return None
        answer = await self.cluster.call(envelope, 5000)
        return Envelope(
            answer.shard, answer.src, answer.src_incarnation, envelope.src, 0, answer.message
        )

    async def fetch_snapshot(self, envelope: Envelope) -> AsyncIterator[bytes]:
        pieces: tuple[bytes, ...] = ()
        for piece in pieces:
            yield piece


@asynccontextmanager
async def served(cluster: Cluster) -> AsyncIterator[tuple[NodeControl, dict[str, Served]]]:
    """A control for the cluster's nodes, and the servers that it calls."""
    nodes = {name: Served(cluster, name) for name in cluster.nodes}
    client = ControlClient(LIMITS, None, KEY)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.close)
        for node in nodes.values():
            await node.start()
            stack.push_async_callback(node.server.stop, 0)
        yield NodeControl(client, lambda node: nodes[node].address, DATA.get), nodes


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(messages.Create(), "", id="create"),
        pytest.param(messages.Fence(3), "", id="fence"),
        pytest.param(
            messages.BecomeLeader(
                1, (A, B), QuorumPolicy(), messages.Kept(HISTORY, 1, 7), (C,), (answer_of(D),)
            ),
            "a b c d",
            id="become-leader",
        ),
        pytest.param(messages.AddFollower(1, answer_of(C), standby=True), "c", id="add-follower"),
        pytest.param(
            messages.Prepare(
                2, messages.Reconfiguration(messages.Operation.SWAP, (A, B), B, C)
            ),
            "a b c",
            id="prepare",
        ),
        pytest.param(
            messages.InstallSnapshot(1, messages.Snapshot(B, HISTORY, 0, 0, 1, 7, ())),
            "b",
            id="install-snapshot",
        ),
        pytest.param(messages.PauseWrites(1, C), "c", id="pause-writes"),
    ],
)  # fmt: skip
def test_the_nodes_that_a_message_speaks_of(message, expected):
    assert nodes_of(message) == set(expected.split())


async def until(host: CoordinatorHost, epoch: int) -> Shard:
    while True:
        shard = host.shards.get(SHARD)
        if shard is not None and shard.status is Status.STEADY and shard.epoch >= epoch:
            return shard
        await asyncio.sleep(0.01)


def test_a_shard_is_created_handed_over_and_trimmed_over_the_network():
    async def story() -> None:
        cluster = Cluster("a b c")
        async with served(cluster) as (control, nodes):
            limits = DriverLimits(tick_ms=5, call_timeout_ms=1000)
            host = CoordinatorHost(
                "operator", cluster.memory.handle(), control, now_ms, driver_limits=limits
            )
            async with cluster.running(host):
                await host.command(SHARD, CreateShard(("a", "b", "c"), QuorumPolicy()))
                shard = await until(host, 1)
                assert shard.leader is not None
                led = [each for each in nodes[shard.leader.node].told if leads(each[0])]
                assert led[-1][1] == DATA
                asked = [each for node in nodes.values() for each in node.told]
                assert all(not where for message, where in asked if quiet(message))
                other = next(each for each in shard.ensemble if each != shard.leader)
                assert isinstance(await host.command(SHARD, Promote(other.node)), Accepted)
                shard = await until(host, shard.epoch + 1)
                assert isinstance(await host.command(SHARD, TrimShard(1)), Accepted)
                assert shard.leader is not None
                leader = nodes[shard.leader.node]
                while not any(isinstance(each, messages.Trim) for each, _ in leader.told):
                    await asyncio.sleep(0.01)
                await until(host, shard.epoch)

    asyncio.run(story())


def leads(message: Message) -> bool:
    return isinstance(message, messages.BecomeLeader)


def quiet(message: Message) -> bool:
    return isinstance(message, messages.Create | messages.Fence | messages.StatusRequest)


def ask(node: str, message: Message) -> Envelope:
    return Envelope(SHARD, "operator", 0, node, 0, message)


def test_what_goes_wrong_on_the_way_is_no_answer():
    async def story() -> None:
        cluster = Cluster("a b")
        async with served(cluster) as (control, nodes):
            cluster.nodes["b"].kill()
            with pytest.raises(Unanswered):
                await control.call(ask("b", messages.StatusRequest(1)), 50)
            assert isinstance(control.failures["b"], DeadlineExceeded)
            await nodes["b"].server.stop(0)
            with pytest.raises(NotListening):
                await control.call(ask("b", messages.StatusRequest(1)), 5000)
            assert isinstance(control.failures["b"], Unreachable)
            answer = await control.call(ask("a", messages.Create()), 5000)
            assert answer is not None
            assert isinstance(answer.message, messages.Created)
            assert "a" not in control.failures
            cluster.nodes["a"].kill()
            with pytest.raises(Unanswered):
                await control.call(ask("a", messages.Create()), 50)
            assert isinstance(control.failures["a"], DeadlineExceeded)
            cluster.nodes["a"].start()
            await control.call(ask("a", messages.Create()), 5000)
            assert "a" not in control.failures

    asyncio.run(story())


def test_who_does_not_answer_may_still_listen():
    async def story() -> None:
        async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        listener = await asyncio.start_server(ignore, "127.0.0.1", 0)
        address = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        client = ControlClient(LIMITS, None, KEY)
        control = NodeControl(client, lambda _: address, DATA.get)
        with pytest.raises(Unanswered) as failed:
            await control.call(ask("a", messages.Create()), 1000)
        assert not isinstance(failed.value, NotListening)
        assert not await is_refused(address)
        listener.close()
        await listener.wait_closed()
        assert await is_refused(address)
        assert await is_refused(address.replace("127.0.0.1", "[::ffff:127.0.0.1]"))
        await client.close()

    asyncio.run(story())


def test_a_node_whose_address_nobody_knows():
    async def story() -> None:
        client = ControlClient(LIMITS, None, KEY)
        control = NodeControl(client, lambda _: None, DATA.get)
        with pytest.raises(Unanswered, match="nobody knows where a is"):
            await control.call(ask("a", messages.Create()), 5000)
        await client.close()

    asyncio.run(story())


def test_nothing_to_tell_is_an_answer():
    async def story() -> None:
        cluster = Cluster("a")
        async with served(cluster) as (control, _):
            assert await control.call(ask("a", messages.Trim(1, 1)), 5000) is None

    asyncio.run(story())


def test_S02_that_a_node_refuses_a_coordinators_key_is_told_once():
    async def story() -> None:
        cluster = Cluster("a b c")
        node = Served(cluster, "a")
        await node.start()
        client = ControlClient(LIMITS, None, OTHER_KEY)
        told: list[tuple[str, str]] = []
        control = NodeControl(
            client, lambda _: node.address, DATA.get, lambda *what: told.append(what)
        )
        for message in (messages.Create(), messages.Destroy(), messages.StatusRequest(1)):
            with pytest.raises(Unanswered):
                await control.call(Envelope("orders", "op", 0, "a", 1, message), 5000)
        ((name, why),) = told
        assert name == "a"
        assert "this is a, and the call has no proof of its cluster key" in why
        assert isinstance(control.failures["a"], NotPermitted)
        assert not node.told
        await client.close()
        await node.server.stop(0)

    asyncio.run(story())
