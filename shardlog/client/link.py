"""One connection to a node, shared by everyone who talks to a shard there.

A shard gets a channel when somebody first asks for it.  On it calls wait for an answer by nonce,
and producers, each with a session of its own, hear of their requests by number.  Answers that
nobody waits for any more are dropped.  When the connection ends everyone is told, once.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Protocol

from shardlog.client.failures import Unreachable
from shardlog.protocol.failures import Refusal
from shardlog.protocol.messages import ClientRefused
from shardlog.transport.connection import Connection, State
from shardlog.transport.failures import MalformedFrame, TransportFailure
from shardlog.transport.frame_messages import to_message
from shardlog.transport.frames import CHANNELS_MAX, FIXED, Buffer, Frame, FrameType
from shardlog.transport.handshake import Attach, decode_attached, encode_attach

_IS_APPENDED = int(FrameType.APPENDED)  # a plain number: every answer is compared with it
_APPENDED = FIXED[FrameType.APPENDED].unpack
_NONCE = struct.Struct("<Q").unpack_from
_BY_NONCE = frozenset({FrameType.REGISTERED, FrameType.READ_RESULT, FrameType.LOCATED})
_ATTACHING = 0
"""What stands for a nonce where a channel is bound; those of calls begin with 1."""

Answer = Frame | Refusal


class Session(Protocol):
    """Who hears of the requests of one session, always from within the loop."""

    def appended(self, request: int, base: int) -> None: ...

    def refused(self, request: int, refusal: Refusal) -> None: ...

    def drained(self) -> None:
        """There is room for frames again."""

    def lost(self, failure: Unreachable) -> None: ...


class Channel:
    """A shard at a node."""

    __slots__ = ("calls", "incarnation", "link", "number", "sessions", "shard")

    def __init__(self, link: Link, number: int, shard: str) -> None:
        self.link = link
        self.number = number
        self.shard = shard
        self.incarnation = 0  # 0 until a replica is known to be there
        self.calls: dict[int, asyncio.Future[Answer]] = {}
        self.sessions: dict[int, Session] = {}

    @property
    def usable(self) -> bool:
        return self.incarnation != 0 and self.link.is_open

    async def call(self, nonce: int, frame: list[Buffer]) -> asyncio.Future[Answer]:
        """Send a request when there is room; its answer comes to the future."""
        connection = self.link.connection
        answer: asyncio.Future[Answer] = connection.loop.create_future()
        self.calls[nonce] = answer
        try:
            if connection.writable:
                connection.send(frame)
            else:
                await connection.send_when_writable(frame)
        except TransportFailure as failure:
            self.forget(nonce)
            raise self.link.unreachable(failure) from failure
        except asyncio.CancelledError:
            self.forget(nonce)
            raise
        return answer

    def forget(self, nonce: int) -> None:
        """Whoever asked does not wait any more."""
        answer = self.calls.pop(nonce, None)
        if answer is not None:
            answer.cancel()

    def take(self, frame: Frame) -> None:
        if frame.type in _BY_NONCE:
            self._answer(_NONCE(frame.payload)[0], frame)
        elif frame.type == FrameType.ATTACHED:
            self._answer(_ATTACHING, frame)
        elif frame.type == FrameType.REFUSED:
            refused = to_message(frame)
            assert isinstance(refused, ClientRefused)
            session = self.sessions.get(refused.session) if refused.session else None
            if session is not None:
                session.refused(refused.nonce, refused.refusal)
            elif not refused.session:
                self._answer(refused.nonce, refused.refusal)
        else:
            raise MalformedFrame(f"{FrameType(frame.type).name} is not for clients")

    def _answer(self, nonce: int, answer: Answer) -> None:
        waiting = self.calls.pop(nonce, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def lost(self, failure: Unreachable) -> None:
        self.incarnation = 0
        calls, self.calls = self.calls, {}
        for waiting in calls.values():
            if not waiting.done():
                waiting.set_exception(failure)
                waiting.exception()  # whoever asked may be gone
        for session in list(self.sessions.values()):
            session.lost(failure)


class Link:
    """A connection's receiver.  `connection` is there from the greeting on."""

    connection: Connection

    def __init__(self, address: str, reads_max: int, tails_max: int) -> None:
        self.address = address
        self.reads = asyncio.Semaphore(reads_max)
        """First come, first served: more reads than these at once a node may refuse."""
        self.tails = asyncio.Semaphore(tails_max)
        """Apart from the reads: a tail waits for what is yet to be appended."""
        self._channels: dict[int, Channel] = {}
        self._by_shard: dict[str, Channel] = {}
        self._attaching: dict[str, asyncio.Lock] = {}

    @property
    def name(self) -> str:
        """What the node calls itself."""
        return self.connection.name

    @property
    def is_open(self) -> bool:
        return self.connection.state is State.OPEN

    def unreachable(self, failure: TransportFailure | None) -> Unreachable:
        return Unreachable(f"{self.address}: {failure or 'the connection was closed here'}")

    async def attach(self, shard: str, timeout_ms: int) -> Channel:
        """The shard's channel, bound; without an incarnation if it has no replica there."""
        async with self._attaching.setdefault(shard, asyncio.Lock()):
            channel = self._by_shard.get(shard) or self._channel(shard)
            if channel.usable:
                return channel
            frame = encode_attach(channel.number, Attach(shard))
            answer = await channel.call(_ATTACHING, frame)
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    said = await answer
            except TimeoutError as failure:
                raise Unreachable(f"{self.address}: no answer in {timeout_ms} ms") from failure
            finally:
                channel.forget(_ATTACHING)
            channel.incarnation = decode_attached(said) if isinstance(said, Frame) else 0
            return channel

    def _channel(self, shard: str) -> Channel:
        number = len(self._by_shard) + 1
        if number >= CHANNELS_MAX:
            raise Unreachable(f"{self.address}: {number} shards on one connection are too many")
        channel = self._channels[number] = self._by_shard[shard] = Channel(self, number, shard)
        return channel

    # --- what the connection says ----------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        self.connection = connection

    def received(self, connection: Connection, frames: list[Frame]) -> None:
        channels = self._channels
        for frame in frames:
            kind, _, number, payload = frame
            channel = channels.get(number)
            if channel is None:
                continue
            if kind == _IS_APPENDED:
                session, request, base = _APPENDED(payload)
                producer = channel.sessions.get(session)
                if producer is not None:
                    producer.appended(request, base)
            else:
                channel.take(frame)

    def drained(self, connection: Connection) -> None:
        for channel in self._channels.values():
            for session in list(channel.sessions.values()):
                session.drained()

    def lost(self, connection: Connection, failure: TransportFailure | None) -> None:
        for channel in self._channels.values():
            channel.lost(self.unreachable(failure))
