"""A node process that gets bad input on all its ports, while somebody uses it as it should be.

A cluster of one node and one shard.  After every attack the well-behaved client appends a record;
after each test the node is the same process as before, with the same open files.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path

from cluster_keys import KEY
from faults.cluster import PATIENCE_S, FaultCluster
from faults.nursery import Nursery

from shardlog.client.blocking import Client, Producer
from shardlog.transport.cluster_key import CALLING
from shardlog.transport.failures import MalformedFrame
from shardlog.transport.frames import FRAME_BYTES_MAX, Buffer, Decoder, Frame, FrameType
from shardlog.transport.handshake import (
    Hello,
    Role,
    decode_welcome,
    encode_hello,
    encode_proof,
)

SHARD = "orders"
CHANNEL = 1
NONCE = bytes(32)
FILES_MORE_MAX = 4
"""Files and sockets that come and go by themselves: segments, a scrape, the coordinator's calls."""
MORE_MIB = 48
"""What bad input may cost: three frames of the greatest length."""


class Attacked:
    """`addresses` of its planes by name."""

    def __init__(self, cluster: FaultCluster, producer: Producer) -> None:
        (self.process,) = cluster.nodes.values()
        (place,) = cluster.places.nodes
        self.addresses = {"data": place.data, "control": place.control, "http": place.http}
        self._producer = producer
        self._end = 0
        self.serves()
        self._pid = self.process.pid
        self._files = self.process.open_files
        self._rss = self.process.rss_bytes

    # --- attacks ---------------------------------------------------------------------------------

    @contextmanager
    def connected(self, plane: str) -> Iterator[socket.socket]:
        host, _, port = self.addresses[plane].rpartition(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as made:
            yield made

    @contextmanager
    def greeted(self, role: Role = Role.CLIENT) -> Iterator[socket.socket]:
        """On the data plane; the node has said WELCOME, and takes long frames from now on."""
        with self.connected("data") as made:
            made.sendall(greeting(role))
            welcome = b""
            while not (frames := understood(welcome)):
                welcome += made.recv(1)
            assert [frame.type for frame in frames] == [FrameType.WELCOME]
            if role is Role.NODE:
                made.sendall(proof(frames[0]))
            yield made

    def told(self, plane: str, data: bytes, role: Role | None = None) -> bytes:
        """All that it answers until it closes, after that was all; with a `role`, when greeted."""
        with self.greeted(role) if role is not None else self.connected(plane) as made:
            try:
                made.sendall(data)
                made.shutdown(socket.SHUT_WR)
                return received(made)
            except ConnectionError:
                return b""  # it has closed before it had read all

    # --- judgement -------------------------------------------------------------------------------

    def serves(self) -> None:
        """The well-behaved client, which has had its connection all the time."""
        offset = self._producer.append(b"well-behaved")
        assert offset >= self._end
        self._end = offset + 1

    def is_as_before(self) -> None:
        """The same process, with nothing left open and nothing kept in memory."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.open_files > self._files + FILES_MORE_MAX:
            assert time.monotonic() < deadline, f"{self.process.open_files} files are open"
            time.sleep(0.05)
        assert self.process.running
        assert self.process.pid == self._pid
        grown_mib = (self.process.rss_bytes - self._rss) / (1 << 20)
        assert grown_mib < MORE_MIB, f"it grew by {grown_mib:.0f} MiB"
        assert self.asked("/healthz") == 200
        log = self.process.log.read_text(errors="replace")
        assert "Traceback" not in log, log[log.index("Traceback") - 200 :][:2000]
        self.serves()

    def asked(self, path: str, method: str = "GET") -> int:
        connection = HTTPConnection(self.addresses["http"], timeout=PATIENCE_S)
        try:
            connection.request(method, path)
            return connection.getresponse().status
        finally:
            connection.close()


@contextmanager
def attacked(directory: Path, nursery: Nursery) -> Iterator[Attacked]:
    cluster = FaultCluster(directory / "cluster", nodes=1, nursery=nursery)
    stack = AsyncExitStack()
    with asyncio.Runner() as runner:
        runner.run(stack.enter_async_context(cluster.running()))
        try:
            runner.run(cluster.create(SHARD, replicas=1))
            with Client(cluster.urls[0]) as client, client.producer(SHARD) as producer:
                yield Attacked(cluster, producer)
        finally:
            runner.run(stack.aclose())


# --- bytes -----------------------------------------------------------------------------------


def received(made: socket.socket) -> bytes:
    """Until the other side closes."""
    parts = []
    while data := made.recv(1 << 16):
        parts.append(data)
    return b"".join(parts)


def joined(*frames: list[Buffer]) -> bytes:
    return b"".join(bytes(part) for frame in frames for part in frame)


def greeting(role: Role = Role.CLIENT) -> bytes:
    nonce = NONCE if role is Role.NODE else b""
    return joined(encode_hello(Hello(role, "fuzz", FRAME_BYTES_MAX, nonce=nonce)))


def proof(welcome: Frame) -> bytes:
    """That this is a node of the cluster."""
    told = decode_welcome(welcome, Role.NODE)
    about = (b"fuzz", told.name.encode(), NONCE, told.nonce)
    return joined(encode_proof(KEY.proof(CALLING, *about)))


def understood(answer: bytes) -> list[Frame]:
    """Whatever a node says is frames; the last may have been cut off by a reset."""
    try:
        return Decoder().feed(answer)
    except MalformedFrame as failure:
        raise AssertionError(f"the node said what is no frame: {failure}") from failure


def goodbyes(answer: bytes) -> list[Frame]:
    return [frame for frame in understood(answer) if frame.type == FrameType.GOODBYE]
