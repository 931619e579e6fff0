"""Links: connections that this node opens to others, when it has something to say to them.

What is said while a connection is being made waits, within a bound; what is said after one failed
is dropped until it is time to try again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from shardlog.protocol.messages import Envelope
from shardlog.transport.connection import Connection, Receiver, State
from shardlog.transport.endpoints import connect
from shardlog.transport.failures import MalformedFrame, NotPermitted, TransportFailure
from shardlog.transport.frames import CHANNELS_MAX, Frame, FrameType
from shardlog.transport.handshake import Attach, Role, encode_attach
from shardlog_node.channels import Channel, Key, key_of
from shardlog_node.unfinished import UnfinishedFrame

if TYPE_CHECKING:
    from shardlog_node.data_plane import DataPlane

WAITING_MAX = 256


class Link(Receiver):
    """To one node, for all shards."""

    def __init__(self, plane: DataPlane, node: str) -> None:
        self._plane = plane
        self.node = node
        self._connection: Connection | None = None
        self._unfinished: UnfinishedFrame
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: deque[Envelope] = deque(maxlen=WAITING_MAX)
        self._channels: dict[int, Channel] = {}
        self._numbers: dict[Key, int] = {}
        self._not_before = 0.0

    def send(self, envelope: Envelope) -> None:
        if self._connection is not None:
            self._channel(self._connection, envelope).send(envelope.message)
            return
        loop = asyncio.get_running_loop()
        if self._connecting is None and loop.time() >= self._not_before:
            self._connecting = loop.create_task(self._connect())
        if self._connecting is not None:
            self._waiting.append(envelope)

    async def _connect(self) -> None:
        plane = self._plane
        host, _, port = plane.addresses[self.node].rpartition(":")
        try:
            await connect(
                host.strip("[]"),
                int(port),
                name=plane.name,
                role=Role.NODE,
                receiver=self,
                limits=plane.limits.connection,
                wall_ns=plane.wall_ns,
                timeout_ms=plane.limits.link_timeout_ms,
                tls=plane.link_tls,
                key=plane.key,
            )
        except TransportFailure as failure:
            if isinstance(failure, NotPermitted):
                plane.link_refused(self.node, failure)
            self._waiting.clear()
            retry_s = plane.limits.link_retry_ms / 1000
            self._not_before = asyncio.get_running_loop().time() + retry_s
        finally:
            self._connecting = None

    def _channel(self, connection: Connection, envelope: Envelope) -> Channel:
        key = key_of(envelope)
        number = self._numbers.get(key)
        if number is not None:
            return self._channels[number]
        number = len(self._channels) + 1
        if number >= CHANNELS_MAX:
            connection.close()
        channel = Channel(self._plane, connection, number, key)
        self._numbers[key], self._channels[number] = number, channel
        self._plane.bind(key, channel)
        attach = Attach(
            envelope.shard,
            envelope.src,
            envelope.src_incarnation,
            envelope.dst,
            envelope.dst_incarnation,
        )
        if connection.state is State.OPEN and connection.writable:
            connection.send(encode_attach(number, attach))
        else:
            connection.close()
        return channel

    def look(self) -> None:
        """Now and then; the PING is for the cluster's clock."""
        if self._connection is not None:
            self._unfinished.look()
            self._connection.ping()

    def moved(self) -> None:
        """The node is elsewhere now."""
        self._not_before = 0.0
        if self._connection is not None:
            self._connection.close()

    async def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._connection is not None:
            connection = self._connection
            connection.close()
            await connection.closed()

    # --- the connection --------------------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        if connection.name != self.node:
            raise NotPermitted(f"{connection.name} answers where {self.node} should be")
        self._connection = connection
        self._unfinished = UnfinishedFrame(self._plane.unfinished_of_nodes, connection)
        waiting = list(self._waiting)
        self._waiting.clear()
        for envelope in waiting:
            self.send(envelope)

    def received(self, connection: Connection, frames: list[Frame]) -> None:
        self._unfinished.finished()
        channels = self._channels
        for frame in frames:
            channel = channels.get(frame.channel)
            if frame.type == FrameType.PONG:
                self._plane.pong(connection, frame)
            elif channel is None:
                raise MalformedFrame(f"{FrameType(frame.type).name} on a channel that is not bound")
            elif frame.type == FrameType.REFUSED:
                connection.close()  # it is not whom we took it for
            elif frame.type != FrameType.ATTACHED:
                channel.received(frame)

    def drained(self, connection: Connection) -> None:
        """What had no room was dropped; the protocol asks again."""

    def lost(self, connection: Connection, failure: TransportFailure | None) -> None:
        if self._connection is connection:
            self._connection = None
            self._unfinished.forget()
            if isinstance(failure, NotPermitted):
                self._plane.link_refused(self.node, failure)
            for channel in self._channels.values():
                self._plane.unbind(channel.key, channel)
            self._channels.clear()
            self._numbers.clear()
