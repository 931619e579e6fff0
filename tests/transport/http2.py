"""Calls over HTTP/2 whose messages do not end: what no gRPC library lets one send."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
END_HEADERS, END_STREAM, ACK = 4, 1, 1
FIRST_WINDOW = 65_535
INITIAL_WINDOW = 4
PIECE = 16_384


class H2Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


def packed(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


def _headers(path: str) -> bytes:
    """POST, http, and the path, in the simplest way of HPACK."""
    named = [(b"te", b"trailers"), (b"content-type", b"application/grpc")]
    plain = b"".join(bytes([0, len(n)]) + n + bytes([len(v)]) + v for n, v in named)
    return b"\x83\x86\x04" + bytes([len(path)]) + path.encode() + b"\x01\x01x" + plain


class UnfinishedCalls:
    """`begin` so many calls with a message of `size` bytes of which the last never comes.

    `pending` has what the server took of each that is still open, `ended` those it has ended.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._windows: Counter[int] = Counter({0: FIRST_WINDOW})
        self._first_window = FIRST_WINDOW
        self._left: dict[int, int] = {}
        self._next = 1
        self.pending: Counter[int] = Counter()
        self.ended: set[int] = set()
        writer.write(PREFACE + packed(SETTINGS, 0, 0))
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def to(cls, address: str) -> UnfinishedCalls:
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    def begin(self, path: str, size: int) -> None:
        stream, self._next = self._next, self._next + 2
        self._windows[stream] = self._first_window
        self._writer.write(packed(HEADERS, END_HEADERS, stream, _headers(path)))
        self._left[stream] = size - 1
        self._writer.write(packed(DATA, 0, stream, b"\0" + size.to_bytes(4, "big")))
        self._taken(stream, 5)

    def _taken(self, stream: int, size: int) -> None:
        self._windows[0] -= size
        self._windows[stream] -= size
        self.pending[stream] += size

    def _go_on(self) -> None:
        for stream in list(self._left):
            while size := min(self._left[stream], self._windows[0], self._windows[stream], PIECE):
                if size < 0:
                    break
                self._writer.write(packed(DATA, 0, stream, bytes(size)))
                self._taken(stream, size)
                self._left[stream] -= size

    async def _listen(self) -> None:
        while True:
            head = await self._reader.readexactly(9)
            payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
            self._heard(H2Frame(head[3], head[4], int.from_bytes(head[5:], "big"), payload))
            self._go_on()

    def _heard(self, frame: H2Frame) -> None:
        if frame.kind == SETTINGS and not frame.flags & ACK:
            for at in range(0, len(frame.payload), 6):
                value = int.from_bytes(frame.payload[at + 2 : at + 6], "big")
                if int.from_bytes(frame.payload[at : at + 2], "big") == INITIAL_WINDOW:
                    for stream in self._left:
                        self._windows[stream] += value - self._first_window
                    self._first_window = value
            self._writer.write(packed(SETTINGS, ACK, 0))
        elif frame.kind == PING and not frame.flags & ACK:
            self._writer.write(packed(PING, ACK, 0, frame.payload))
        elif frame.kind == WINDOW:
            self._windows[frame.stream] += int.from_bytes(frame.payload, "big")
        elif frame.kind == RST or (frame.kind == HEADERS and frame.flags & END_STREAM):
            self.ended.add(frame.stream)
            self._left.pop(frame.stream, None)
            del self.pending[frame.stream]

    async def close(self) -> None:
        self._listening.cancel()
        await asyncio.wait([self._listening])
        self._writer.close()
