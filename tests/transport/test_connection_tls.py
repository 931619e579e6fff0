"""TLS on the data plane, one-sided and mutual."""

import pytest

from shardlog.transport import frames
from shardlog.transport.endpoints import Inbox
from shardlog.transport.failures import NotPermitted, TransportFailure, Unreachable
from transport.ends import Echo, certificates, client, node


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
