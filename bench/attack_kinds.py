"""Attacks on a running cluster, each bounded in number.

`attacks.py` runs them in a process of its own, and calls `again` over and over until time is up.
Nobody here has the key of the cluster.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc

from shardlog.checksum import seal_body
from shardlog.protocol.messages import Ack, Destroy, Fence, Trim
from shardlog.transport import batch
from shardlog.transport.cluster_key import ClusterKey
from shardlog.transport.compression import Compression
from shardlog.transport.control_calls import STATUS_OF_MANY, path_of
from shardlog.transport.frame_messages import from_message
from shardlog.transport.frames import (
    HEAD,
    Decoder,
    FrameType,
    encode_append,
    encode_read,
    encode_register,
)
from shardlog.transport.generated import log_pb2
from shardlog.transport.handshake import (
    Attach,
    Hello,
    Pong,
    Role,
    encode_attach,
    encode_hello,
    encode_ping,
    encode_pong,
    encode_proof,
)

FRAME_BYTES = 16 << 20
RECEIVED_BYTES = 4096
GREETING_S = 5.0
NEVER = 1 << 60
LONG = 4 << 20


@dataclass(frozen=True, slots=True)
class Aim:
    """Where the leader is, on each plane, and what is attacked there."""

    data: str
    control: str
    http: str
    public: str
    shard: str
    node: str
    others: tuple[str, ...]


def joined(*frames: Any) -> bytes:
    return b"".join(bytes(part) for frame in frames for part in frame)


def place_of(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


class Talker:
    """A connection of the data plane that says `first`, and `more` whenever there is room.

    It takes `takes` bytes a turn of what it is answered, answers no PING, and comes again.
    """

    def __init__(
        self,
        aim: Aim,
        role: Role,
        first: bytes,
        more: Callable[[], bytes],
        *,
        name: str = "stranger",
        takes: int = 1 << 16,
    ) -> None:
        self._aim = aim
        self._hello = Hello(
            role, name, FRAME_BYTES, nonce=bytes(32) if role is Role.NODE else b""
        )  # fmt: skip
        self._first = first
        self._more = more
        self._takes = takes
        self._socket: socket.socket | None = None
        self._left = b""

    def again(self) -> None:
        try:
            if self._socket is None:
                self._connect()
            assert self._socket is not None
            self._left = self._left or self._more() + joined(encode_ping(1))
            with suppress(BlockingIOError):
                self._left = self._left[self._socket.send(self._left) :]
            if self._takes:
                with suppress(BlockingIOError):
                    if not self._socket.recv(self._takes):
                        raise ConnectionResetError
        except OSError:
            self.close()

    def _connect(self) -> None:
        self._socket = made = socket.socket()
        if self._takes < RECEIVED_BYTES:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES)
        made.settimeout(GREETING_S)
        made.connect(place_of(self._aim.data))
        made.sendall(joined(encode_hello(self._hello)))
        made.recv(1)
        self._left = self._first
        made.setblocking(False)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._left = None, b""


class Opener:
    """Connections that are opened and say no more than `first`; closed ones are opened again."""

    def __init__(self, address: str, number: int, first: bytes = b"") -> None:
        self._place = place_of(address)
        self._first = first
        self._sockets: list[socket.socket | None] = [None] * number
        self._next = 0

    def again(self) -> None:
        for _ in range(50):
            at = self._next = (self._next + 1) % len(self._sockets)
            known = self._sockets[at]
            try:
                if known is not None:
                    with suppress(BlockingIOError):
                        if known.recv(1 << 12):
                            continue
                        raise ConnectionResetError
                    continue
                made = socket.socket()
                made.settimeout(1.0)
                made.connect(self._place)
                made.sendall(self._first)
                made.setblocking(False)
                self._sockets[at] = made
            except OSError:
                if known is not None:
                    known.close()
                self._sockets[at] = None


class Calls:
    """Calls of gRPC, so many at once."""

    def __init__(self, address: str, at_once: int, call: Callable[[Any], Any]) -> None:
        self._channels = [
            grpc.insecure_channel(
                address,
                [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", 1 << 28)],
            )
            for _ in range(min(at_once, 8))
        ]
        self._call = call
        self._under_way: list[Any] = [None] * at_once

    def again(self) -> None:
        for at, known in enumerate(self._under_way):
            if known is None or known.done():
                self._under_way[at] = self._call(self._channels[at % len(self._channels)])


# --- the attacks ---------------------------------------------------------------------------------

MANY = 64


def impostors(aim: Aim) -> list[Any]:
    """Followers that acknowledge everything, and coordinators' messages from a node."""
    proof = ClusterKey(bytes(range(32))).proof(b"data plane, calling", b"x")
    attach = encode_attach(1, Attach(aim.shard, aim.others[0], 1, aim.node, 1))
    forged = [Ack(1, 1 << 40, 1 << 40, 0), Destroy(), Fence(1 << 40), Trim(1, 1 << 40)]
    said = joined(encode_proof(proof), attach, *[from_message(1, each) for each in forged])
    return [
        Talker(aim, Role.NODE, said, lambda: said, name=aim.others[at % 2]) for at in range(MANY)
    ]


def pong_liars(aim: Aim) -> list[Any]:
    lies = joined(*[encode_pong(Pong(at, 1 << 62)) for at in range(1000)])
    first = joined(encode_attach(1, Attach(aim.shard)))
    return [
        Talker(aim, (Role.NODE, Role.CLIENT)[at % 2], first, lambda: lies, name=f"liar-{at}")
        for at in range(250)
    ]


def pings(aim: Aim) -> list[Any]:
    """Of clients that hardly read."""
    asked = joined(encode_ping(1)) * 2000
    first = joined(encode_attach(1, Attach(aim.shard)))
    return [Talker(aim, Role.CLIENT, first, lambda: asked, takes=512) for _ in range(MANY)]


def refused_appends(aim: Aim) -> list[Any]:
    """Of clients that hardly read what they are refused."""
    asked = joined(encode_append(1, NEVER, 1, 1, 1, b"x")) * 1000
    first = joined(encode_attach(1, Attach(aim.shard)))
    return [Talker(aim, Role.CLIENT, first, lambda: asked, takes=512) for _ in range(MANY)]


def registers(aim: Aim) -> list[Any]:
    first = joined(encode_attach(1, Attach(aim.shard)))

    def asked() -> bytes:
        return joined(*[encode_register(1, 1 + secrets.randbits(62)) for _ in range(500)])

    return [Talker(aim, Role.CLIENT, first, asked) for _ in range(16)]


def unfinished_frames(aim: Aim) -> list[Any]:
    begun = HEAD.pack(LONG, FrameType.APPEND, 0, 1) + bytes(LONG - (256 << 10))
    roles = (Role.NODE, Role.CLIENT)
    return [Talker(aim, roles[at % 2], begun, lambda: b".") for at in range(MANY)]


def slow_readers(aim: Aim) -> list[Any]:
    number = [0]

    def asked() -> bytes:
        number[0] += 8
        return joined(*[encode_read(1, number[0] + at, 0, 1024, 2 << 20, tail=True)
                        for at in range(8)])  # fmt: skip

    first = joined(encode_attach(1, Attach(aim.shard)))
    return [Talker(aim, Role.CLIENT, first, asked, takes=1024) for _ in range(16)]


def tails(aim: Aim) -> list[Any]:
    """1,024 of each of 200 connections, at an offset that no log reaches."""
    number = [0]

    def asked() -> bytes:
        number[0] += 1024
        return joined(*[encode_read(1, number[0] + at, NEVER, 0, tail=True)
                        for at in range(1024)])  # fmt: skip

    first = joined(encode_attach(1, Attach(aim.shard)))
    return [Talker(aim, Role.CLIENT, first, asked) for _ in range(200)]


def channels(aim: Aim) -> list[Any]:
    first = joined(*[encode_attach(at, Attach(f"{aim.shard}-{at}")) for at in range(1024)])
    return [Talker(aim, Role.CLIENT, first, lambda: b"") for _ in range(300)]


def idle_connections(aim: Aim) -> list[Any]:
    greeting = joined(encode_hello(Hello(Role.CLIENT, "idle", FRAME_BYTES)))
    places = [(aim.data, b""), (aim.data, greeting), (aim.control, b""), (aim.public, b""),
              (aim.http, b"GET /")]  # fmt: skip
    return [Opener(address, 600, first) for address, first in places]


def empty_records(aim: Aim) -> list[Any]:
    """Four million in one request."""
    records = log_pb2.Records.DESCRIPTOR.fields_by_name["records"].number
    content = bytes([records << 3 | 2, 0]) * 2_000_000
    number = log_pb2.AppendRequest.DESCRIPTOR.fields_by_name["records"].number
    head = log_pb2.AppendRequest(version=1, shard=aim.shard, request=1).SerializeToString()
    length, left = b"", len(content)
    while left > 127:
        length, left = length + bytes([left & 127 | 128]), left >> 7
    request = head + bytes([number << 3 | 2]) + length + bytes([left]) + content
    path = "/shardlog.v1.Log/Append"
    return [Calls(aim.public, 4, lambda to: to.stream_stream(path)(iter([request]), timeout=10))]


def idle_streams(aim: Aim) -> list[Any]:
    """Of Append, Read, health and reflection, with a request of 4 MiB that is never taken."""
    paths = ["/shardlog.v1.Log/Append", "/shardlog.v1.Log/Read", "/grpc.health.v1.Health/Watch",
             "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"]  # fmt: skip

    def silent() -> Any:
        yield b"" if secrets.randbits(1) else bytes(4 << 20)

    return [
        Calls(aim.public, 128, lambda to, path=path: to.stream_stream(path)(silent(), timeout=20))
        for path in paths
    ]


def long_health_checks(aim: Aim) -> list[Any]:
    """15 MiB each, on both ports of gRPC; the control plane asks for no key there."""
    path, asked = "/grpc.health.v1.Health/Check", bytes(15 << 20)
    return [
        Calls(address, 16, lambda to: to.unary_unary(path).future(asked, timeout=10))
        for address in (aim.control, aim.public)
    ]


def status_of_many(aim: Aim) -> list[Any]:
    asked = bytes([10, 2, 18, 0]) * (15 << 18)
    path = path_of(STATUS_OF_MANY)
    return [Calls(aim.control, 20, lambda to: to.unary_unary(path).future(asked, timeout=10))]


def bombs(aim: Aim) -> list[Any]:
    """Batches of a million empty records in a few hundred bytes: appended, and read again."""
    builder = batch.BatchBuilder()
    builder.extend([b""] * batch.RECORDS_MAX)
    body, number = builder.body(Compression.ZSTD), batch.RECORDS_MAX
    session = _session_of(aim)
    first = joined(encode_attach(1, Attach(aim.shard)),
                   encode_append(1, session, 1, number, seal_body(body), body))  # fmt: skip
    read = log_pb2.ReadRequest(version=1, shard=aim.shard, offset=0, follow=True)
    asked = read.SerializeToString()
    path = "/shardlog.v1.Log/Read"
    return [
        Talker(aim, Role.CLIENT, first, lambda: b""),
        Calls(aim.public, 8, lambda to: _drained(to.unary_stream(path)(asked, timeout=20))),
    ]


def _drained(call: Any) -> Any:
    """Some of it."""
    with suppress(grpc.RpcError):
        next(call)
    return call


def _session_of(aim: Aim) -> int:
    with socket.create_connection(place_of(aim.data), GREETING_S) as made:
        made.sendall(joined(encode_hello(Hello(Role.CLIENT, "x", FRAME_BYTES))))
        made.sendall(joined(encode_attach(1, Attach(aim.shard)), encode_register(1, 77)))
        decoder = Decoder()
        while True:
            for frame in decoder.feed(made.recv(1 << 12)):
                if frame.type == FrameType.REGISTERED:
                    return int.from_bytes(frame.payload[8:16], "little")


ATTACKS: dict[str, Callable[[Aim], list[Any]]] = {
    "impostors (S-01, S-03)": impostors,
    "PONG liars (S-06)": pong_liars,
    "REGISTER floods (S-07)": registers,
    "unfinished frames (S-08)": unfinished_frames,
    "empty records (S-09)": empty_records,
    "idle gRPC streams (S-09)": idle_streams,
    "long health checks (S-09)": long_health_checks,
    "slow readers (S-14)": slow_readers,
    "PINGs, not read (S-14)": pings,
    "refusals, not read (S-14)": refused_appends,
    "StatusOfMany (S-15)": status_of_many,
    "idle connections (S-18)": idle_connections,
    "200,000 tails (S-19)": tails,
    "300,000 channels (S-19)": channels,
    "compressed bombs (S-20)": bombs,
}
