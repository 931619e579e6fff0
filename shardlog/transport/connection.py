"""A connection of the data plane: frames over one stream, with every buffer bounded.

Outgoing bytes are gathered during one turn of the loop and written together.  Who sends must heed
`writable`, or wait with `send_when_writable`: past the bound `send` raises, so that one who does
not read can never grow our memory.  Incoming bytes are bounded by those who consume them: `hold`
what is not done with yet, `release` it later, and reading pauses in between.

A connection ends once, with one typed failure that everyone who waits is told.  Silence ends it
too: an idle side sends PING, and one that hears nothing for longer takes the other for lost.  While
reading is paused nothing can be heard, so silence does not count then, and the pings go on, lest
the other side should take us for lost.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from operator import itemgetter
from typing import Protocol, cast

from shardlog.transport import handshake
from shardlog.transport.failures import (
    ClosedUngreeted,
    FrameTooLarge,
    Malformed,
    MalformedFrame,
    NotPermitted,
    OutgoingFull,
    Rejected,
    SilentConnection,
    TransportFailure,
    Unreachable,
    VersionMismatch,
)
from shardlog.transport.frames import (
    FRAME_BYTES_MAX,
    GREETING_BYTES_MAX,
    Buffer,
    Frame,
    FrameType,
)
from shardlog.transport.handshake import Goodbye, Hello, Pong, Reason, Welcome
from shardlog.transport.inlet import Inlet

WallClock = Callable[[], int]
"""Nanoseconds since 1970."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Every bound of a connection.  Outgoing bytes may exceed theirs by one frame."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    outgoing_bytes_max: int = 8 << 20
    incoming_bytes_max: int = 8 << 20
    greeting_ms: int = 5_000
    ping_after_ms: int = 1_000
    silence_ms: int = 5_000
    closing_ms: int = 1_000


class Receiver(Protocol):
    """What a connection tells its owner, always from within the loop.

    `received` may raise `MalformedFrame`, and `opened` a `Rejected`: both end the connection with
    the reason.
    """

    def opened(self, connection: Connection) -> None: ...

    def received(self, connection: Connection, frames: list[Frame]) -> None: ...

    def drained(self, connection: Connection) -> None:
        """A connection that had no room, and so was not `writable`, has room again."""

    def lost(self, connection: Connection, failure: TransportFailure | None) -> None: ...


class State(Enum):
    """A connection only moves down this list."""

    NEW = auto()
    GREETING = auto()
    OPEN = auto()
    CLOSING = auto()
    CLOSED = auto()


# To look up a member of an enumeration takes as long as a call, and every frame asks for these.
_OPEN, _CLOSED = State.OPEN, State.CLOSED
_ENDED = (State.CLOSING, State.CLOSED)
_kind = itemgetter(0)
_ABOUT_THE_CONNECTION = frozenset(
    {FrameType.HELLO, FrameType.WELCOME, FrameType.GOODBYE, FrameType.PING}
)


class Connection(asyncio.BufferedProtocol):
    """One end.  `calling` tells whether this side opened it, and so speaks first."""

    def __init__(
        self,
        own: Hello,
        receiver: Receiver,
        limits: ConnectionLimits,
        wall_ns: WallClock,
        *,
        calling: bool,
    ) -> None:
        self.own = own._replace(frame_bytes_max=limits.frame_bytes_max)
        self.limits = limits
        self.calling = calling
        self.state = State.NEW
        self.version = 0
        self.name = ""
        """What the other side calls itself; TLS may say more, see `transport`."""
        self.hello: Hello | None = None
        """What the other side said, if it called."""
        self.frame_bytes_max = GREETING_BYTES_MAX
        """The longest payload that the other side accepts."""
        self.failure: TransportFailure | None = None
        self.loop = asyncio.get_running_loop()
        self.greeted: asyncio.Future[None] = self.loop.create_future()
        self.greeted.add_done_callback(_retrieved)
        self._ended: asyncio.Future[None] = self.loop.create_future()
        self._receiver = receiver
        self._wall_ns = wall_ns
        self._inlet = Inlet(min(GREETING_BYTES_MAX, limits.frame_bytes_max))
        self._gathered: list[Buffer] = []
        self._gathered_bytes = 0
        self._said_bytes = 0  # since the connection was made
        self._half_bytes = max(1, limits.outgoing_bytes_max // 2)
        self._writing_paused = False
        self._was_full = False
        self._reading_paused = False
        self._held_bytes = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._heard = True  # something, since the last look
        self._quiet_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        self._on_unfinished: Callable[[int], None] | None = None

    # --- sending -----------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        """Whether `send` takes another frame."""
        return not self._writing_paused and self._gathered_bytes < self._half_bytes

    @property
    def outgoing_bytes(self) -> int:
        """What waits here to be sent."""
        return self._gathered_bytes + self.transport.get_write_buffer_size()

    @property
    def said_bytes(self) -> int:
        """All that was ever to be sent."""
        return self._said_bytes

    @property
    def taken_bytes(self) -> int:
        """How much of it has left this process."""
        return self._said_bytes - self.outgoing_bytes

    def send(self, buffers: list[Buffer]) -> None:
        """Send a frame, or several, with all that is sent in this turn of the loop."""
        if self.state is not _OPEN:
            raise self._why_not()
        if self._writing_paused or self._gathered_bytes >= self._half_bytes:
            raise OutgoingFull(f"{self.outgoing_bytes} bytes wait to be sent")
        self._gather(buffers)

    async def send_when_writable(self, buffers: list[Buffer]) -> None:
        await self.until_writable()
        self.send(buffers)

    async def until_writable(self) -> None:
        """Return when `send` takes a frame; raises what ended the connection, if it has."""
        while not self.writable or self.state is not State.OPEN:
            if self.state is not State.OPEN:
                raise self._why_not()
            waiter = self.loop.create_future()
            self._waiting.append(waiter)
            await waiter

    def ping(self) -> None:
        """Ask for a PONG, which comes to `received` with what the other side's clock shows."""
        if self.state is State.OPEN and self.writable:
            self._gather(handshake.encode_ping(int(self.loop.time() * 1e9)))

    def _gather(self, buffers: list[Buffer]) -> None:
        if not self._gathered:
            self.loop.call_soon(self._flush)
        size = sum(map(len, buffers))
        self._gathered += buffers
        self._gathered_bytes += size
        self._said_bytes += size
        if self._gathered_bytes >= self._half_bytes:
            self._was_full = True

    def _flush(self) -> None:
        if not self._gathered or self.state is _CLOSED:
            return
        buffers, self._gathered = self._gathered, []
        self._gathered_bytes = 0
        try:
            self.transport.writelines(buffers)
        except RuntimeError:
            return  # uvloop's, of a transport that the loop itself has closed
        if self._was_full:
            self._tell_of_room()

    def _tell_of_room(self) -> None:
        if self._was_full and self.writable:
            self._was_full = False
            self._wake()
            if self.state is State.OPEN:
                self._receiver.drained(self)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def pause_writing(self) -> None:
        self._writing_paused = self._was_full = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._flush()
        self._tell_of_room()

    # --- receiving ---------------------------------------------------------------------------

    def hold(self, size: int) -> None:
        """So many received bytes are still in use."""
        self._held_bytes += size
        if self._held_bytes > self.limits.incoming_bytes_max and not self._reading_paused:
            self._reading_paused = True
            if self.state is not State.CLOSED:
                self.transport.pause_reading()

    def release(self, size: int) -> None:
        """They are not any more."""
        self._held_bytes -= size
        assert self._held_bytes >= 0, "more bytes released than held"
        if self._reading_paused and self._held_bytes <= self.limits.incoming_bytes_max // 2:
            self._reading_paused = False
            if self.state is not State.CLOSED:
                self.transport.resume_reading()

    def count_unfinished(
        self, tell: Callable[[int], None], may_reserve: Callable[[int], bool]
    ) -> None:
        """Tell after all that comes how many bytes are held for a frame that is not whole yet.

        Ask before more are set aside than have come.
        """
        self._on_unfinished = tell
        self._inlet.may_reserve = may_reserve

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._inlet.room()

    def eof_received(self) -> None:
        """The other side is done, which ends the connection: what it is owed by now goes first."""
        self._flush()

    def buffer_updated(self, nbytes: int) -> None:
        if self.state in _ENDED:
            return
        self._heard = True
        try:
            try:
                frames = self._inlet.taken(nbytes)
            except MalformedFrame as failure:
                self._take(failure.before)
                raise
            self._take(frames)
            if self._on_unfinished is not None:
                self._on_unfinished(self._inlet.waiting_bytes)
        except Malformed as failure:
            reason = Reason.TOO_LARGE if isinstance(failure, FrameTooLarge) else Reason.MALFORMED
            self._end(failure, reason)
        except VersionMismatch as failure:
            self._end(failure, Reason.VERSION)
        except Rejected as failure:
            self._end(failure, Reason.NOT_PERMITTED)

    def _take(self, frames: list[Frame]) -> None:
        if self.state is not _OPEN and frames:
            self._greet(frames[0])
            del frames[0]
        if _ABOUT_THE_CONNECTION.isdisjoint(map(_kind, frames)):
            self._deliver(frames)
            return
        others: list[Frame] = []
        for frame in frames:
            if frame.type not in _ABOUT_THE_CONNECTION:
                others.append(frame)
            elif frame.type == FrameType.PING:
                self._answer(frame)
            else:
                self._deliver(others)  # what came before the goodbye counts
                if frame.type != FrameType.GOODBYE:
                    raise MalformedFrame(f"{FrameType(frame.type).name} after the greeting")
                self._dismissed(handshake.decode_goodbye(frame))
                return
        self._deliver(others)

    def _deliver(self, frames: list[Frame]) -> None:
        if frames and self.state is _OPEN:
            self._receiver.received(self, frames)

    def _answer(self, ping: Frame) -> None:
        if self.state is State.OPEN and self.writable:
            pong = Pong(handshake.decode_ping(ping), self._wall_ns())
            self._gather(handshake.encode_pong(pong))

    def _greet(self, frame: Frame) -> None:
        if frame.type == FrameType.GOODBYE:
            self._dismissed(handshake.decode_goodbye(frame))
            return
        if self.calling:
            welcome = handshake.decode_welcome(frame)
            if not handshake.VERSION_MIN <= welcome.version <= handshake.VERSION_MAX:
                raise VersionMismatch(f"{welcome.name} wants version {welcome.version}")
            self.version, self.name, self.frame_bytes_max = welcome
        else:
            self.hello = hello = handshake.decode_hello(frame)
            self.version, self.name = handshake.choose_version(hello), hello.name
            self.frame_bytes_max = hello.frame_bytes_max
        self.state = State.OPEN
        self._receiver.opened(self)
        if self.state is not State.OPEN:
            return
        if not self.calling:
            own = Welcome(self.version, self.own.name, self.limits.frame_bytes_max)
            self._gathered[:0] = welcomed = handshake.encode_welcome(own)
            size = sum(map(len, welcomed))
            self._gathered_bytes += size
            self._said_bytes += size
            self._flush()
        self._inlet.accept(self.limits.frame_bytes_max)
        self._watch()
        if not self.greeted.done():
            self.greeted.set_result(None)

    def _dismissed(self, goodbye: Goodbye) -> None:
        self._end(handshake.failure_of(goodbye, self.name), None)

    # --- the connection's life ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=self._half_bytes, low=self._half_bytes // 2)
        self.state = State.GREETING
        self._timer = self.loop.call_later(self.limits.greeting_ms / 1000, self._greeting_is_late)
        if self.calling:
            self._gather(handshake.encode_hello(self.own))
            self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.state is not State.CLOSING and self.failure is None:
            self.failure = self._failure_of(exc)
        was_open = self.version != 0
        self.state = State.CLOSED
        self._inlet.forget()
        if self._timer is not None:
            self._timer.cancel()
        self._gathered.clear()
        self._gathered_bytes = 0
        self._wake()
        if not self.greeted.done():
            self.greeted.set_exception(self._why_not())
        if not self._ended.done():
            self._ended.set_result(None)
        if was_open:
            self._receiver.lost(self, self.failure)

    def _failure_of(self, exc: Exception | None) -> TransportFailure:
        if isinstance(exc, ssl.SSLError):
            return NotPermitted(str(exc))
        if self.state is State.GREETING and (exc is None or isinstance(exc, ConnectionError)):
            return ClosedUngreeted("the other side closed the connection before its greeting")
        return Unreachable(str(exc) if exc else "the other side closed the connection")

    def close(self, reason: Reason = Reason.CLOSING, text: str = "") -> None:
        """Say goodbye, send what is gathered, and end; what cannot be sent in time is dropped."""
        if self.state in (State.NEW, State.CLOSING, State.CLOSED):
            return
        self.state = State.CLOSING
        self._gather(handshake.encode_goodbye(Goodbye(reason, text)))
        self._flush()
        self._shut()

    async def closed(self) -> None:
        """Return when the connection has ended, for whatever reason."""
        await asyncio.shield(self._ended)

    def _end(self, failure: TransportFailure, reason: Reason | None) -> None:
        if self.failure is None:
            self.failure = failure
        if reason is not None:
            self.close(reason, str(failure))
        elif self.state not in (State.CLOSING, State.CLOSED):
            self.state = State.CLOSING
            self._shut()

    def _shut(self) -> None:
        self._inlet.forget()
        self._wake()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(self.limits.closing_ms / 1000, self.transport.abort)
        self.transport.close()

    def _why_not(self) -> TransportFailure:
        if self.failure is None:
            return Unreachable("the connection is not open")
        return type(self.failure)(str(self.failure))

    def _greeting_is_late(self) -> None:
        self._end(SilentConnection("no greeting in time"), Reason.TIMEOUT)

    def _watch(self) -> None:
        """Ping when it is quiet, end when it is too quiet: counted by looks, not by the clock.

        After a standstill of this process, what came meanwhile is still to be read.
        """
        if self._timer is not None:
            self._timer.cancel()
        interval_ms = self.limits.ping_after_ms
        listened = not self._heard and not self._reading_paused
        self._quiet_ms = self._quiet_ms + interval_ms if listened else 0
        self._heard = False
        if self._quiet_ms >= self.limits.silence_ms:
            self._end(SilentConnection(f"{self.name} has been silent"), Reason.TIMEOUT)
            return
        if self._quiet_ms or self._reading_paused:
            self.ping()
        self._timer = self.loop.call_later(interval_ms / 1000, self._watch)


def _retrieved(greeted: asyncio.Future[None]) -> None:
    """Nobody waits for a greeting on the side that was called."""
    if not greeted.cancelled():
        greeted.exception()
