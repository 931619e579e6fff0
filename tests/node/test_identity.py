"""Who may say what to a node: findings S-01 to S-08 and S-26 of `docs/security.md`."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from cluster_keys import KEY, OTHER_KEY

from node.bodies import body_of
from node.planes import BareClient, PlaneCluster
from node.shell import Cluster as ShellCluster
from node.test_data_plane import append, session_of, story
from shardlog.protocol.coordination import Promote
from shardlog.protocol.entry import Member
from shardlog.protocol.failures import Illegal, Overloaded
from shardlog.protocol.history import EPOCH_MAX
from shardlog.protocol.messages import (
    Abort,
    Ack,
    AddFollower,
    Appended,
    BecomeLeader,
    ClientRefused,
    Commit,
    Create,
    Destroy,
    Envelope,
    Fence,
    FenceAnswer,
    Fetch,
    InstallSnapshot,
    Kept,
    Message,
    Operation,
    PauseWrites,
    Prepare,
    Read,
    ReadResult,
    Reconfiguration,
    Refused,
    Register,
    Registered,
    Snapshot,
    SnapshotRequest,
    StatusRequest,
    Trim,
)
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Shard, Status
from shardlog.protocol.upkeep import Upkeep
from shardlog.transport.cluster_key import ClusterKey
from shardlog.transport.connection import Connection, ConnectionLimits, State
from shardlog.transport.control import ControlClient, ControlLimits
from shardlog.transport.control_calls import RPCS, NewsRequest
from shardlog.transport.endpoints import Inbox, connect
from shardlog.transport.failures import NotPermitted, TransportFailure
from shardlog.transport.frame_messages import BETWEEN_REPLICAS, from_message, to_message
from shardlog.transport.frames import HEAD, Decoder, Frame, FrameType, encode_register
from shardlog.transport.handshake import (
    Attach,
    Hello,
    Pong,
    Role,
    decode_attached,
    encode_attach,
    encode_hello,
    encode_pong,
    encode_proof,
)
from shardlog_node.clients import REGISTERED_IN_VAIN_MAX
from shardlog_node.data_plane import PlaneLimits

RECORDS = 20
NUMBER_MAX = (1 << 64) - 1


def calls(shard: Shard) -> dict[str, Message]:
    """What each call of the control plane does most harm with."""
    assert shard.leader is not None
    epoch, here, ensemble = shard.epoch, shard.leader, shard.ensemble
    kept, empty = Kept((), 0, 0), Snapshot(here, (), 0, 0, 0, 0, ())
    answer = FenceAnswer(here, epoch, (), 0, 0, 0, 0, False, False, ())
    change = Reconfiguration(Operation.CONTRACT, ensemble, ensemble[-1], None)
    return {
        "Create": Create(),
        "Fence": Fence(epoch + 1),
        "BecomeLeader": BecomeLeader(epoch + 1, ensemble, QuorumPolicy(), kept, (), ()),
        "AddFollower": AddFollower(epoch, answer, standby=False),
        "PrepareReconfig": Prepare(epoch, change),
        "CommitReconfig": Commit(epoch, change),
        "AbortReconfig": Abort(epoch + 1, ensemble),
        "DescribeSnapshot": SnapshotRequest(epoch),
        "InstallSnapshot": InstallSnapshot(epoch + 1, empty),
        "PauseWrites": PauseWrites(epoch, ensemble[-1]),
        "Trim": Trim(epoch, RECORDS),
        "DeleteShard": Destroy(),
        "Status": StatusRequest(epoch, Upkeep(1 << 62, 1, 0, relaxed=True)),
    }


class Impostor:
    """A node of the cluster, `name`, that says what it should not."""

    def __init__(self, connection: Connection, inbox: Inbox, name: str) -> None:
        self.connection = connection
        self.inbox = inbox
        self.name = name

    async def attach(self, shard: str, node: str, incarnation: int, own: int = 1) -> int:
        """As replica `own` of the shard here; the incarnation of the one there."""
        attach = Attach(shard, self.name, own, node, incarnation)
        self.connection.send(encode_attach(1, attach))
        frame = await self.inbox.next()
        while frame.type == FrameType.PONG:
            frame = await self.inbox.next()
        return decode_attached(frame)

    async def say(self, message: Message) -> None:
        """Raises what the other side ends the connection with, if it does."""
        self.connection.send(from_message(1, message))
        while True:
            await self.inbox.next()


@asynccontextmanager
async def impostor(cluster: PlaneCluster, node: str, name: str) -> AsyncIterator[Impostor]:
    host, _, port = cluster.addresses[node].rpartition(":")
    inbox = Inbox()
    connection = await connect(
        host,
        int(port),
        name=name,
        role=Role.NODE,
        receiver=inbox,
        limits=ConnectionLimits(),
        wall_ns=time.time_ns,
        timeout_ms=5000,
        key=KEY,
    )
    try:
        yield Impostor(connection, inbox, name)
    finally:
        connection.close()
        await connection.closed()


async def write(client: BareClient, records: int = RECORDS) -> int:
    """A session, and how many records it has appended."""
    session = await session_of(client)
    for number in range(1, records + 1):
        answer = await client.ask(append(session, number, body_of(b"%d" % number)))
        assert isinstance(answer, Appended), answer
    return session


async def is_whole(cluster: PlaneCluster, leader: str, client: BareClient, session: int) -> None:
    """Every record is there, nobody was deposed, and the next one is taken."""
    result = await client.ask(Read(5, 0, 100))
    assert isinstance(result, ReadResult), result
    assert [bytes(entry.body) for entry in result.entries] == [
        body_of(b"%d" % n) for n in range(1, RECORDS + 1)
    ]
    answer = await client.ask(append(session, RECORDS + 1, body_of(b"and one more")))
    assert isinstance(answer, Appended), answer
    assert sorted(cluster.nodes) == ["a", "b", "c"]
    assert [list(node.replicas) for node in cluster.nodes.values()] == [["orders"]] * 3
    assert [node.failed for node in cluster.nodes.values()] == [{}] * 3
    assert cluster.nodes[leader].replicas["orders"].replica.lead is not None


@pytest.mark.parametrize("rpc", sorted(set(RPCS) - {"DescribeSnapshot"}))
def test_S01_the_data_plane_takes_no_call_of_the_control_plane(tmp_path: Path, rpc: str):
    @story(tmp_path)
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        session = await write(client)
        shard = cluster.coordinator.shards["orders"]
        for member in shard.ensemble:
            async with impostor(cluster, member.node, "another") as attacker:
                await attacker.attach("orders", *member)
                with pytest.raises(NotPermitted, match=f"{RPCS[rpc].__name__} is not for nodes"):
                    await attacker.say(calls(shard)[rpc])
        await is_whole(cluster, leader, client, session)


@pytest.mark.parametrize(
    "message", [Register(1), Read(1, 0, 1), append(1, 1, body_of(b"x"))], ids=str
)
def test_S01_nodes_are_no_clients(tmp_path: Path, message: Message):
    """As such they would not be counted, and held to no bound."""

    @story(tmp_path)
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        session = await write(client)
        member = cluster.coordinator.shards["orders"].leader
        assert member is not None
        async with impostor(cluster, leader, "another") as attacker:
            await attacker.attach("orders", *member)
            with pytest.raises(NotPermitted, match="is not for nodes"):
                await attacker.say(message)
        await is_whole(cluster, leader, client, session)


def test_S01_every_call_is_tried_or_is_what_replicas_say_too():
    assert {kind for kind in RPCS.values() if kind in BETWEEN_REPLICAS} == {SnapshotRequest}


@pytest.mark.parametrize("epoch", [NUMBER_MAX, EPOCH_MAX + 1])
def test_S01_an_epoch_that_cannot_be_bricks_nothing(tmp_path: Path, epoch: int):
    """Over the control plane: nobody promises it, and the next election goes on."""

    @story(tmp_path)
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        await write(client)
        shard = cluster.coordinator.shards["orders"]
        for member in shard.ensemble:
            asked = Envelope("orders", "op", 0, *member, Fence(epoch, 1))
            answer = (await cluster.call(asked, 5000)).message
            assert isinstance(answer, Refused)
            assert isinstance(answer.refusal, Illegal)
        other = next(member.node for member in shard.ensemble if member.node != leader)
        await cluster.coordinator.command("orders", Promote(other))
        async with asyncio.timeout(30):
            while not (elected := led_since(cluster, shard.epoch)):  # another one, if it is slow
                await asyncio.sleep(0.01)
        async with cluster.client(elected, "orders") as after:
            assert isinstance(
                await after.ask(append(await session_of(after), 1, body_of(b"x"))), Appended
            )


def led_since(cluster: PlaneCluster, epoch: int) -> str:
    """Who leads a later epoch than this one; empty if nobody does yet."""
    shard = cluster.coordinator.shards["orders"]
    led = shard.status is Status.STEADY and shard.leader is not None and shard.epoch > epoch
    return shard.leader.node if led and shard.leader is not None else ""


# --- S-03: names ---------------------------------------------------------------------------------


def test_S03_a_node_speaks_for_itself_alone(tmp_path: Path):
    """Even who has the key of the cluster cannot acknowledge in the name of another node."""

    @story(tmp_path)
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        session = await write(client)
        shard = cluster.coordinator.shards["orders"]
        follower = next(member for member in shard.ensemble if member.node != leader)
        assert shard.leader is not None
        async with impostor(cluster, leader, "another") as attacker:
            attacker.name = follower.node
            with pytest.raises(NotPermitted, match=f"another speaks for {follower.node}"):
                await attacker.attach("orders", *shard.leader, own=follower.incarnation)
        await is_whole(cluster, leader, client, session)


def test_S03_an_append_waits_for_its_followers_and_for_no_impostor(tmp_path: Path):
    async def told() -> None:
        cluster = ShellCluster(tmp_path, "a", "b", "c")
        async with cluster.running():
            leader = await cluster.create("orders")
            async with cluster.client(leader, "orders") as client:
                session = await session_of(client)
                assert isinstance(
                    await client.ask(append(session, 1, body_of(b"before"))), Appended
                )
                shard = cluster.coordinator.shards["orders"]
                followers = [each for each in shard.ensemble if each.node != leader]
                for follower in followers:
                    cluster.nodes[follower.node].signal(signal.SIGSTOP)
                client.send(append(session, 2, body_of(b"on its way")))
                for key in (OTHER_KEY, None):
                    for follower in followers:
                        frames = await attack_of(cluster, leader, follower, key)
                        assert frames[-1].type == FrameType.GOODBYE
                answering = asyncio.create_task(client.next())
                await asyncio.sleep(0)
                assert not answering.done(), to_message(answering.result())
                for follower in followers:
                    cluster.nodes[follower.node].signal(signal.SIGCONT)
                await answering
            while not cluster.nodes[leader].told("connections refused"):
                await asyncio.sleep(0.05)
            refused = cluster.nodes[leader].told("connections refused")[0]
            assert refused["number"] == 4
            assert refused["last"].startswith("127.0.0.1:")

    asyncio.run(told())


async def attack_of(
    cluster: ShellCluster, leader: str, follower: Member, key: ClusterKey | None
) -> list[Frame]:
    """Acknowledges everything in the follower's name; what the leader's node says to it."""
    shard = cluster.coordinator.shards["orders"]
    assert shard.leader is not None
    nonce = bytes(32)
    proof = key.proof(b"data plane, calling", follower.node.encode()) if key else nonce
    attach = Attach("orders", *follower, *shard.leader)
    ack = Ack(shard.epoch, 1 << 40, 1 << 40, 0)
    host, _, port = cluster.nodes[leader].ready["data"].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    decoder, found = Decoder(), list[Frame]()
    hello = Hello(Role.NODE, follower.node, 1 << 24, nonce=nonce)
    for frames in (
        [encode_hello(hello)],
        [encode_proof(proof), encode_attach(1, attach), from_message(1, ack)],
    ):
        writer.write(b"".join(part for frame in frames for part in frame))
        found += decoder.feed(await reader.read(1 << 16))
    writer.close()
    return found


# --- S-02: the control plane ---------------------------------------------------------------------


def test_S02_the_control_plane_takes_no_call_without_the_key(tmp_path: Path):
    async def told() -> None:
        cluster = ShellCluster(tmp_path, "a")
        async with cluster.running():
            leader = await cluster.create("orders")
            async with cluster.client(leader, "orders") as client:
                session = await write(client)
                shard = cluster.coordinator.shards["orders"]
                assert shard.leader is not None
                stranger = ControlClient(ControlLimits(), None, OTHER_KEY)
                address = cluster.nodes["a"].ready["control"]
                for message in calls(shard).values():
                    asked = Envelope("orders", "op", 0, *shard.leader, message)
                    with pytest.raises(NotPermitted, match="UNAUTHENTICATED: this is a, and the"):
                        await stranger.call(address, asked, 5000)
                fetch = Envelope("orders", "op", 0, *shard.leader, Fetch(shard.epoch, (), 0, 1))
                with pytest.raises(NotPermitted):
                    _ = [piece async for piece in stranger.fetch_snapshot(address, fetch, 5000)]
                with pytest.raises(NotPermitted):
                    await stranger.news(address, NewsRequest("a", 0, 0), 5000)
                with pytest.raises(NotPermitted):
                    await stranger.status_of_many(address, [fetch_status(shard)], 5000)
                await stranger.close()
                result = await client.ask(Read(5, 0, 100))
                assert isinstance(result, ReadResult)
                assert len(result.entries) == RECORDS
                assert isinstance(
                    await client.ask(append(session, RECORDS + 1, body_of(b"x"))), Appended
                )

    asyncio.run(told())


def fetch_status(shard: Shard) -> Envelope:
    assert shard.leader is not None
    return Envelope("orders", "op", 0, *shard.leader, StatusRequest(shard.epoch))


# --- S-06: the clock -----------------------------------------------------------------------------


def test_S06_only_answers_of_nodes_that_share_a_shard_count_for_the_clock(tmp_path: Path):
    @story(tmp_path)
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        sampled: list[str] = []
        plane = cluster.planes[leader]
        plane.on_pong = lambda node, sent, received, wall: sampled.append(node)
        member = cluster.coordinator.shards["orders"].leader
        assert member is not None
        async with impostor(cluster, leader, "another") as attacker:
            lies = [encode_pong(Pong(number, 1 << 62)) for number in range(100)]
            for lie in lies:
                attacker.connection.send(lie)
            await attacker.attach("orders", *member)
            for lie in lies:
                attacker.connection.send(lie)
            await attacker.attach("orders", *member)  # by now they have come
            assert "another" not in sampled
            async with asyncio.timeout(30):
                while "another" not in sampled:  # it answers a PING in the end
                    await asyncio.sleep(0.01)
        async with asyncio.timeout(30):
            while not {"a", "b", "c"} - {leader} <= set(sampled):
                await asyncio.sleep(0.01)


# --- S-07 and S-08: memory -----------------------------------------------------------------------


@pytest.mark.parametrize("same", [True, False], ids=["one number", "many numbers"])
def test_S07_registrations_that_wait_are_bounded(tmp_path: Path, same: bool):
    number = 5000
    limits = PlaneLimits(inflight_bytes_max=256 << 10)
    # A registration that is sent again while it waits is answered once.
    answered = number - limits.registered_max + 1 if same else number

    @story(tmp_path, limits=limits)
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        session = await write(client)
        plane = cluster.planes[leader]
        async with cluster.client(leader, "orders") as rude:
            rude.connection.send(
                [
                    part
                    for each in range(1, number + 1)
                    for part in encode_register(1, 1 if same else each)
                ]
            )
            answers = [to_message(await rude.next()) for _ in range(answered)]
            assert plane.budget.bytes <= limits.inflight_bytes_max
        refused = [each for each in answers if isinstance(each, ClientRefused)]
        assert {type(each.refusal) for each in refused} == {Overloaded}
        assert len(refused) < answered
        async with asyncio.timeout(30):
            while plane.budget.bytes:
                await asyncio.sleep(0.01)
        answer = await client.ask(append(session, RECORDS + 1, body_of(b"x")))
        assert isinstance(answer, Appended | ClientRefused)  # others may have evicted its session


def test_S07_who_goes_on_registering_in_vain_is_dismissed(tmp_path: Path):
    most = 8

    @story(tmp_path, limits=PlaneLimits(registered_max=most))
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        async with cluster.client(leader, "orders") as rude:
            for nonce in range(1, most + REGISTERED_IN_VAIN_MAX + 1):
                rude.connection.send(encode_register(1, nonce))
            for _ in range(most + REGISTERED_IN_VAIN_MAX):
                await rude.next()
            rude.connection.send(encode_register(1, 1))
            with pytest.raises(TransportFailure, match="registrations are refused"):
                await rude.next()
        assert isinstance(await client.ask(Register(1)), Registered)


def test_S07_what_belongs_to_closed_channels_is_dropped(tmp_path: Path):
    number = 10_000

    @story(tmp_path, limits=PlaneLimits(registered_max=number))
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        async with cluster.client(leader, "orders") as rude:
            frames = [part for each in range(number) for part in encode_register(1, each)]
            rude.connection.send(frames)
            plane = cluster.planes[leader]
            async with asyncio.timeout(30):
                while not plane._waiting:
                    await asyncio.sleep(0)
            assert plane.budget.bytes
        async with asyncio.timeout(30):
            while plane.connections > 3:  # a client's, and two followers'
                await asyncio.sleep(0)
        for _ in range(2):
            await asyncio.sleep(0)
        assert not plane._waiting
        assert not plane.budget.bytes


def test_S08_frames_of_nodes_that_are_not_whole_are_bounded(tmp_path: Path):
    size = 1 << 20

    @story(tmp_path, limits=PlaneLimits(inflight_bytes_max=4 * size))
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        session = await write(client)
        plane = cluster.planes[leader]
        async with AsyncExitStack() as stack:
            begun = HEAD.pack(16 * size, FrameType.MESSAGE, 0, 1)
            attackers = [
                await stack.enter_async_context(impostor(cluster, leader, f"another-{number}"))
                for number in range(12)
            ]
            for attacker in attackers:
                attacker.connection.send([begun, bytes(size)])
            async with asyncio.timeout(30):
                while all(each.connection.state is State.OPEN for each in attackers):
                    assert plane.unfinished_of_nodes.bytes <= 5 * size
                    await asyncio.sleep(0)
            await is_whole(cluster, leader, client, session)
        async with asyncio.timeout(30):
            while plane.unfinished_of_nodes.bytes:
                await asyncio.sleep(0.01)


# --- S-26: names of shards -----------------------------------------------------------------------


@pytest.mark.parametrize("shard", ["", " ", "a\x1b[31m", "ä", "n" * 81])
def test_S26_a_name_that_cannot_be_is_refused_and_fails_nothing(tmp_path: Path, shard: str):
    @story(tmp_path, "a")
    async def _(cluster: PlaneCluster, leader: str, client: BareClient) -> None:
        for message in (Create(), Destroy(), StatusRequest(1), Fence(1)):
            answer = await cluster.call(Envelope(shard, "op", 0, "a", 0, message), 5000)
            assert isinstance(answer.message, Refused), answer
            assert isinstance(answer.message.refusal, Illegal)
        async with impostor(cluster, "a", "another") as attacker:
            assert await attacker.attach(shard, "a", 1) == 0
            attacker.connection.send(from_message(1, Ack(1, 1, 1, 0)))
            assert await attacker.attach(shard, "a", 1) == 0
        async with cluster.client("a", shard) as stranger:
            answer_to_client = await stranger.ask(Register(1))
            assert isinstance(answer_to_client, ClientRefused)
        assert cluster.nodes["a"].failed == {}
        assert list(cluster.nodes["a"].replicas) == ["orders"]
