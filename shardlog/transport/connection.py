"""A connection of the data plane: frames over one stream, with every buffer bounded.

Outgoing bytes are gathered during one turn of the loop and written together.  Who sends must heed
`writable`, or wait with `send_when_writable`: past the bound `send` raises, so that one who does
not read can never grow our memory.  Incoming bytes are bounded by those who consume them: `hold`
what is not done with yet, `release` it later, and reading pauses in between.

Between nodes both sides prove in the greeting that they have the key of the cluster.  Nothing but
the greeting goes either way before the side it goes to has done so.

A connection ends once, with one typed failure that everyone who waits is told.  Silence ends it
too: an idle side sends PING, and one that hears nothing for longer takes the other for lost.  While
reading is paused nothing can be heard, so silence does not count then, and the pings go on, lest
the other side should take us for lost.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from operator import itemgetter
from typing import Protocol, cast

from shardlog.transport import handshake
from shardlog.transport.cluster_key import CALLED, CALLING, ClusterKey
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
from shardlog.transport.handshake import NONCE_BYTES, Goodbye, Hello, Pong, Reason, Role, Welcome
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


PINGED_MAX = 16
"""An answer to one that was sent before so many others does not count."""
PONGS_UNSENT_MAX = 16
"""While so many answers wait to be sent, a PING gets none: the other side does not read."""

# To look up a member of an enumeration takes as long as a call, and every frame asks for these.
_OPEN, _CLOSED = State.OPEN, State.CLOSED
_ENDED = (State.CLOSING, State.CLOSED)
_kind = itemgetter(0)
_ABOUT_THE_CONNECTION = frozenset(
    {FrameType.HELLO, FrameType.WELCOME, FrameType.GOODBYE, FrameType.PING}
)


class Connection(asyncio.BufferedProtocol):
    """One end.  `calling` tells whether this side opened it, and so speaks first.

    Without a `key` this side is no node to other nodes.
    """

    def __init__(
        self,
        own: Hello,
        receiver: Receiver,
        limits: ConnectionLimits,
        wall_ns: WallClock,
        *,
        calling: bool,
        key: ClusterKey | None = None,
    ) -> None:
        self._nonce = secrets.token_bytes(NONCE_BYTES) if own.role is Role.NODE else b""
        self.own = own._replace(frame_bytes_max=limits.frame_bytes_max, nonce=self._nonce)
        self._key = key
        self.limits = limits
        self.calling = calling
        self.state = State.NEW
        self.version = 0
        self.name = ""
        """What the other side calls itself; of a node it is proven."""
        self.peer = ""
        """host:port of the other side, for people."""
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
        self._pinged_ns: deque[int] = deque(maxlen=PINGED_MAX)  # when, of what is not answered
        # What was to be sent up to each of the latest PONGs.
        self._ponged_bytes: deque[int] = deque(maxlen=PONGS_UNSENT_MAX)
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
            now_ns = int(self.loop.time() * 1e9)
            self._pinged_ns.append(now_ns)
            self._gather(handshake.encode_ping(now_ns))

    def answers_ping(self, echo_ns: int) -> bool:
        """Whether a PONG answers a PING of this side, which no other answers any more."""
        while self._pinged_ns and self._pinged_ns[0] <= echo_ns:
            if self._pinged_ns.popleft() == echo_ns:
                return True
        return False

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
            if self.state is State.GREETING and self._inlet.waiting_bytes > GREETING_BYTES_MAX:
                raise FrameTooLarge("more than a greeting")
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
        while frames and self.state is State.GREETING:
            self._greet(frames.pop(0))
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
        if self.state is not State.OPEN or not self.writable:
            return
        ponged = self._ponged_bytes
        if len(ponged) == PONGS_UNSENT_MAX and ponged[0] > self.taken_bytes:
            return
        self._gather(handshake.encode_pong(Pong(handshake.decode_ping(ping), self._wall_ns())))
        ponged.append(self._said_bytes)

    def _greet(self, frame: Frame) -> None:
        """One step of the greeting; the last one opens the connection."""
        if frame.type == FrameType.GOODBYE:
            self._dismissed(handshake.decode_goodbye(frame))
        elif self.calling:
            self._welcomed(handshake.decode_welcome(frame, self.own.role))
        elif self.hello is None:
            self._called(handshake.decode_hello(frame))
        else:
            self._proven(self.hello, handshake.decode_proof(frame))

    def _welcomed(self, welcome: Welcome) -> None:
        if not handshake.VERSION_MIN <= welcome.version <= handshake.VERSION_MAX:
            raise VersionMismatch(f"{welcome.name} wants version {welcome.version}")
        if self.own.role is Role.NODE:
            key, about = self._key, self._about(self.own, welcome)
            if key is None or not key.proves(welcome.proof, CALLED, *about):
                raise NotPermitted(f"{welcome.name} does not have this node's cluster key")
            self._gather(handshake.encode_proof(key.proof(CALLING, *about)))
        self._open(welcome.version, welcome.name, welcome.frame_bytes_max)

    def _called(self, hello: Hello) -> None:
        self.hello = hello
        own = Welcome(
            handshake.choose_version(hello), self.own.name, self.limits.frame_bytes_max
        )  # fmt: skip
        if hello.role is Role.CLIENT:
            self._open(own.version, hello.name, hello.frame_bytes_max)
            if self.state is State.OPEN:
                self._welcome(own)
            return
        if self._key is None:
            raise NotPermitted(f"{self.own.name} has no key of a cluster")
        own = own._replace(nonce=self._nonce)
        proof = self._key.proof(CALLED, *self._about(hello, own))
        self._welcome(own._replace(proof=proof))
        # What follows the proof may be long, and come with it.
        self._inlet.may_reserve = _never
        self._inlet.accept(self.limits.frame_bytes_max)

    def _proven(self, hello: Hello, proof: bytes) -> None:
        own = Welcome(0, self.own.name, 0, self._nonce)
        if self._key is None or not self._key.proves(proof, CALLING, *self._about(hello, own)):
            raise NotPermitted(f"{hello.name} does not have {self.own.name}'s cluster key")
        self._inlet.may_reserve = bool
        self._open(handshake.choose_version(hello), hello.name, hello.frame_bytes_max)

    def _about(self, hello: Hello, welcome: Welcome) -> tuple[bytes, bytes, bytes, bytes]:
        """What both sides prove is about this connection alone."""
        return hello.name.encode(), welcome.name.encode(), hello.nonce, welcome.nonce

    def _welcome(self, own: Welcome) -> None:
        """Goes before all that was gathered when the connection opened."""
        self._gathered[:0] = welcomed = handshake.encode_welcome(own)
        size = sum(map(len, welcomed))
        self._gathered_bytes += size
        self._said_bytes += size
        self._flush()

    def _open(self, version: int, name: str, frame_bytes_max: int) -> None:
        self.version, self.name, self.frame_bytes_max = version, name, frame_bytes_max
        self.state = State.OPEN
        self._receiver.opened(self)
        if self.state is not State.OPEN:
            return
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
        host, port, *_ = transport.get_extra_info("peername") or ("?", 0)
        self.peer = f"{host}:{port}"
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


def _never(size: int) -> bool:
    """Whether room may be reserved for somebody who has proven nothing yet."""
    return False


def _retrieved(greeted: asyncio.Future[None]) -> None:
    """Nobody waits for a greeting on the side that was called."""
    if not greeted.cancelled():
        greeted.exception()
