"""Connections of the data plane: greeting, sending, ending; on both loops."""

import asyncio
import socket
import time
from dataclasses import replace
from typing import cast

import pytest

from shardlog.transport import frames, handshake
from shardlog.transport.connection import (
    PONGS_UNSENT_MAX,
    Connection,
    ConnectionLimits,
    State,
)
from shardlog.transport.endpoints import Inbox, connect
from shardlog.transport.failures import (
    ConnectionRefused,
    DeadlineExceeded,
    NotPermitted,
    SilentConnection,
    Unreachable,
    VersionMismatch,
)
from shardlog.transport.frames import FrameType
from shardlog.transport.handshake import Hello, Pong, Reason, Role
from transport.ends import LIMITS, Echo, Recorder, client, node, raw


def test_greeting(run):
    async def story():
        host = Recorder()
        async with node(host, ConnectionLimits(frame_bytes_max=70_000)) as listener:
            connection = await client(listener, Inbox())
            assert (connection.version, connection.name) == (1, "node-1")
            assert connection.frame_bytes_max == 70_000
            (accepted,) = host.connections
            assert accepted.hello == Hello(Role.CLIENT, "client-1", frames.FRAME_BYTES_MAX)
            assert listener.connections == {accepted}
            connection.close()
            await connection.closed()
            await accepted.closed()
            assert not listener.connections
            assert connection.failure is None
            (failure,) = host.failures
            assert isinstance(failure, Unreachable)

    run(story())


def test_frames_travel_in_order(run):
    async def story():
        async with node(Echo) as listener:
            inbox = Inbox()
            connection = await client(listener, inbox)
            bodies = [bytes([number % 251]) * (number * 37 % 5000) for number in range(300)]
            for number, body in enumerate(bodies):
                connection.send(frames.encode_append(number, 1, number, 1, 2, body))
            for number, body in enumerate(bodies):
                frame = await inbox.next()
                assert (frame.type, frame.channel) == (FrameType.APPEND, number)
                assert frame.payload[32:] == body
            connection.close()
            await connection.closed()

    run(story())


def test_a_large_frame(run):
    async def story():
        async with node(Echo) as listener:
            inbox = Inbox()
            connection = await client(listener, inbox)
            body = bytes(range(256)) * 40_000
            connection.send(frames.encode_append(1, 1, 1, 1, 2, body))
            assert (await inbox.next()).payload[32:] == body
            connection.close()
            await connection.closed()

    run(story())


def test_what_was_sent_before_closing_arrives(run):
    async def story():
        host = Recorder()
        async with node(host) as listener:
            connection = await client(listener, Inbox())
            connection.send(frames.encode_register(1, 7))
            connection.close()
            assert (await host.next()).type == FrameType.REGISTER
            with pytest.raises(Unreachable):
                await host.next()

    run(story())


def test_sending_after_the_end(run):
    async def story():
        async with node() as listener:
            connection = await client(listener, Inbox())
            connection.close()
            with pytest.raises(Unreachable):
                connection.send(frames.encode_register(1, 7))
            await connection.closed()
            with pytest.raises(Unreachable):
                await connection.send_when_writable(frames.encode_register(1, 7))
            connection.close()
            connection.ping()

    run(story())


def test_a_pong_tells_the_time(run):
    async def story():
        async with node() as listener:
            inbox = Inbox()
            connection = await client(listener, inbox)
            connection.ping()
            pong = handshake.decode_pong(await inbox.next())
            assert pong.wall_ns == 1_700_000_000_000_000_000
            assert 0 < pong.echo_ns <= connection.loop.time() * 1e9
            connection.close()
            await connection.closed()

    run(story())


def test_S14_pings_of_one_who_does_not_read_are_not_answered_without_end(run):
    pings = b"".join(handshake.encode_ping(1)) * 10_000
    pong = b"".join(handshake.encode_pong(Pong(1, 1)))

    async def story():
        limits = replace(LIMITS, silence_ms=60_000)
        async with node(limits=limits) as listener, raw(listener) as (_, writer):
            writer.write(b"".join(handshake.encode_hello(Hello(Role.CLIENT, "rude", 1 << 20))))
            await asyncio.sleep(0.1)
            cast(asyncio.Transport, writer.transport).pause_reading()
            for _ in range(100):
                writer.write(pings)
                await writer.drain()
            (connection,) = listener.connections
            assert connection.outgoing_bytes <= PONGS_UNSENT_MAX * len(pong) + 10_000 * len(pong)

    run(story())


def test_nobody_listens(run):
    async def story():
        async with node() as listener:
            address = listener
        with pytest.raises((Unreachable, IndexError)):
            await client(address, Inbox())

    run(story())


def test_somebody_who_does_not_answer(run):
    async def story():
        async def silent(reader, writer):
            await reader.read()
            writer.close()

        listening = await asyncio.start_server(silent, "127.0.0.1", 0)

        class Place:
            address = listening.sockets[0].getsockname()[:2]

        with pytest.raises(DeadlineExceeded, match="did not answer in 50 ms"):
            await client(Place(), Inbox(), timeout_ms=50)  # type: ignore[arg-type]
        listening.close()
        await listening.wait_closed()

    run(story())


def test_no_version_in_common(run):
    async def story():
        async with node() as listener, raw(listener) as (reader, writer):
            hello = Hello(Role.CLIENT, "tomorrow", 100, 2, 3)
            writer.writelines(handshake.encode_hello(hello))
            (frame,) = frames.Decoder().feed(await reader.read())
            goodbye = handshake.decode_goodbye(frame)
            assert goodbye.reason == Reason.VERSION
            assert "tomorrow speaks versions 2 to 3, this side 1 to 1" in goodbye.text

    run(story())


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (Reason.VERSION, VersionMismatch),
        (Reason.NOT_PERMITTED, NotPermitted),
        (Reason.OVERLOADED, ConnectionRefused),
        (Reason.CLOSING, Unreachable),
        (Reason.TIMEOUT, SilentConnection),
    ],
)
def test_a_goodbye_has_a_type(run, reason, kind):
    class Farewell(Recorder):
        def opened(self, connection: Connection) -> None:
            super().opened(connection)
            connection.close(reason, "so it is")

    async def story():
        async with node(Farewell) as listener:
            with pytest.raises(kind, match="so it is"):
                await client(listener, Inbox())

    run(story())


def test_an_owner_may_reject(run):
    class Strict(Recorder):
        def opened(self, connection: Connection) -> None:
            raise NotPermitted(f"{connection.name} is not welcome")

    async def story():
        async with node(Strict) as listener:
            with pytest.raises(NotPermitted, match="client-1 is not welcome"):
                await client(listener, Inbox())

    run(story())


def test_too_many_connections(run):
    async def story():
        async with node(connections_max=1) as listener:
            first = await client(listener, Inbox())
            with pytest.raises(ConnectionRefused, match="1 connections are open"):
                await client(listener, Inbox())
            first.close()
            await first.closed()

    run(story())


def test_a_listener_that_closes_says_goodbye(run):
    async def story():
        host, inbox = Recorder(), Recorder()
        async with node(host) as listener:
            connection = await client(listener, inbox)
            await listener.close("going down")
            await connection.closed()
        assert connection.state is State.CLOSED
        assert "going down" in str(connection.failure)
        assert inbox.failures == [connection.failure]

    run(story())


@pytest.mark.parametrize("turns", range(8))
def test_a_listener_that_closes_does_not_wait_for_who_just_arrives(run, turns):
    async def story():
        async with node(Echo) as listener:
            callers = [socket.create_connection(listener.address) for _ in range(3)]
            for _ in range(turns):
                await asyncio.sleep(0)
            async with asyncio.timeout(10):
                await listener.close()
            for caller in callers:
                caller.close()

    run(story())


def test_B1_a_connect_that_times_out_while_the_loop_stands_still_fails_as_documented(run):
    async def story():
        async with node() as listener:
            loop = asyncio.get_running_loop()
            for turns in range(8):
                # The loop stands still for longer than the connection may take, at one stage of it
                # after the other: what uvloop has closed by then takes no goodbye.
                connecting = loop.create_task(client(listener, Inbox(), timeout_ms=20))
                for _ in range(turns):
                    await asyncio.sleep(0)
                time.sleep(0.05)
                try:
                    connection = await connecting
                except DeadlineExceeded:
                    continue
                connection.close()
                await connection.closed()

    run(story())


def test_B1_a_host_name_that_is_none_is_unreachable(run):
    async def story():
        async with node() as listener:
            listener_port = listener.address[1]
            with pytest.raises(Unreachable):
                await connect(
                    "a" * 70,
                    listener_port,
                    name="client-1",
                    role=Role.CLIENT,
                    receiver=Inbox(),
                    limits=ConnectionLimits(),
                    wall_ns=time.time_ns,
                    timeout_ms=10_000,
                )

    run(story())
