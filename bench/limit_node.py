"""The three bare processes of the yardstick: a log on the network without any protocol.

A leader takes APPEND frames, sends the bodies on to two followers as ENTRIES while its own disk
writes them, and answers APPENDED when its own sync and one follower's ACK are in.  There are no
headers, sessions, checksums or bounds, and nobody fails over: what is left is what any node has to
do, sockets and syncs, in the same language and on the same loop.

What comes while the leader syncs one group is the next: one ENTRIES frame to each follower and one
hand-over to the disk, so that an append's share of both falls as the load rises.  Answers of one
turn go out in one write to each client.  The disk is a thread of its own; a follower's takes all
that has come while it was syncing.

A process names its port on standard output and ends when standard input does, so none outlives the
one that started it.

    python bench/limit_node.py FILE FILE_BYTES [FOLLOWER_PORT FOLLOWER_PORT]
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import cast

import uvloop

from shardlog.transport.frames import (
    FIXED,
    Buffer,
    Decoder,
    Frame,
    FrameType,
    encode_ack,
    encode_appended,
    encode_entries,
)

BUFFERS_MAX = os.sysconf("SC_IOV_MAX")
SWITCH_INTERVAL_S = 100e-6
"""How long the disk's thread waits for the interpreter when the loop is busy."""

_append = FIXED[FrameType.APPEND]
_entries = FIXED[FrameType.ENTRIES]
_ack = FIXED[FrameType.ACK]


class Disk:
    """Writes groups in order into a file whose blocks are there, round and round."""

    def __init__(self, path: str, file_bytes: int, synced: Callable[[int], object]) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT)
        self.file_bytes = file_bytes
        self.position = 0
        self.synced = synced
        self.loop = asyncio.get_running_loop()
        self.queue: SimpleQueue[tuple[Sequence[Buffer], int]] = SimpleQueue()
        self.submit = self.queue.put
        for at in range(0, file_bytes, 1 << 20):
            os.pwrite(self.fd, bytes(1 << 20), at)
        os.fsync(self.fd)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        take = self.queue.get
        while True:
            taken, end = take()
            group = list(taken)
            for _ in range(self.queue.qsize()):
                taken, end = take()
                group += taken
            self._write(group)
            os.fdatasync(self.fd)
            self.loop.call_soon_threadsafe(self.synced, end)

    def _write(self, group: list[Buffer]) -> None:
        for at in range(0, len(group), BUFFERS_MAX):
            part = group[at : at + BUFFERS_MAX]
            size = sum(map(len, part))
            if self.position + size > self.file_bytes:
                self.position = 0
            written = os.pwritev(self.fd, part, self.position)
            assert written == size, "a group is written whole"
            self.position += size


class Link(asyncio.Protocol):
    """One connection; frames go to `received` by the bunch, as they come."""

    def __init__(self, received: Callable[[Link, list[Frame]], object]) -> None:
        self.received = received
        self.feed = Decoder().feed
        self.transport: asyncio.Transport
        self.answers: list[Buffer] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is not derived from it

    def data_received(self, data: bytes) -> None:
        self.received(self, self.feed(data))


class Follower:
    """Entries in, acks out."""

    def __init__(self, path: str, file_bytes: int) -> None:
        self.disk = Disk(path, file_bytes, self._synced)
        self.leader: Link

    def received(self, link: Link, frames: list[Frame]) -> None:
        self.leader = link
        bodies: list[Buffer] = []
        end = 0
        for frame in frames:
            payload = frame.payload
            _, _, first, count, _ = _entries.unpack_from(payload)
            end = first + count
            bodies.append(payload[_entries.size :])
        if bodies:
            self.disk.submit((bodies, end))

    def _synced(self, end: int) -> None:
        if not self.leader.transport.is_closing():
            self.leader.transport.writelines(encode_ack(1, 1, end, end, 0))


class Leader:
    """Appends in, answers out."""

    def __init__(self, path: str, file_bytes: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.disk = Disk(path, file_bytes, self._synced)
        self.followers: list[Link] = []
        self.syncing = False
        self.bodies: list[Buffer] = []  # of the next group
        self.first = 0  # of the next group
        self.end = 0
        self.own = 0
        """Before this all is synced here."""
        self.acked = 0
        """Before this all is synced at one follower at least."""
        self.waiting: deque[tuple[int, Link, int, int, int]] = deque()
        """Appends not answered: end, from whom, session, request and base."""

    async def follow(self, port: int) -> None:
        _, link = await self.loop.create_connection(
            lambda: Link(self._acknowledged), "127.0.0.1", port
        )
        self.followers.append(link)

    def received(self, link: Link, frames: list[Frame]) -> None:
        if frames and not self.bodies and not self.syncing:
            self.loop.call_soon(self._replicate)
        unpack, size, end = _append.unpack_from, _append.size, self.end
        for frame in frames:
            payload = frame.payload
            session, request, _, count, _ = unpack(payload)
            self.bodies.append(payload[size:])
            self.waiting.append((end + count, link, session, request, end))
            end += count
        self.end = end

    def _replicate(self) -> None:
        self.syncing = True
        bodies, self.bodies = self.bodies, []
        frame = encode_entries(1, 1, self.own, self.first, self.end - self.first, bodies)
        self.disk.submit((bodies, self.end))
        for follower in self.followers:
            follower.transport.writelines(frame)
        self.first = self.end

    def _synced(self, end: int) -> None:
        self.own = end
        self.syncing = False
        if self.bodies:
            self._replicate()
        self._answer()

    def _acknowledged(self, link: Link, frames: list[Frame]) -> None:
        if frames:
            _, end, _, _ = _ack.unpack_from(frames[-1].payload)
            if end > self.acked:
                self.acked = end
                self._answer()

    def _answer(self) -> None:
        durable = min(self.own, self.acked)
        waiting = self.waiting
        links: list[Link] = []
        while waiting and waiting[0][0] <= durable:
            _, link, session, request, base = waiting.popleft()
            if not link.answers:
                links.append(link)
            link.answers += encode_appended(1, session, request, base)
        for link in links:
            link.transport.writelines(link.answers)
            link.answers = []


async def serve(path: str, file_bytes: int, followers: list[int]) -> None:
    loop = asyncio.get_running_loop()
    node = Leader(path, file_bytes) if followers else Follower(path, file_bytes)
    if isinstance(node, Leader):
        for port in followers:
            await node.follow(port)
    server = await loop.create_server(lambda: Link(node.received), "127.0.0.1", 0)
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    print(server.sockets[0].getsockname()[1], flush=True)
    await ended.wait()


def main() -> None:
    path, file_bytes, *followers = sys.argv[1:]
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.disable()  # nothing here makes cycles
    uvloop.run(serve(path, int(file_bytes), [int(port) for port in followers]))


if __name__ == "__main__":
    main()
