"""Frames about the connection itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardlog.transport import handshake
from shardlog.transport.failures import MalformedFrame, NotPermitted, VersionMismatch
from shardlog.transport.frames import FIXED, Buffer, Decoder, Frame, FrameType, encode
from shardlog.transport.handshake import Attach, Goodbye, Hello, Pong, Reason, Role, Welcome
from transport.values import TEXT, U32, U64

U8 = st.integers(0, 255)
NONCE = st.binary(min_size=32, max_size=32)

DECODERS = {
    FrameType.HELLO: handshake.decode_hello,
    FrameType.WELCOME: lambda frame: handshake.decode_welcome(frame, Role.NODE),
    FrameType.GOODBYE: handshake.decode_goodbye,
    FrameType.ATTACH: handshake.decode_attach,
    FrameType.ATTACHED: handshake.decode_attached,
    FrameType.PING: handshake.decode_ping,
    FrameType.PROOF: handshake.decode_proof,
    FrameType.PONG: handshake.decode_pong,
}


def frame_of(buffers: list[Buffer]) -> Frame:
    (frame,) = Decoder().feed(b"".join(buffers))
    return frame


@given(st.builds(Hello, st.sampled_from(Role), TEXT, U32, U8, U8), NONCE)
def test_hello(hello, nonce):
    hello = hello._replace(nonce=nonce if hello.role is Role.NODE else b"")
    assert handshake.decode_hello(frame_of(handshake.encode_hello(hello))) == hello


@given(st.builds(Welcome, U8, TEXT, U32), st.sampled_from(Role), NONCE)
def test_welcome(welcome, role, nonce):
    proven = (nonce, nonce[::-1]) if role is Role.NODE else (b"", b"")
    welcome = welcome._replace(nonce=proven[0], proof=proven[1])
    assert handshake.decode_welcome(frame_of(handshake.encode_welcome(welcome)), role) == welcome


@given(st.builds(Goodbye, st.sampled_from(Reason), TEXT))
def test_goodbye(goodbye):
    assert handshake.decode_goodbye(frame_of(handshake.encode_goodbye(goodbye))) == goodbye


@given(st.builds(Attach, TEXT, TEXT, U64, TEXT, U64), st.integers(0, 65535))
def test_attach(attach, channel):
    frame = frame_of(handshake.encode_attach(channel, attach))
    assert frame.channel == channel
    assert handshake.decode_attach(frame) == attach


@given(U64, U64)
def test_numbers(one, other):
    assert handshake.decode_attached(frame_of(handshake.encode_attached(3, one))) == one
    assert handshake.decode_ping(frame_of(handshake.encode_ping(one))) == one
    pong = Pong(one, other)
    assert handshake.decode_pong(frame_of(handshake.encode_pong(pong))) == pong


@given(st.sampled_from(sorted(DECODERS)), st.binary(max_size=300))
def test_random_payloads(kind, tail):
    fixed = FIXED[kind].size
    payload = tail.ljust(fixed, b"\0") if kind in (1, 2, 3, 6) else tail.ljust(fixed, b"\0")[:fixed]
    frame = frame_of(encode(kind, 0, payload))
    try:
        DECODERS[kind](frame)
    except (MalformedFrame, NotPermitted):
        return


def test_another_frame_than_is_due():
    with pytest.raises(MalformedFrame, match="PING came where HELLO is due"):
        handshake.decode_hello(frame_of(handshake.encode_ping(1)))


def test_a_long_farewell_is_cut():
    frame = frame_of(handshake.encode_goodbye(Goodbye(Reason.CLOSING, "ä" * 2000)))
    assert handshake.decode_goodbye(frame).text == "ä" * 512


def test_names_are_bounded():
    with pytest.raises(ValueError, match="more than 255"):
        handshake.encode_hello(Hello(Role.NODE, "n" * 256, 0))
    payload = FIXED[FrameType.HELLO].pack(handshake.MAGIC, 1, 1, 1, 0, 0) + b"n" * 256
    with pytest.raises(MalformedFrame, match="more than 255"):
        handshake.decode_hello(frame_of(encode(FrameType.HELLO, 0, payload)))


def test_versions():
    assert handshake.choose_version(Hello(Role.NODE, "a", 0, 1, 9)) == 1
    for low, high in ((2, 9), (0, 0)):
        with pytest.raises(VersionMismatch, match=f"versions {low} to {high}"):
            handshake.choose_version(Hello(Role.NODE, "a", 0, low, high))
