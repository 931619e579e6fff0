"""TLS on the data plane, one-sided and mutual."""

import asyncio
from dataclasses import replace

import pytest

from shardlog.transport import frames
from shardlog.transport.endpoints import Inbox
from shardlog.transport.failures import NotPermitted, TransportFailure, Unreachable
from transport.ends import LIMITS, Echo, certificates, client, node


@pytest.mark.parametrize("mutual", [False, True])
def test_frames_travel(run, mutual):
    async def story():
        async with node(Echo, tls=certificates().node_context(mutual=mutual)) as listener:
            inbox = Inbox()
            connection = await client(listener, inbox, tls=certificates().client_context())
            body = bytes(range(256)) * 4000
            for number in range(5):
                connection.send(frames.encode_append(1, 1, number, 1, 2, body))
            for _ in range(5):
                assert (await inbox.next()).payload[32:] == body
            connection.close()
            await connection.closed()

    run(story())


def test_a_client_without_a_certificate(run):
    async def story():
        async with node(tls=certificates().node_context(mutual=True)) as listener:
            context = certificates().client_context(known=False)
            with pytest.raises((NotPermitted, Unreachable)):
                await client(listener, Inbox(), tls=context)

    run(story())


def test_a_node_that_nobody_vouches_for(run):
    async def story():
        other = type(certificates())()
        async with node(tls=other.node_context()) as listener:
            with pytest.raises(NotPermitted, match="certificate verify failed"):
                await client(listener, Inbox(), tls=certificates().client_context())

    run(story())


def test_plain_where_tls_is_due(run):
    async def story():
        async with node(tls=certificates().node_context()) as listener:
            with pytest.raises(TransportFailure):
                await client(listener, Inbox(), timeout_ms=2000)

    run(story())


def test_S18_a_handshake_that_does_not_come_is_not_waited_for(run):
    async def story():
        limits = replace(LIMITS, greeting_ms=200)
        async with node(tls=certificates().node_context(), limits=limits) as listener:
            reader, writer = await asyncio.open_connection(*listener.address)
            assert await reader.read() == b""
            assert listener.refused == 1
            writer.close()

    run(story())


def test_S18_connections_count_before_their_handshake(run):
    async def story():
        limits = replace(LIMITS, greeting_ms=60_000)
        context = certificates().node_context()
        async with node(tls=context, limits=limits, connections_max=2) as listener:
            silent = [await asyncio.open_connection(*listener.address) for _ in range(2)]
            reader, writer = await asyncio.open_connection(*listener.address)
            assert await reader.read() == b""
            writer.close()
            silent[0][1].close()
            while listener.refused < 2:
                await asyncio.sleep(0.01)
            connection = await client(listener, Inbox(), tls=certificates().client_context())
            connection.close()
            await connection.closed()
            silent[1][1].close()

    run(story())
