"""Bad input on the data plane of a real node: random, mutated, oversized, truncated, half-open."""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.attacked import CHANNEL, Attacked, goodbyes, greeting, joined, received, understood
from fuzz.mutation import ATTACH, BODY, NOBODYS, conversations
from shardlog.checksum import seal_body
from shardlog.protocol.failures import Illegal
from shardlog.protocol.messages import ClientRefused
from shardlog.transport.frame_messages import to_message
from shardlog.transport.frames import FRAME_BYTES_MAX, HEAD, FrameType, encode_append
from shardlog.transport.handshake import Reason, Role, decode_goodbye

FIXED = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
HALF_OPEN = 15


@FIXED
@given(st.binary(max_size=4096))
def test_random_bytes(node: Attacked, data: bytes):
    understood(node.told("data", data))
    node.serves()


@FIXED
@given(st.binary(max_size=4096), st.sampled_from(Role))
def test_random_bytes_after_a_greeting(node: Attacked, data: bytes, role: Role):
    understood(node.told("data", data, role))
    node.serves()


@FIXED
@given(conversations())
def test_mutated_frames(node: Attacked, data: bytes):
    understood(node.told("data", data))
    node.serves()


def test_every_truncation_of_a_conversation(node: Attacked):
    whole = greeting() + joined(ATTACH[Role.CLIENT])
    whole += joined(encode_append(CHANNEL, NOBODYS, 1, 1, seal_body(BODY), BODY))
    for length in range(0, len(whole), 3):
        understood(node.told("data", whole[:length]))
    node.serves()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (HEAD.pack(0xFFFFFFFF, FrameType.HELLO, 0, 0), Reason.TOO_LARGE),
        (HEAD.pack(5000, FrameType.HELLO, 0, 0), Reason.TOO_LARGE),
        (greeting() + HEAD.pack(5000, FrameType.APPEND, 0, 1), Reason.TOO_LARGE),
        (HEAD.pack(1, FrameType.HELLO, 0, 0) + b"x", Reason.MALFORMED),
        (greeting().replace(b"SHDL", b"HTTP"), Reason.MALFORMED),
        (greeting().replace(b"SHDL\x01\x01", b"SHDL\x63\x63"), Reason.VERSION),
    ],
)
def test_a_bad_greeting_is_told_why(node: Attacked, data: bytes, reason: Reason):
    """The other side is still open when it is told, so nothing can be lost by a reset."""
    with node.connected("data") as made:
        made.sendall(data)
        (goodbye,) = goodbyes(received(made))
    assert decode_goodbye(goodbye).reason is reason
    node.serves()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (HEAD.pack(FRAME_BYTES_MAX + 1, FrameType.APPEND, 0, 1), Reason.TOO_LARGE),
        (HEAD.pack(0xFFFFFFFF, FrameType.ENTRIES, 0, 1), Reason.TOO_LARGE),
        (HEAD.pack(0, 250, 0, 1), Reason.MALFORMED),
        (HEAD.pack(8, FrameType.REGISTER, 0x80, 1) + bytes(8), Reason.MALFORMED),
        (HEAD.pack(8, FrameType.REGISTER, 0, 7) + bytes(8), Reason.MALFORMED),
        (greeting(), Reason.MALFORMED),
    ],
    ids=["long", "very long", "no type", "no flag", "no channel", "hello again"],
)
@pytest.mark.parametrize("role", Role)
def test_a_bad_frame_is_told_why(node: Attacked, role: Role, data: bytes, reason: Reason):
    with node.greeted(role) as made:
        made.sendall(data)
        (goodbye,) = goodbyes(received(made))
    assert decode_goodbye(goodbye).reason is reason
    node.serves()


def test_a_batch_over_the_limit_is_refused_and_its_connection_goes_on(node: Attacked):
    body = bytes((4 << 20) + 1)
    with node.greeted() as made:
        made.sendall(joined(ATTACH[Role.CLIENT]))
        made.sendall(joined(encode_append(CHANNEL, NOBODYS, 1, 1, seal_body(body), body)))
        made.shutdown(socket.SHUT_WR)
        frames = understood(received(made))
    refused = [to_message(frame) for frame in frames if frame.type == FrameType.REFUSED]
    assert [type(it.refusal) for it in refused if isinstance(it, ClientRefused)] == [Illegal]


def test_half_open_connections_are_ended_by_the_node(node: Attacked):
    """They say something and then nothing, and never close; the node does, with a goodbye."""
    half_a_frame = HEAD.pack(1 << 20, FrameType.APPEND, 0, CHANNEL) + bytes(1000)
    ungreeted = [b"", greeting()[:5], greeting()[:-1]]
    greeted = [b"", half_a_frame, joined(ATTACH[Role.CLIENT])]
    with ExitStack() as stack:
        opened = []
        for said in ungreeted * HALF_OPEN:
            opened.append(stack.enter_context(node.connected("data")))
            opened[-1].sendall(said)
        for said in greeted * HALF_OPEN:
            opened.append(stack.enter_context(node.greeted()))
            opened[-1].sendall(said)
        node.serves()
        for made in opened:
            (goodbye,) = goodbyes(received(made))
            assert decode_goodbye(goodbye).reason is Reason.TIMEOUT
        node.serves()


def test_resets_in_the_middle(node: Attacked):
    """SO_LINGER 0: what was on its way is thrown away on both sides."""
    whole = greeting() + joined(ATTACH[Role.CLIENT])
    for length in range(len(whole)):
        with node.connected("data") as made:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            made.sendall(whole[:length])
    node.serves()
