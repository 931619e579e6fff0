"""Clients of a node: what they ask, what they are owed, and how much of it may be under way.

Bytes of appends count against their connection, which then stops reading, and against the node,
which then refuses; both until the answer is given.  Answers to reads count against the node from
when they are read until they are taken, and there are only so many of them for one client.  One
that takes nothing for as long as it may be silent is dismissed; and if frames that have begun are
too many bytes together, then those whose senders have finished none for longest.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Protocol

from shardlog.protocol.entry import Body
from shardlog.protocol.failures import Illegal, NotLeader, NotReady, Overloaded, Refusal
from shardlog.protocol.messages import (
    Append,
    Appended,
    ClientRefused,
    Envelope,
    Message,
    Read,
    ReadResult,
    Register,
    Registered,
)
from shardlog.transport.batch import flaw_of
from shardlog.transport.connection import Connection, Receiver, State
from shardlog.transport.entries import fills, join_entries
from shardlog.transport.failures import MalformedFrame, OutgoingFull, TransportFailure
from shardlog.transport.frame_messages import encode_refused
from shardlog.transport.frames import (
    FIXED,
    READ_OWN,
    READ_TAIL,
    READ_VERIFIED,
    Buffer,
    Frame,
    FrameType,
    encode_appended,
    encode_read_result,
    encode_registered,
)
from shardlog.transport.handshake import Reason, decode_attach, encode_attached
from shardlog_node.answer_window import AnswerWindow
from shardlog_node.unfinished import UnfinishedFrame
from shardlog_node.waves import LONE_BYTES_MAX

if TYPE_CHECKING:
    from shardlog_node.data_plane import DataPlane

READ_ENTRIES_MAX = 1024
COPIED_BELOW_BYTES = 16 << 10
REQUEST_COST_BYTES = 1 << 10
"""What a request takes on its way besides its bytes: many small ones are much memory as well."""

REGISTERED_PER_S = 8
"""So many sessions a second a connection may open of a shard, beyond those at once."""

REGISTERED_IN_VAIN_MAX = 8192
"""So many refused registrations end their connection: to refuse them takes time, too."""

CHANNELS_ALWAYS = 16

# To look up a member of an enumeration takes as long as a call, and every append asks for these.
_APPEND_TYPE = int(FrameType.APPEND)
_OPEN = State.OPEN
_APPEND = FIXED[FrameType.APPEND].unpack_from
_APPEND_BYTES = FIXED[FrameType.APPEND].size
_READ = FIXED[FrameType.READ].unpack
_LOCATE = FIXED[FrameType.LOCATE].unpack
_REGISTER = FIXED[FrameType.REGISTER].unpack


class Budget:
    """Bytes that may be under way in this node, for all clients together."""

    __slots__ = ("bytes", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self.bytes_max = bytes_max

    def take(self, size: int) -> bool:
        if self.bytes + size > self.bytes_max and self.bytes:
            return False
        self.bytes += size
        return True

    def add(self, size: int) -> None:
        """What is there already, room or no room."""
        self.bytes += size

    def give_back(self, size: int) -> None:
        self.bytes -= size
        assert self.bytes >= 0, "more was given back than taken"


class Holding(Protocol):
    """Stops taking more while too many bytes are held."""

    def hold(self, size: int) -> None: ...

    def release(self, size: int) -> None: ...


class Port(Protocol):
    """Where the answers of a channel go, and who is held up by what it asks."""

    reads: int
    tails: int
    window: AnswerWindow

    @property
    def connection(self) -> Holding: ...

    def may_register(self, shard: str) -> bool:
        """Whether it may open another session there: one client must not end those of all."""

    def send(self, frame: list[Buffer]) -> None:
        """An answer that must be taken."""

    def deliver(self, frame: list[Buffer]) -> None:
        """A read's answer, which counts as a read until it is taken."""


class ClientChannel:
    """One shard on one connection.  `name` is what replicas know it by."""

    __slots__ = ("_answered_s", "_lone", "name", "number", "plane", "port", "reads", "registering",
                 "shard", "tails", "unanswered", "wave")  # fmt: skip

    def __init__(self, plane: DataPlane, port: Port, number: int, shard: str) -> None:
        self.plane = plane
        self.port = port
        self.number = number
        self.shard = shard
        # Appends that are not answered yet, by session and request: what they are charged, and the
        # checksum and count of their batch.
        self.unanswered: dict[tuple[int, int], tuple[int, int, int]] = {}
        # Reads that are not answered yet, and what is set aside for their answers.
        self.reads: dict[int, int] = {}
        # Tails that have not been answered; registrations, and what they are charged.
        self.tails: set[int] = set()
        self.registering: dict[int, int] = {}
        # When the last append was answered, and the one that may wait for those of others.
        self._answered_s = 0.0
        self._lone: tuple[int, int] | None = None
        self.wave = plane.join_wave(shard)
        self.name = plane.name_client(self)

    # --- asked -----------------------------------------------------------------------------------

    def append(self, payload: memoryview) -> None:
        session, request, body_checksum, count, _ = _APPEND(payload)
        key = (session, request)
        flaw = flaw_of(payload, count, _APPEND_BYTES)
        if flaw is not None:
            self._turn_away(session, request, Illegal(f"no batch of records: {flaw}"))
            return
        size = len(payload) - _APPEND_BYTES
        known = self.unanswered.get(key)
        if known is not None:
            self._repeat(key, (body_checksum, count), known)
            return
        if not session:
            raise MalformedFrame("no session has number 0")
        lone = not self.unanswered and size <= LONE_BYTES_MAX
        refusal = self._refusal_of(size)
        if refusal is not None:
            self._turn_away(session, request, refusal)
            return
        held = size + REQUEST_COST_BYTES
        self.unanswered[key] = held, body_checksum, count
        self.port.connection.hold(held)
        asked = self._asked(Append(session, request, count, _body(payload), body_checksum))
        if lone:
            self._lone = key
            self.wave.present += 1
            self.plane.gather_lone(self.wave, asked, size, self._answered_s)
        else:
            self.plane.gather_append(self.wave, asked)

    def _repeat(
        self, key: tuple[int, int], batch: tuple[int, int], known: tuple[int, int, int]
    ) -> None:
        """One with a number that is under way here: the answer is that to the first, if it is one.

        It goes no further, so that what it is answered releases nothing of the first.
        """
        if batch != known[1:]:
            self._turn_away(*key, NotReady("another batch has this number, and is not answered"))

    def _refusal_of(self, size: int) -> Refusal | None:
        plane = self.plane
        if size > plane.limits.entry_bytes_max:
            return Illegal(f"a batch of {size} bytes, more than {plane.limits.entry_bytes_max}")
        if not plane.budget.take(size + REQUEST_COST_BYTES):
            return Overloaded(plane.budget.bytes)
        return None

    def read(self, flags: int, nonce: int, start: int, entries_max: int, bytes_max: int) -> None:
        limits = self.plane.limits
        self._check_nonce(nonce)
        if flags & (READ_TAIL | READ_VERIFIED | READ_OWN):
            self._tail(flags, nonce, start, bytes_max)
        elif self.port.reads >= limits.reads_max:
            self._turn_away(0, nonce, Overloaded(self.port.reads))
        else:
            size = limits.read_bytes_max if entries_max else REQUEST_COST_BYTES
            owes = entries_max and self.port.window.owed > self.port.window.most
            if owes or not self.plane.answers.take(size):
                self._turn_away(0, nonce, Overloaded(self.plane.answers.bytes))
                return
            self._begin_read(nonce, size)
            self._ask(Read(nonce, start, min(entries_max, READ_ENTRIES_MAX)))

    def _tail(self, flags: int, nonce: int, start: int, bytes_max: int) -> None:
        """One that waits costs little, and counts as a read only when it is answered."""
        limits = self.plane.limits
        if self.port.tails >= limits.tails_max:
            self._turn_away(0, nonce, Overloaded(self.port.tails))
            return
        self.tails.add(nonce)
        self.port.tails += 1
        most = min(bytes_max or limits.read_bytes_max, limits.tail_bytes_max)
        verified, own = bool(flags & READ_VERIFIED), bool(flags & READ_OWN)
        self.plane.tails.read(self, nonce, start, most, verified, own)

    def awaits(self, nonce: int) -> bool:
        """Whether somebody still waits for this tail."""
        return nonce in self.tails

    def begins_answer(self, nonce: int) -> bool:
        """Whether a tail may be answered now, and counts as a read; else when others have been."""
        if self.port.reads >= self.plane.limits.reads_max:
            return False
        self._end_tail(nonce)
        self.reads[nonce] = 0
        self.port.reads += 1
        return True

    def _end_tail(self, nonce: int) -> None:
        if nonce in self.tails:
            self.tails.remove(nonce)
            self.port.tails -= 1

    def locate(self, nonce: int, timestamp_ms: int) -> None:
        self._check_nonce(nonce)
        if self.port.reads >= self.plane.limits.reads_max:
            self._turn_away(0, nonce, Overloaded(self.port.reads))
            return
        self._begin_read(nonce)
        self.plane.tails.locate(self, nonce, timestamp_ms)

    def register(self, nonce: int) -> None:
        if nonce in self.reads or nonce in self.tails:
            raise _in_use(nonce)
        if not self.port.may_register(self.shard):
            self._turn_away(0, nonce, Overloaded(self.plane.limits.registered_max))
            return
        if not self.plane.budget.take(REQUEST_COST_BYTES):
            self._turn_away(0, nonce, Overloaded(self.plane.budget.bytes))
            return
        self.registering[nonce] = self.registering.get(nonce, 0) + REQUEST_COST_BYTES
        self.port.connection.hold(REQUEST_COST_BYTES)
        self._ask(Register(nonce))

    def _registered(self, nonce: int) -> None:
        self._give_back(self.registering.pop(nonce, 0))

    def _give_back(self, size: int) -> None:
        self.plane.budget.give_back(size)
        self.port.connection.release(size)

    def _ask(self, message: Message) -> None:
        self.plane.gather(self._asked(message))

    def _asked(self, message: Message) -> Envelope:
        return Envelope(self.shard, self.name, 0, self.plane.name, 0, message)

    def _check_nonce(self, nonce: int) -> None:
        if nonce in self.reads or nonce in self.tails or nonce in self.registering:
            raise _in_use(nonce)

    def _begin_read(self, nonce: int, set_aside: int = 0) -> None:
        self.reads[nonce] = set_aside
        self.port.reads += 1

    # --- answered --------------------------------------------------------------------------------

    def answer(self, message: Message) -> None:
        if isinstance(message, Appended):
            self._settle(message.session, message.request)
            self.port.send(
                encode_appended(self.number, message.session, message.request, message.base)
            )
        elif isinstance(message, ClientRefused):
            self.refuse(message.session, message.nonce, message.refusal)
        elif isinstance(message, ReadResult):
            raw = join_entries(message.entries)
            count = len(message.entries)
            self.result(message.nonce, encode_read_result(
                self.number, message.nonce, message.commit, count, raw
            ))  # fmt: skip
        elif isinstance(message, Registered):
            self._registered(message.nonce)
            self.port.send(encode_registered(self.number, message.nonce, message.session))

    def result(self, nonce: int, frame: list[Buffer]) -> None:
        """Of a read."""
        if nonce in self.tails:  # there was nothing to read
            self._end_tail(nonce)
            self.port.reads += 1
            self.port.deliver(frame)
        elif nonce in self.reads:
            self.plane.answers.give_back(self.reads.pop(nonce))
            self.port.deliver(frame)

    def _turn_away(self, session: int, nonce: int, refusal: Refusal) -> None:
        """What has not begun: whatever else has this number goes on."""
        self.plane.refusals[type(refusal).__name__] += 1
        self.port.send(encode_refused(self.number, ClientRefused(session, nonce, refusal)))

    def refuse(self, session: int, nonce: int, refusal: Refusal) -> None:
        """What is under way."""
        self._settle(session, nonce)
        if not session:
            self._end_tail(nonce)
            self._registered(nonce)
            if nonce in self.reads:
                self.plane.answers.give_back(self.reads.pop(nonce))
                self.port.reads -= 1
        self._turn_away(session, nonce, refusal)

    def _settle(self, session: int, request: int) -> None:
        known = self.unanswered.pop((session, request), None)
        if known is not None:
            self._give_back(known[0])
            self._answered_s = self.plane.now_s()
            self._leave(session, request)

    def _leave(self, session: int, request: int) -> None:
        if self._lone == (session, request):
            self._lone = None
            self.wave.present -= 1

    def refuse_all(self) -> None:
        """Nobody will answer: the client has to look for the leader."""
        for session, request in list(self.unanswered):
            self.refuse(session, request, NotLeader(None))
        for nonce in [*self.reads, *self.tails, *self.registering]:
            self.refuse(0, nonce, NotLeader(None))

    def close(self) -> None:
        held = sum([each[0] for each in self.unanswered.values()])
        self.port.connection.release(held)
        self.plane.abandoned.add(self.shard, held)
        self._give_back(sum(self.registering.values()))
        self.unanswered.clear()
        self.registering.clear()
        if self._lone is not None:
            self._leave(*self._lone)
        self.plane.leave_wave(self.shard)
        self.port.reads -= len(self.reads)
        self.plane.answers.give_back(sum(self.reads.values()))
        self.reads.clear()
        self.port.tails -= len(self.tails)
        self.tails.clear()
        self.plane.forget_client(self.name)


class ClientPort(Receiver):
    """A connection that a client opened."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self._channels: dict[int, ClientChannel] = {}
        self.connection: Connection
        # Reads that are not answered, or whose answer has not been sent yet.
        self.reads = 0
        self.tails = 0
        self.window = AnswerWindow(plane.answers.bytes_max)
        # Sessions opened of late, by shard.
        self._registered: Counter[str] = Counter()
        self._results: deque[list[Buffer]] = deque()
        # Of answers to reads: how long, and how much must be taken until each has been.
        self._untaken: deque[tuple[int, int]] = deque()
        self._stuck_ms = 0
        self._unfinished: UnfinishedFrame

    def opened(self, connection: Connection) -> None:
        self.connection = connection
        self._unfinished = UnfinishedFrame(self._plane.unfinished, connection)
        self._plane.ports.add(self)

    def received(self, connection: Connection, frames: list[Frame]) -> None:
        self._unfinished.finished()
        channels = self._channels
        for kind, flags, number, payload in frames:
            channel = channels.get(number)
            if kind == _APPEND_TYPE and channel is not None:
                channel.append(payload)
            elif channel is None or kind == FrameType.ATTACH:
                self._unbound(Frame(kind, flags, number, payload))
            elif kind == FrameType.READ:
                channel.read(flags, *_READ(payload))
            elif kind == FrameType.LOCATE:
                channel.locate(*_LOCATE(payload))
            elif kind == FrameType.REGISTER:
                channel.register(*_REGISTER(payload))
            elif kind != FrameType.PONG:
                raise MalformedFrame(f"{FrameType(kind).name} is not for clients to send")

    def may_register(self, shard: str) -> bool:
        self._registered[shard] += 1
        beyond = self._registered[shard] - self._plane.limits.registered_max
        if beyond > REGISTERED_IN_VAIN_MAX:
            self.dismiss("registrations are refused, and go on")
        return beyond <= 0

    def dismiss(self, why: str) -> None:
        self._unfinished.forget()
        self.connection.close(Reason.OVERLOADED, why)

    def _unbound(self, frame: Frame) -> None:
        if frame.type == FrameType.ATTACH:
            attach = decode_attach(frame)
            bound = self._channels.pop(frame.channel, None)
            if bound is not None:
                bound.close()
            if not self._may_bind():
                why = f"{len(self._channels)} channels are bound"
                self.connection.close(Reason.OVERLOADED, why)
                return
            self._channels[frame.channel] = ClientChannel(
                self._plane, self, frame.channel, attach.shard
            )
            incarnation = self._plane.host.incarnation(attach.shard)
            self.send(encode_attached(frame.channel, incarnation))
        elif frame.type != FrameType.PONG:
            raise MalformedFrame(f"{FrameType(frame.type).name} on a channel that is not bound")

    def _may_bind(self) -> bool:
        """A few channels each connection has, however many all have."""
        bound, plane = len(self._channels), self._plane
        is_one_of_few = bound < CHANNELS_ALWAYS or plane.channels < plane.limits.all_channels_max
        return bound < plane.limits.channels_max and is_one_of_few

    @property
    def unsent_bytes(self) -> int:
        """Of answers that are not counted as answers to reads."""
        return max(self.connection.outgoing_bytes - self.window.owed, 0)

    def send(self, frame: list[Buffer]) -> None:
        """An answer that must be taken."""
        if self.connection.state is _OPEN:
            try:
                self.connection.send(frame)
            except OutgoingFull:
                self.dismiss("answers are not taken")

    def deliver(self, frame: list[Buffer]) -> None:
        """A read's answer, which waits for room."""
        self._plane.answers.add(_length(frame))
        self.window.owed += _length(frame)
        self._results.append(frame)
        self.drained(self.connection)
        self.settle()

    def drained(self, connection: Connection) -> None:
        while self._results and connection.writable and connection.state is State.OPEN:
            self.reads -= 1
            frame = self._results.popleft()
            connection.send(frame)
            self._untaken.append((_length(frame), connection.said_bytes))
        if self._plane.tails.held:
            connection.loop.call_soon(self._plane.tails.go_on)

    def settle(self) -> None:
        """What has been taken counts no more."""
        if self._untaken:
            taken = self.connection.taken_bytes
            while self._untaken and self._untaken[0][1] <= taken:
                size, _ = self._untaken.popleft()
                self._plane.answers.give_back(size)
                self.window.owed -= size

    def look(self, passed_ms: int) -> None:
        """Whether enough of what waits has been taken since the last look."""
        self._unfinished.look()
        self.settle()
        self._registered.subtract(
            dict.fromkeys(self._registered, REGISTERED_PER_S * passed_ms // 1000)
        )
        self._registered = +self._registered
        connection = self.connection
        stuck = self.window.is_slow(connection.taken_bytes, connection.outgoing_bytes, passed_ms)
        self._stuck_ms = self._stuck_ms + passed_ms if stuck else 0
        if self._stuck_ms >= self._plane.limits.connection.silence_ms:
            self.dismiss("answers are not taken")

    def lost(self, connection: Connection, failure: TransportFailure | None) -> None:
        self._plane.ports.discard(self)
        self._plane.tails.forget(self)
        self._unfinished.forget()
        left = sum(map(_length, self._results)) + sum(size for size, _ in self._untaken)
        self._plane.answers.give_back(left)
        self._untaken.clear()
        self._results.clear()
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()


def _in_use(nonce: int) -> MalformedFrame:
    return MalformedFrame(f"the nonce {nonce} is in use")


def _body(payload: memoryview) -> Body:
    """Not copied if it is long, and nearly all of what it would keep alive."""
    body = payload[_APPEND_BYTES:]
    if len(body) < COPIED_BELOW_BYTES or not fills(body):
        return bytes(body)
    return body


def _length(frame: list[Buffer]) -> int:
    return sum(map(len, frame))
