"""The control plane over a real gRPC connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from cluster_keys import KEY, OTHER_KEY
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from shardlog.protocol import messages
from shardlog.protocol.entry import Member
from shardlog.protocol.failures import StaleEpoch
from shardlog.protocol.messages import Envelope, Message
from shardlog.transport.control import (
    KEY_METADATA,
    ControlClient,
    ControlLimits,
    ControlServer,
    ControlTls,
)
from shardlog.transport.control_calls import CALLS, Addresses, Call, Chunk, encode_chunk, path_of
from shardlog.transport.failures import (
    DeadlineExceeded,
    MalformedMessage,
    Rejected,
    Unavailable,
    Unreachable,
    VersionMismatch,
)
from shardlog.transport.grpc_public_calls import CALLS_PER_PEER_MAX, READING_MAX
from transport.ends import certificates
from transport.http2 import UnfinishedCalls

LIMITS = ControlLimits()
PIECES = [b"a" * 1000, b"b", b"c" * 70_000]


def ask(message: Message) -> Envelope:
    return Envelope("orders", "operator", 0, "node-1", 5, message)


def back(asked: Envelope, message: Message) -> Envelope:
    return Envelope(asked.shard, asked.dst, asked.dst_incarnation, asked.src, 0, message)


class Node:
    """Answers some calls."""

    def __init__(self) -> None:
        self.asked: list[Envelope] = []
        self.addresses: Addresses = {}

    async def handle(self, envelope: Envelope, addresses: Addresses) -> Envelope | None:
        self.asked.append(envelope)
        self.addresses = addresses
        match envelope.message:
            case messages.Create():
                return back(envelope, messages.Created(5))
            case messages.Fence(epoch):
                return back(envelope, messages.Refused("Fence", epoch, StaleEpoch(epoch + 1)))
            case messages.StatusRequest():
                await asyncio.sleep(3600)
            case messages.Destroy():
                raise RuntimeError("a bug")
        return None

    async def fetch_snapshot(self, envelope: Envelope) -> AsyncIterator[bytes]:
        self.asked.append(envelope)
        for piece in PIECES:
            yield piece
        if envelope.shard == "large":
            yield b"l" * (LIMITS.chunk_bytes_max * 5 // 2)
        if envelope.shard == "broken":
            raise RuntimeError("a bug")


@asynccontextmanager
async def ends(
    node: Node, tls: ControlTls | None = None, calling: ControlTls | None = None
) -> AsyncIterator[tuple[ControlClient, str]]:
    control = ControlServer(node.handle, node.fetch_snapshot, LIMITS, tls, key=KEY, name="node-1")
    port = await control.start("127.0.0.1", 0)
    client = ControlClient(LIMITS, calling, KEY)
    try:
        yield client, f"127.0.0.1:{port}"
    finally:
        await client.close()
        await control.stop(0)


def test_calls_and_answers(run):
    async def story():
        node = Node()
        async with ends(node) as (client, address):
            asked = ask(messages.Create())
            where = {"n2": "127.0.0.1:7002"}
            answer = await client.call(address, asked, 5000, where)
            assert answer == back(asked, messages.Created(5))
            assert node.addresses == where
            refused = await client.call(address, ask(messages.Fence(7)), 5000)
            assert refused is not None
            assert refused.message == messages.Refused("Fence", 7, StaleEpoch(8))
            assert await client.call(address, ask(messages.Trim(7, 100)), 5000) is None
            assert [each.message for each in node.asked] == [
                messages.Create(), messages.Fence(7), messages.Trim(7, 100)
            ]  # fmt: skip
            assert node.asked[0] == asked

    run(story())


def test_no_answer_in_time(run):
    async def story():
        async with ends(Node()) as (client, address):
            with pytest.raises(DeadlineExceeded):
                await client.call(address, ask(messages.StatusRequest(1)), 50)

    run(story())


def test_nobody_there(run):
    async def story():
        async with ends(Node()) as (client, address):
            gone = address
        client = ControlClient(LIMITS, None, KEY)
        with pytest.raises(Unreachable):
            await client.call(gone, ask(messages.Create()), 2000)
        await client.close()

    run(story())


def test_a_bug_on_the_other_side_leaves_it_open_what_was_done(run, caplog):
    async def story():
        async with ends(Node()) as (client, address):
            with pytest.raises(Unavailable, match="a bug"):
                await client.call(address, ask(messages.Destroy()), 5000)

    run(story())


def test_no_call_of_the_control_plane(run):
    async def story():
        client = ControlClient(LIMITS, None, KEY)
        with pytest.raises(TypeError, match="Ack is no call"):
            await client.call("127.0.0.1:1", ask(messages.Ack(1, 2, 3, 4)), 50)

    run(story())


def test_nonsense_is_rejected(run, monkeypatch):
    async def story():
        async with ends(Node()) as (client, address):
            monkeypatch.setattr(Call, "encode", lambda self, envelope, addresses: b"\xff\xff")
            with pytest.raises(Rejected, match="INVALID_ARGUMENT"):
                await client.call(address, ask(messages.Create()), 5000)

    run(story())


def test_snapshots(run):
    async def story():
        async with ends(Node()) as (client, address):
            fetch = ask(messages.Fetch(1, (), 0, 100))
            found = [piece async for piece in client.fetch_snapshot(address, fetch, 5000)]
            assert found == PIECES

    run(story())


def test_large_pieces_are_cut(run):
    async def story():
        async with ends(Node()) as (client, address):
            fetch = Envelope("large", "a", 1, "node-1", 2, messages.Fetch(1, (), 0, 100))
            found = [piece async for piece in client.fetch_snapshot(address, fetch, 5000)]
            assert found[:3] == PIECES
            half = LIMITS.chunk_bytes_max // 2
            assert [len(piece) for piece in found[3:]] == [2 * half, 2 * half, half]

    run(story())


def test_a_snapshot_that_ends_too_early(run):
    async def story():
        async with ends(Node()) as (client, address):
            fetch = Envelope("broken", "a", 1, "node-1", 2, messages.Fetch(1, (), 0, 100))
            with pytest.raises(Unavailable):
                async for _ in client.fetch_snapshot(address, fetch, 5000):
                    pass

    run(story())


def test_a_damaged_snapshot(run, monkeypatch):
    def damaged(chunk: Chunk) -> bytes:
        wrong = chunk.position == 1000
        return encode_chunk(chunk._replace(checksum=chunk.checksum ^ wrong))

    monkeypatch.setattr("shardlog.transport.control.encode_chunk", damaged)

    async def story():
        async with ends(Node()) as (client, address):
            pieces = client.fetch_snapshot(address, ask(messages.Fetch(1, (), 0, 1)), 5000)
            assert await anext(pieces) == PIECES[0]
            with pytest.raises(MalformedMessage, match="at byte 1000"):
                await anext(pieces)

    run(story())


def test_health(run):
    async def story():
        async with ends(Node()) as (_, address), grpc.aio.insecure_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            for name in ("", "shardlog.v1.Control"):
                answer = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
                assert answer.status == health_pb2.HealthCheckResponse.SERVING

    run(story())


def test_reflection(run):
    async def story():
        async with ends(Node()) as (_, address), grpc.aio.insecure_channel(address) as channel:
            stub = reflection_pb2_grpc.ServerReflectionStub(channel)
            request = reflection_pb2.ServerReflectionRequest(list_services="")
            proof = ((KEY_METADATA, KEY.call_proof("node-1")),)
            stream = stub.ServerReflectionInfo(iter([request]), timeout=5, metadata=proof)
            answer = await stream.read()
            names = {each.name for each in answer.list_services_response.service}
            assert {"shardlog.v1.Control", "grpc.health.v1.Health"} <= names
            stream.cancel()

    run(story())


METADATA = {
    "none": (),
    "of another key": ((KEY_METADATA, OTHER_KEY.call_proof("node-1")),),
    "for another node": ((KEY_METADATA, KEY.call_proof("node-2")),),
    "two": ((KEY_METADATA, KEY.call_proof("node-1")), (KEY_METADATA, "x")),
    "no text": ((KEY_METADATA, "~"),),
}
PATHS = [
    *(call.path for call in CALLS.values()),
    path_of("FetchSnapshot"),
    path_of("StatusOfMany"),
    path_of("News"),
    path_of("NoSuchCall"),
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
]


@pytest.mark.parametrize("metadata", METADATA)
def test_S02_every_call_but_health_needs_a_proof_of_the_key(run, metadata: str):
    async def story():
        node = Node()
        async with ends(node) as (_, address), grpc.aio.insecure_channel(address) as channel:
            for path in PATHS:
                call = channel.unary_unary(path)(b"", timeout=5, metadata=METADATA[metadata])
                assert await call.code() == grpc.StatusCode.UNAUTHENTICATED, path
                assert await call.details() == (
                    "this is node-1, and the call has no proof of its cluster key"
                )
        assert not node.asked

    run(story())


def test_S09_who_asks_for_health_and_never_ends_fills_no_memory(run):
    """A request of 1 MiB each, all but its last byte: only a few are taken at once."""
    size, number = 1 << 20, 32

    async def story():
        async with ends(Node()) as (_, address):
            calls = await UnfinishedCalls.to(address)
            for _ in range(number):
                calls.begin("/grpc.health.v1.Health/Check", size)
            most = 0
            while len(calls.ended) < number:
                most = max(most, calls.pending.total())
                await asyncio.sleep(0.01)
            await calls.close()
            assert most < (READING_MAX + 4) * size
            async with grpc.aio.insecure_channel(address) as channel:
                asked = health_pb2.HealthCheckRequest()
                answer = await health_pb2_grpc.HealthStub(channel).Check(asked)
                assert answer.status == health_pb2.HealthCheckResponse.SERVING

    run(story())


def test_S09_watches_are_bounded_and_have_short_names(run):
    async def story():
        async with ends(Node()) as (_, address), grpc.aio.insecure_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            asked = health_pb2.HealthCheckRequest()
            watches = [stub.Watch(asked) for _ in range(CALLS_PER_PEER_MAX)]
            for watch in watches:
                assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            assert await stub.Watch(asked).code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            watches[0].cancel()
            long = health_pb2.HealthCheckRequest(service="n" * 256)
            codes = set[grpc.StatusCode]()
            while grpc.StatusCode.INVALID_ARGUMENT not in codes:  # once the other is gone
                codes.add(await stub.Watch(long).code())
            assert codes <= {
                grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED
            }  # fmt: skip

    run(story())


def tls(kind: str, *, mutual: bool = True) -> ControlTls:
    made = certificates()
    authority = made.authority.cert_pem.bytes()
    if kind == "stranger":
        return ControlTls(authority)
    pair = made.node if kind == "node" else made.client
    chain = b"".join(each.bytes() for each in pair.cert_chain_pems)
    return ControlTls(authority, chain, pair.private_key_pem.bytes(), mutual)


@pytest.mark.parametrize("mutual", [False, True])
def test_tls(run, mutual):
    async def story():
        async with ends(Node(), tls("node", mutual=mutual), tls("client")) as (client, address):
            assert await client.call(address, ask(messages.Create()), 5000)

    run(story())


def test_a_caller_without_a_certificate(run):
    async def story():
        async with ends(Node(), tls("node"), tls("stranger")) as (client, address):
            with pytest.raises(Unavailable):
                await client.call(address, ask(messages.Create()), 2000)

    run(story())


def test_channels_are_kept_and_forgotten(run):
    async def story():
        async with ends(Node()) as (client, address):
            await client.call(address, ask(messages.Create()), 5000)
            channel = client._channel(address)
            await client.call(address, ask(messages.Create()), 5000)
            assert client._channel(address) is channel
            await client.forget(address)
            await client.forget(address)
            assert await client.call(address, ask(messages.Create()), 5000)

    run(story())


def test_members_travel(run):
    async def story():
        node = Node()
        async with ends(node) as (client, address):
            message = messages.PauseWrites(3, Member("node-2", 9))
            assert await client.call(address, ask(message), 5000) is None
            assert node.asked[0].message == message

    run(story())


def test_another_version(run, monkeypatch):
    monkeypatch.setattr("shardlog.transport.control_calls.CONTROL_VERSION", 2)

    async def story():
        async with ends(Node()) as (client, address):
            call = CALLS[messages.Create]
            data = call.encode(ask(messages.Create()), {})
            monkeypatch.undo()
            monkeypatch.setattr(Call, "encode", lambda self, envelope, addresses: data)
            with pytest.raises(VersionMismatch, match="version 2 came, this side speaks 1"):
                await client.call(address, ask(messages.Create()), 5000)

    run(story())
