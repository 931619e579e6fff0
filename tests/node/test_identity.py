"""Who may say what to a node: findings S-01 to S-08 and S-26 of `docs/security.md`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from node.planes import BareClient, PlaneCluster
from node.test_data_plane import append, session_of, story
from shardlog.protocol.coordination import Promote
from shardlog.protocol.failures import Illegal
from shardlog.protocol.history import EPOCH_MAX
from shardlog.protocol.messages import (
    Abort,
    AddFollower,
    Appended,
    BecomeLeader,
    Commit,
    Create,
    Destroy,
    Envelope,
    Fence,
    FenceAnswer,
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
    Snapshot,
    SnapshotRequest,
    StatusRequest,
    Trim,
)
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.protocol.shard import Shard, Status
from shardlog.protocol.upkeep import Upkeep
from shardlog.transport.connection import Connection, ConnectionLimits
from shardlog.transport.control_calls import RPCS
from shardlog.transport.endpoints import Inbox, connect
from shardlog.transport.failures import NotPermitted
from shardlog.transport.frame_messages import BETWEEN_REPLICAS, from_message
from shardlog.transport.handshake import Attach, Role, decode_attached, encode_attach

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
    """A connection that says that it is the node `name`."""

    def __init__(self, connection: Connection, inbox: Inbox, name: str) -> None:
        self.connection = connection
        self.inbox = inbox
        self.name = name

    async def attach(self, shard: str, node: str, incarnation: int, own: int = 1) -> int:
        """As replica `own` of the shard here; the incarnation of the one there."""
        attach = Attach(shard, self.name, own, node, incarnation)
        self.connection.send(encode_attach(1, attach))
        return decode_attached(await self.inbox.next())

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
        answer = await client.ask(append(session, number, b"%d" % number))
        assert isinstance(answer, Appended), answer
    return session


async def is_whole(cluster: PlaneCluster, leader: str, client: BareClient, session: int) -> None:
    """Every record is there, nobody was deposed, and the next one is taken."""
    result = await client.ask(Read(5, 0, 100))
    assert isinstance(result, ReadResult), result
    assert [entry.body for entry in result.entries] == [b"%d" % n for n in range(1, RECORDS + 1)]
    answer = await client.ask(append(session, RECORDS + 1, b"and one more"))
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


@pytest.mark.parametrize("message", [Register(1), Read(1, 0, 1), append(1, 1, b"x")], ids=str)
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
            while not leads(cluster, other):
                await asyncio.sleep(0.01)
        async with cluster.client(other, "orders") as after:
            assert isinstance(await after.ask(append(await session_of(after), 1, b"x")), Appended)


def leads(cluster: PlaneCluster, node: str) -> bool:
    shard = cluster.coordinator.shards["orders"]
    return shard.status is Status.STEADY and shard.leader is not None and shard.leader.node == node
