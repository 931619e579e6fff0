"""Connections under pressure: those who do not read, do not speak, or speak nonsense."""

import asyncio
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardlog.transport import frames, handshake
from shardlog.transport.connection import Connection, ConnectionLimits
from shardlog.transport.endpoints import Inbox, Listener
from shardlog.transport.failures import (
    FrameTooLarge,
    MalformedFrame,
    OutgoingFull,
    SilentConnection,
)
from shardlog.transport.frame_messages import to_message
from shardlog.transport.frames import HEAD, FrameType
from shardlog.transport.handshake import Goodbye, Hello, Reason, Role
from transport.ends import Recorder, client, node, raw

HELLO = b"".join(handshake.encode_hello(Hello(Role.CLIENT, "stranger", 1 << 20)))
SMALL = ConnectionLimits(outgoing_bytes_max=256 << 10, incoming_bytes_max=64 << 10)
BODY = b"b" * (32 << 10)


def has_room(connection: Connection) -> bool:
    return connection.writable


class Sink(Recorder):
    """Holds everything and never lets go."""

    def received(self, connection, frames):
        connection.hold(sum(len(frame.payload) for frame in frames))


def test_one_who_does_not_read_does_not_grow_our_memory(run):
    async def story():
        async with node(Sink, SMALL) as listener:
            connection = await client(listener, Inbox(), SMALL)
            for _ in range(10_000):
                if not connection.writable:
                    await asyncio.sleep(0.01)
                if not connection.writable:
                    break
                connection.send(frames.encode_append(1, 1, 1, 1, 1, BODY))
            with pytest.raises(OutgoingFull):
                connection.send(frames.encode_append(1, 1, 1, 1, 1, BODY))
            assert connection.outgoing_bytes <= SMALL.outgoing_bytes_max + 2 * (len(BODY) + 40)
            connection.transport.abort()
            await connection.closed()

    run(story())


def test_waiting_for_room(run):
    async def story():
        host = Recorder()
        async with node(host, SMALL) as listener:
            connection = await client(listener, Inbox(), SMALL)

            async def produce():
                for number in range(200):
                    await connection.send_when_writable(
                        frames.encode_append(1, 1, number, 1, 1, BODY)
                    )

            producing = asyncio.create_task(produce())
            for number in range(200):
                message = to_message(await host.next())
                assert message.request == number  # type: ignore[attr-defined]
            await producing
            connection.close()
            await connection.closed()

    run(story())


def test_an_owner_is_told_when_there_is_room_again(run):
    class Filler(Inbox):
        """Sends as long as there is room, and goes on when it is told."""

        left = 200
        times = 0

        def opened(self, connection):
            super().opened(connection)
            self.drained(connection)

        def drained(self, connection):
            self.times += 1
            while self.left and connection.writable:
                self.left -= 1
                connection.send(frames.encode_append(1, 1, self.left, 1, 1, BODY))

    async def story():
        host, filler = Recorder(), Filler()
        async with node(host, SMALL) as listener:
            connection = await client(listener, filler, SMALL)
            for _ in range(200):
                await host.next()
            assert filler.times > 10
            connection.close()
            await connection.closed()

    run(story())


def test_those_who_wait_for_room_learn_of_the_end(run):
    async def story():
        async with node(Sink, SMALL) as listener:
            connection = await client(listener, Inbox(), SMALL)

            async def produce():
                while True:
                    await connection.send_when_writable(frames.encode_append(1, 1, 1, 1, 1, BODY))

            producing = asyncio.create_task(produce())
            while connection.writable or not connection._waiting:
                await asyncio.sleep(0.001)
            connection.transport.abort()
            with pytest.raises(Exception, match="closed"):
                await producing

    run(story())


def test_reading_goes_on_when_bytes_are_released(run):
    async def story():
        host = Sink()
        async with node(host, SMALL) as listener:
            connection = await client(listener, Inbox(), SMALL)
            (accepted,) = host.connections
            while has_room(connection):
                connection.send(frames.encode_append(1, 1, 1, 1, 1, BODY))
                await asyncio.sleep(0.001)
            held = accepted._held_bytes
            assert SMALL.incoming_bytes_max < held
            while not has_room(connection):
                accepted.release(accepted._held_bytes)
                await asyncio.sleep(0.001)
            connection.transport.abort()
            await connection.closed()

    run(story())


# --- silence -------------------------------------------------------------------------------------

HASTY = ConnectionLimits(greeting_ms=50)
WATCHFUL = ConnectionLimits(ping_after_ms=20, silence_ms=100)


async def goodbye_of(reader: asyncio.StreamReader) -> Goodbye:
    """The last frame before the end of the stream."""
    found = frames.Decoder().feed(await reader.read())
    return handshake.decode_goodbye(found[-1])


def test_no_greeting(run):
    async def story():
        async with node(limits=HASTY) as listener, raw(listener) as (reader, _):
            assert (await goodbye_of(reader)).reason == Reason.TIMEOUT

    run(story())


def test_half_a_greeting(run):
    async def story():
        async with node(limits=HASTY) as listener, raw(listener) as (reader, writer):
            writer.write(HELLO[:10])
            assert (await goodbye_of(reader)).reason == Reason.TIMEOUT

    run(story())


def test_a_half_open_connection_is_given_up(run):
    async def story():
        host = Recorder()
        async with node(host, WATCHFUL) as listener, raw(listener) as (reader, writer):
            writer.write(HELLO)
            found = frames.Decoder().feed(await reader.read())
            kinds = [frame.type for frame in found]
            assert kinds[0] == FrameType.WELCOME
            assert FrameType.PING in kinds
            assert kinds[-1] == FrameType.GOODBYE
            (failure,) = host.failures
            assert isinstance(failure, SilentConnection)

    run(story())


def test_an_idle_connection_stays(run):
    async def story():
        async with node(limits=WATCHFUL) as listener:
            connection = await client(listener, Inbox(), WATCHFUL)
            await asyncio.sleep(0.3)
            assert connection.failure is None
            connection.send(frames.encode_register(1, 1))
            connection.close()
            await connection.closed()

    run(story())


def test_one_who_pauses_reading_is_not_taken_for_lost(run):
    async def story():
        host = Recorder()
        async with node(host, WATCHFUL) as listener:
            connection = await client(listener, Inbox(), WATCHFUL)
            (accepted,) = host.connections
            accepted.hold(WATCHFUL.incoming_bytes_max + 1)
            await asyncio.sleep(0.3)
            assert connection.failure is None
            assert accepted.failure is None
            accepted.release(WATCHFUL.incoming_bytes_max + 1)
            connection.close()
            await connection.closed()

    run(story())


def test_a_standstill_of_our_own_is_no_silence(run):
    async def story():
        async with node(limits=WATCHFUL) as listener:
            connection = await client(listener, Inbox(), WATCHFUL)
            for _ in range(3):
                time.sleep(0.3)
                await asyncio.sleep(0.05)
            assert connection.failure is None
            assert len(listener.connections) == 1
            connection.close()
            await connection.closed()

    run(story())


# --- nonsense ------------------------------------------------------------------------------------


async def answer_to(listener: Listener, data: bytes) -> Goodbye:
    async with raw(listener) as (reader, writer):
        writer.write(data)
        return await goodbye_of(reader)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: shardlog\r\n\r\n", Reason.MALFORMED),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64), Reason.MALFORMED),
        (HEAD.pack(frames.GREETING_BYTES_MAX + 1, 1, 0, 0), Reason.TOO_LARGE),
        (b"".join(handshake.encode_ping(1)), Reason.MALFORMED),
        (HELLO + HEAD.pack(1 << 31, FrameType.MESSAGE, 0, 0), Reason.TOO_LARGE),
        (HELLO + HEAD.pack(0, 99, 0, 0), Reason.MALFORMED),
        (HELLO + HELLO, Reason.MALFORMED),
    ],
)
def test_nonsense_is_told(run, data, reason):
    async def story():
        async with node() as listener:
            assert (await answer_to(listener, data)).reason == reason
            assert not listener.connections

    run(story())


def test_failures_have_types(run):
    async def story():
        host = Recorder()
        async with node(host) as listener:
            await answer_to(listener, HELLO + HEAD.pack(0, 99, 0, 0))
            async with raw(listener) as (reader, writer):
                writer.write(HELLO)
                await reader.readexactly(8)
                writer.write(HEAD.pack(1 << 31, FrameType.MESSAGE, 0, 0))
                await reader.read()
        assert [type(each) for each in host.failures] == [MalformedFrame, FrameTooLarge]

    run(story())


def test_an_owner_may_call_a_frame_malformed(run):
    class Reader(Recorder):
        def received(self, connection, frames):
            for frame in frames:
                to_message(frame)

    async def story():
        async with node(Reader) as listener:
            bad = HELLO + b"".join(frames.encode(FrameType.MESSAGE, 1, b"\xff\xff"))
            assert (await answer_to(listener, bad)).reason == Reason.MALFORMED

    run(story())


def test_random_streams_leave_nothing_behind(run):
    async def story(streams: list[bytes]) -> None:
        async with node() as listener:
            for data in streams:
                async with raw(listener) as (reader, writer):
                    writer.write(data)
                    writer.write_eof()
                    await reader.read()
            connection = await client(listener, Inbox())
            assert len(listener.connections) == 1
            connection.close()
            await connection.closed()

    @settings(max_examples=20, deadline=None)
    @given(st.lists(st.tuples(st.booleans(), st.binary(max_size=100)), max_size=5))
    def random_streams(drawn):
        run(story([HELLO * greeted + data for greeted, data in drawn]))

    random_streams()
