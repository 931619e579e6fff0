"""Frames about the connection itself: greeting, attaching to shards, keeping alive.

Whoever opened the connection speaks first and says which versions it knows; the other side answers
with the one to use, or with GOODBYE.  A connection attaches to a shard by binding a channel: a
client as nobody in particular, a node as one replica that means another (source, destination and
incarnations, as in an `Envelope`).  Only the side that opened the connection attaches; answers
come back on the same channel, and attaching a bound channel again replaces what it was bound to.

Between nodes both sides prove that they have the key of the cluster: HELLO brings a nonce, WELCOME
one of the other side with its proof over both names and both nonces, and PROOF is the caller's.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from shardlog.transport.cluster_key import PROOF_BYTES
from shardlog.transport.failures import (
    ConnectionRefused,
    MalformedFrame,
    NotPermitted,
    SilentConnection,
    TransportFailure,
    Unreachable,
    VersionMismatch,
)
from shardlog.transport.frames import FIXED, Buffer, Frame, FrameType, encode

MAGIC = b"SHDL"
VERSION_MIN = 1
VERSION_MAX = 1
NAME_BYTES_MAX = 255
NONCE_BYTES = 32


class Role(IntEnum):
    """Who opened the connection."""

    CLIENT = 1
    NODE = 2


class Reason(IntEnum):
    """Why a connection ends."""

    CLOSING = 0
    VERSION = 1
    MALFORMED = 2
    TOO_LARGE = 3
    TIMEOUT = 4
    NOT_PERMITTED = 5
    OVERLOADED = 6
    UNEXPECTED = 7


class Hello(NamedTuple):
    """`frame_bytes_max` is the longest payload that the sender accepts; a client has no nonce."""

    role: Role
    name: str
    frame_bytes_max: int
    version_min: int = VERSION_MIN
    version_max: int = VERSION_MAX
    nonce: bytes = b""


class Welcome(NamedTuple):
    """To a client there is neither nonce nor proof."""

    version: int
    name: str
    frame_bytes_max: int
    nonce: bytes = b""
    proof: bytes = b""


class Goodbye(NamedTuple):
    reason: Reason
    text: str


_FAILURES: dict[Reason, type[TransportFailure]] = {
    Reason.CLOSING: Unreachable,
    Reason.TIMEOUT: SilentConnection,
    Reason.VERSION: VersionMismatch,
    Reason.NOT_PERMITTED: NotPermitted,
}


def failure_of(goodbye: Goodbye, name: str) -> TransportFailure:
    """What a goodbye from `name` means to the side that hears it."""
    kind = _FAILURES.get(goodbye.reason, ConnectionRefused)
    said = goodbye.text or goodbye.reason.name
    return kind(f"{name or 'the other side'} said goodbye: {said}")


class Attach(NamedTuple):
    """A client leaves all but the shard empty."""

    shard: str
    src: str = ""
    src_incarnation: int = 0
    dst: str = ""
    dst_incarnation: int = 0


class Pong(NamedTuple):
    """`echo_ns` is what the PING said; `wall_ns` the answering side's clock."""

    echo_ns: int
    wall_ns: int


def choose_version(hello: Hello) -> int:
    """The highest version that both sides know."""
    version = min(hello.version_max, VERSION_MAX)
    if version < max(hello.version_min, VERSION_MIN):
        raise VersionMismatch(
            f"{hello.name or 'the other side'} speaks versions {hello.version_min} to "
            f"{hello.version_max}, this side {VERSION_MIN} to {VERSION_MAX}"
        )
    return version


def _fields(frame: Frame, kind: FrameType) -> tuple[tuple[Any, ...], memoryview]:
    """The fixed part and the rest."""
    if frame.type != kind:
        raise MalformedFrame(f"{FrameType(frame.type).name} came where {kind.name} is due")
    fixed = FIXED[kind]
    return fixed.unpack_from(frame.payload), frame.payload[fixed.size :]


def text_of(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as failure:
        raise MalformedFrame("a text that is not UTF-8") from failure


def _name_of(data: memoryview) -> str:
    if len(data) > NAME_BYTES_MAX:
        raise MalformedFrame(f"a name of {len(data)} bytes, more than {NAME_BYTES_MAX}")
    return text_of(data)


def _name_bytes(name: str) -> bytes:
    data = name.encode()
    if len(data) > NAME_BYTES_MAX:
        raise ValueError(f"a name of {len(data)} bytes, more than {NAME_BYTES_MAX}")
    return data


def encode_hello(hello: Hello) -> list[Buffer]:
    fixed = FIXED[FrameType.HELLO].pack(
        MAGIC, hello.version_min, hello.version_max, hello.role, 0, hello.frame_bytes_max
    )
    return encode(FrameType.HELLO, 0, fixed + hello.nonce + _name_bytes(hello.name))


def decode_hello(frame: Frame) -> Hello:
    (magic, low, high, role, _, longest), rest = _fields(frame, FrameType.HELLO)
    if magic != MAGIC:
        raise MalformedFrame("HELLO does not speak of Shardlog")
    if role not in (Role.CLIENT, Role.NODE):
        raise MalformedFrame(f"no role has number {role}")
    nonce = _leading(rest, NONCE_BYTES if role == Role.NODE else 0)
    return Hello(Role(role), _name_of(rest[len(nonce) :]), longest, low, high, nonce)


def encode_welcome(welcome: Welcome) -> list[Buffer]:
    fixed = FIXED[FrameType.WELCOME].pack(welcome.version, 0, 0, welcome.frame_bytes_max)
    proven = welcome.nonce + welcome.proof
    return encode(FrameType.WELCOME, 0, fixed + proven + _name_bytes(welcome.name))


def decode_welcome(frame: Frame, role: Role) -> Welcome:
    """As it answers a HELLO of that role."""
    (version, _, _, longest), rest = _fields(frame, FrameType.WELCOME)
    proven = _leading(rest, NONCE_BYTES + PROOF_BYTES if role is Role.NODE else 0)
    name = _name_of(rest[len(proven) :])
    return Welcome(version, name, longest, proven[:NONCE_BYTES], proven[NONCE_BYTES:])


def encode_proof(proof: bytes) -> list[Buffer]:
    return encode(FrameType.PROOF, 0, FIXED[FrameType.PROOF].pack(proof))


def decode_proof(frame: Frame) -> bytes:
    """`NotPermitted` if it is none: a node says nothing before it."""
    if frame.type != FrameType.PROOF:
        raise NotPermitted("a node has to prove that it has the key of this cluster")
    proof: bytes = _fields(frame, FrameType.PROOF)[0][0]
    return proof


def _leading(data: memoryview, size: int) -> bytes:
    """What only nodes say."""
    if len(data) < size:
        raise NotPermitted("a node has to prove that it has the key of this cluster")
    return bytes(data[:size])


def encode_goodbye(goodbye: Goodbye) -> list[Buffer]:
    text = goodbye.text.encode()[:1024].decode(errors="ignore").encode()
    return encode(FrameType.GOODBYE, 0, FIXED[FrameType.GOODBYE].pack(goodbye.reason) + text)


def decode_goodbye(frame: Frame) -> Goodbye:
    (reason,), rest = _fields(frame, FrameType.GOODBYE)
    if reason not in set(Reason):
        raise MalformedFrame(f"no reason has number {reason}")
    return Goodbye(Reason(reason), text_of(rest))


def encode_attach(channel: int, attach: Attach) -> list[Buffer]:
    names = [_name_bytes(name) for name in (attach.shard, attach.src, attach.dst)]
    fixed = FIXED[FrameType.ATTACH].pack(
        attach.src_incarnation, attach.dst_incarnation, *map(len, names), 0
    )
    return encode(FrameType.ATTACH, channel, fixed + b"".join(names))


def decode_attach(frame: Frame) -> Attach:
    (src_incarnation, dst_incarnation, *lengths, _), rest = _fields(frame, FrameType.ATTACH)
    if sum(lengths) != len(rest):
        raise MalformedFrame(f"ATTACH has {len(rest)} bytes of names and speaks of {sum(lengths)}")
    shard_end, src_end = lengths[0], lengths[0] + lengths[1]
    shard, src = _name_of(rest[:shard_end]), _name_of(rest[shard_end:src_end])
    return Attach(shard, src, src_incarnation, _name_of(rest[src_end:]), dst_incarnation)


def encode_attached(channel: int, incarnation: int) -> list[Buffer]:
    """`incarnation` is that of the replica here; 0 if there is none."""
    return encode(FrameType.ATTACHED, channel, FIXED[FrameType.ATTACHED].pack(incarnation))


def decode_attached(frame: Frame) -> int:
    incarnation: int = _fields(frame, FrameType.ATTACHED)[0][0]
    return incarnation


def encode_ping(monotonic_ns: int) -> list[Buffer]:
    return encode(FrameType.PING, 0, FIXED[FrameType.PING].pack(monotonic_ns))


def decode_ping(frame: Frame) -> int:
    monotonic_ns: int = _fields(frame, FrameType.PING)[0][0]
    return monotonic_ns


def encode_pong(pong: Pong) -> list[Buffer]:
    return encode(FrameType.PONG, 0, FIXED[FrameType.PONG].pack(*pong))


def decode_pong(frame: Frame) -> Pong:
    return Pong(*_fields(frame, FrameType.PONG)[0])
