"""Channels between replicas: who speaks to whom over one number of a connection.

The side that opened a connection binds channels; both sides speak over them.  A channel names both
replicas with their incarnations, so what travels needs no names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardlog.protocol.entry import Member
from shardlog.protocol.failures import NoReplica
from shardlog.protocol.messages import ClientRefused, Entries, Envelope, Fetched, Message
from shardlog.transport.connection import Connection, Receiver, State
from shardlog.transport.failures import (
    MalformedFrame,
    NotPermitted,
    OutgoingFull,
    TransportFailure,
)
from shardlog.transport.frame_messages import encode_refused, from_message, to_replica_message
from shardlog.transport.frames import Frame, FrameType, encode_entries
from shardlog.transport.handshake import Attach, decode_attach, encode_attached
from shardlog_node.unfinished import UnfinishedFrame

if TYPE_CHECKING:
    from shardlog_node.data_plane import DataPlane

_OPEN = State.OPEN  # looked up once: every message asks

WITH_ENTRIES = (FrameType.ENTRIES, FrameType.FETCHED)

Key = tuple[str, str, int, int]
"""Shard, the other node, its incarnation, and ours."""


def key_of(envelope: Envelope) -> Key:
    """Of the channel that takes it."""
    return envelope.shard, envelope.dst, envelope.dst_incarnation, envelope.src_incarnation


class Channel:
    """`here` and `there` are who we are and who the other side is, as the channel names them."""

    __slots__ = ("connection", "here", "here_incarnation", "key", "number", "plane", "shard",
                 "there", "there_incarnation", "to")  # fmt: skip

    def __init__(self, plane: DataPlane, connection: Connection, number: int, key: Key) -> None:
        self.plane = plane
        self.connection = connection
        self.number = number
        self.key = key
        self.shard, self.there, self.there_incarnation, self.here_incarnation = key
        self.here = plane.name
        self.to = (self.shard, self.there)

    def send(self, message: Message) -> None:
        """Dropped if there is no room: who sends keeps within bounds, and asks again."""
        connection = self.connection
        if connection.state is not _OPEN:
            return
        try:
            if isinstance(message, Entries):
                raw = self.plane.raw_of(message.entries)
                connection.send(
                    encode_entries(
                        self.number, message.epoch, message.commit, message.first,
                        len(message.entries), raw,
                    )
                )  # fmt: skip
                self.plane.entries_sent[self.to] += sum(map(len, raw))
            else:
                frame = from_message(self.number, message)
                connection.send(frame)
                if isinstance(message, Fetched):
                    self.plane.fetched_sent[self.to] += sum(map(len, frame))
        except OutgoingFull:
            self.plane.dropped += 1

    def received(self, frame: Frame) -> None:
        try:
            message = to_replica_message(frame)
        except MalformedFrame:
            if frame.type in WITH_ENTRIES:
                source = Member(self.there, self.there_incarnation)
                self.plane.host.distrust(self.shard, source)
            raise
        self.plane.gather(
            Envelope(
                self.shard,
                self.there,
                self.there_incarnation,
                self.here,
                self.here_incarnation,
                message,
            )
        )


class Incoming(Receiver):
    """A connection that another node opened, which has proven that it is the node it names."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self._channels: dict[int, Channel] = {}
        self._connection: Connection
        self._unfinished: UnfinishedFrame

    def opened(self, connection: Connection) -> None:
        self._connection = connection
        self._unfinished = UnfinishedFrame(self._plane.unfinished_of_nodes, connection)
        self._plane.incoming.add(self)

    @property
    def node(self) -> str:
        return self._connection.name

    def look(self) -> None:
        """Now and then; the PING is for the cluster's clock."""
        self._unfinished.look()
        self._connection.ping()

    def received(self, connection: Connection, frames: list[Frame]) -> None:
        self._unfinished.finished()
        channels = self._channels
        for frame in frames:
            channel = channels.get(frame.channel)
            if frame.type == FrameType.ATTACH:
                self._attach(connection, frame.channel, decode_attach(frame))
            elif frame.type == FrameType.PONG:
                if channels:  # else it is not one of our shards' nodes
                    self._plane.pong(connection, frame)
            elif channel is not None:
                channel.received(frame)
            else:
                raise MalformedFrame(f"{FrameType(frame.type).name} on a channel that is not bound")

    def _attach(self, connection: Connection, number: int, attach: Attach) -> None:
        self._unbind(number)
        if attach.src != self.node:
            raise NotPermitted(f"{self.node} speaks for {attach.src}")
        if attach.dst != self._plane.name:
            refused = ClientRefused(0, 0, NoReplica(0))
            connection.send(encode_refused(number, refused))
            return
        key = (attach.shard, attach.src, attach.src_incarnation, attach.dst_incarnation)
        channel = self._channels[number] = Channel(self._plane, connection, number, key)
        self._plane.bind(key, channel)
        connection.send(encode_attached(number, self._plane.host.incarnation(attach.shard)))

    def _unbind(self, number: int) -> None:
        channel = self._channels.pop(number, None)
        if channel is not None:
            self._plane.unbind(channel.key, channel)

    def drained(self, connection: Connection) -> None:
        """What had no room was dropped; the protocol asks again."""

    def lost(self, connection: Connection, failure: TransportFailure | None) -> None:
        self._unfinished.forget()
        self._plane.incoming.discard(self)
        for number in list(self._channels):
            self._unbind(number)
        if not any(other.node == self.node for other in self._plane.incoming):
            self._plane.host.disconnected(self.node)
