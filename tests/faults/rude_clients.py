"""Clients that ask and never listen."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from node.bodies import body_of

from shardlog.checksum import seal_body
from shardlog.transport.frames import (
    FRAME_BYTES_MAX,
    HEAD,
    Buffer,
    FrameType,
    encode_append,
    encode_read,
    encode_register,
)
from shardlog.transport.handshake import (
    Attach,
    Hello,
    Role,
    encode_attach,
    encode_hello,
    encode_ping,
)

CHANNEL = 1
RECEIVED_BYTES_MAX = 4096
EVERY_MS = 50
LONG_BYTES = (4 << 20) + 24
NOBODYS = 1 << 60
"""A session."""
BODY = body_of(b"a record")

Ask = Callable[[int], list[Buffer]]
"""The number of a question → its frame."""


def reads(number: int) -> list[Buffer]:
    return encode_read(CHANNEL, number, 0, 1024, 1 << 20, tail=True)


def confirmed_reads(number: int) -> list[Buffer]:
    return encode_read(CHANNEL, number, 0, 1024)


def registrations(number: int) -> list[Buffer]:
    return encode_register(CHANNEL, 1 + secrets.randbits(62))  # each a new one


def appends(number: int) -> list[Buffer]:
    """Of a session that nobody has: all are refused."""
    return encode_append(CHANNEL, NOBODYS, number, 1, seal_body(BODY), BODY)


def unfinished_frames(number: int) -> list[Buffer]:
    """One that is nearly as long as may be; then a byte now and then, and it never ends."""
    if number > 1:
        return [b"."]
    return [HEAD.pack(LONG_BYTES, FrameType.APPEND, 0, CHANNEL), bytes(LONG_BYTES - (256 << 10))]


class RudeClient:
    """Connects again whenever it is dismissed; `asked` and `dismissed` count."""

    def __init__(
        self, address: str, shard: str, ask: Ask, at_once: int, role: Role = Role.CLIENT
    ) -> None:
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._shard = shard
        self._ask = ask
        self._at_once = at_once
        self._role = role
        self._socket: socket.socket | None = None
        self._left = b""
        self._number = 0
        self.asked = 0
        self.dismissed = 0

    def go_on(self) -> None:
        """As much as the node takes now, up to `at_once` questions, and a sign of life."""
        try:
            if self._socket is None:
                self._connect()
            if not self._left:
                numbers = range(self._number + 1, self._number + self._at_once + 1)
                frames = [self._ask(number) for number in numbers]
                self._left = joined([*frames, encode_ping(1)])
                self._number += self._at_once
                self.asked += self._at_once
            assert self._socket is not None
            self._left = self._left[self._socket.send(self._left) :]
        except BlockingIOError:
            return
        except OSError:
            self.dismissed += 1
            self.close()

    def _connect(self) -> None:
        self._socket = made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES_MAX)
        made.connect(self._address)
        nonce = bytes(32) if self._role is Role.NODE else b""  # which proves nothing
        hello = encode_hello(Hello(self._role, "rude", FRAME_BYTES_MAX, nonce=nonce))
        made.sendall(joined([hello]))
        made.recv(1)  # of its welcome: before it, frames must be short
        made.sendall(joined([encode_attach(CHANNEL, Attach(self._shard))]))
        made.setblocking(False)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._left = b""
        self._number = 0


@asynccontextmanager
async def rude_clients(clients: list[RudeClient]) -> AsyncIterator[None]:
    async def go_on() -> None:
        while True:
            for client in clients:
                client.go_on()
                await asyncio.sleep(0)
            await asyncio.sleep(EVERY_MS / 1000)

    task = asyncio.create_task(go_on())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        for client in clients:
            client.close()


def joined(frames: Iterable[list[Buffer]]) -> bytes:
    return b"".join(bytes(part) for frame in frames for part in frame)
