"""Two ends of a connection, for tests."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

import trustme

from shardlog.transport.connection import Connection, ConnectionLimits
from shardlog.transport.endpoints import Inbox, Listener, connect, listen
from shardlog.transport.failures import TransportFailure
from shardlog.transport.frames import Frame
from shardlog.transport.handshake import Role

LIMITS = ConnectionLimits()


def wall_ns() -> int:
    return 1_700_000_000_000_000_000


class Recorder(Inbox):
    """An inbox that remembers what else it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.connections: list[Connection] = []
        self.failures: list[TransportFailure | None] = []

    def opened(self, connection: Connection) -> None:
        super().opened(connection)
        self.connections.append(connection)

    def lost(self, connection: Connection, failure: TransportFailure | None) -> None:
        super().lost(connection, failure)
        self.failures.append(failure)


class Echo(Recorder):
    """Sends back whatever comes, as it came."""

    def received(self, connection: Connection, frames: list[Frame]) -> None:
        for frame in frames:
            connection.send([_head(frame), frame.payload])


def _head(frame: Frame) -> bytes:
    from shardlog.transport.frames import HEAD

    return HEAD.pack(len(frame.payload), frame.type, frame.flags, frame.channel)


@asynccontextmanager
async def node(
    receiver: type[Recorder] | Recorder = Recorder,
    limits: ConnectionLimits = LIMITS,
    tls: ssl.SSLContext | None = None,
    connections_max: int = 100,
) -> AsyncIterator[Listener]:
    listener = await listen(
        "127.0.0.1",
        0,
        name="node-1",
        receiver=receiver if isinstance(receiver, type) else lambda: receiver,
        limits=limits,
        wall_ns=wall_ns,
        connections_max=connections_max,
        tls=tls,
    )
    try:
        yield listener
    finally:
        await listener.close()


async def client(
    listener: Listener,
    receiver: Inbox,
    limits: ConnectionLimits = LIMITS,
    tls: ssl.SSLContext | None = None,
    timeout_ms: int = 10_000,
) -> Connection:
    return await connect(
        *listener.address,
        name="client-1",
        role=Role.CLIENT,
        receiver=receiver,
        limits=limits,
        wall_ns=wall_ns,
        timeout_ms=timeout_ms,
        tls=tls,
    )


@asynccontextmanager
async def raw(
    listener: Listener,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A plain stream, for those who misbehave."""
    reader, writer = await asyncio.open_connection(*listener.address)
    try:
        yield reader, writer
    finally:
        writer.close()
        try:
            await writer.wait_closed()
        except ConnectionError:
            writer.transport.abort()


class Certificates:
    """One authority, a certificate for nodes and one for clients."""

    def __init__(self) -> None:
        self.authority = trustme.CA()
        self.node = self.authority.issue_cert("127.0.0.1", "localhost", "node-1")
        self.client = self.authority.issue_cert("client-1")

    def node_context(self, *, mutual: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.node.configure_cert(context)
        self.authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED if mutual else ssl.CERT_NONE
        return context

    def client_context(self, *, known: bool = True) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if known:
            self.client.configure_cert(context)
        return context


@cache
def certificates() -> Certificates:
    return Certificates()
