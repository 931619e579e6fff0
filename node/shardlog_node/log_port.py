"""A stream of the public service as a client of the data plane: frames without a connection.

It asks through a `ClientChannel` like any client, so its bytes, its reads and what it is refused
are counted with everybody's, and no rule is written twice.  What a connection would do with the
answers is done here: those to questions wake whoever asked, those to appends are handed on.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from shardlog.protocol.failures import Refusal
from shardlog.protocol.messages import Appended, ClientRefused, Registered
from shardlog.transport.frame_messages import to_message
from shardlog.transport.frames import (
    FIXED,
    HEAD_BYTES,
    READ_TAIL,
    READ_VERIFIED,
    Buffer,
    Decoder,
    FrameType,
)
from shardlog_node.answer_window import AnswerWindow
from shardlog_node.clients import ClientChannel

if TYPE_CHECKING:
    from shardlog_node.data_plane import DataPlane

Answer = Appended | ClientRefused

BEYOND = 1 << 62
"""An offset that no log reaches, and that is never trimmed."""

_APPEND = FIXED[FrameType.APPEND].pack
_RESULT = FIXED[FrameType.READ_RESULT].unpack_from
_LOCATED = FIXED[FrameType.LOCATED].unpack_from
_TYPE_AT = 4


def _random_nonce() -> int:
    return 1 << 62 | secrets.randbits(62)


class Refused(Exception):  # noqa: N818 - named after what happened
    """A question was answered with a refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class Found:
    """Raw entries, not verified, and the commit offset when they were read."""

    commit: int
    count: int
    raw: memoryview


class Located(NamedTuple):
    """Where a time is in the log, and where the log begins and ends."""

    offset: int
    first: int
    commit: int


class LogPort:
    """One stream and one shard.  `on_answer` is told of appends; `close` ends all of it."""

    def __init__(
        self,
        plane: DataPlane,
        shard: str,
        on_answer: Callable[[Answer], None] = lambda answer: None,
    ) -> None:
        self.reads = self.tails = 0
        # It asks for one thing at a time, and what it is answered is taken at once.
        self.window = AnswerWindow(plane.answers.bytes_max)
        self.held_bytes = 0
        self._bytes_max = plane.limits.connection.incoming_bytes_max
        self._on_answer = on_answer
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._nonce = 0
        self._released = asyncio.Event()
        self._closed = False
        self._channel = ClientChannel(plane, self, 0, shard)

    def may_register(self, shard: str) -> bool:
        """A stream opens one session."""
        return True

    @property
    def connection(self) -> LogPort:
        """What is held holds this stream up, and no other."""
        return self

    @property
    def unanswered(self) -> int:
        """Appends."""
        return len(self._channel.unanswered)

    def close(self) -> None:
        self._closed = True
        self._channel.close()
        self._channel.plane.tails.forget(self)
        for future in self._asked.values():
            future.cancel()

    # --- asked -----------------------------------------------------------------------------------

    def append(self, session: int, request: int, count: int, checksum: int, body: bytes) -> None:
        fixed = _APPEND(session, request, checksum, count, 0)
        self._channel.append(memoryview(b"".join((fixed, body))))

    async def register(self, nonce: int) -> int:
        """The session that is opened with this nonce; raises `Refused`, like all that follow."""
        session: int = await self._answered(self._channel.register, nonce or _random_nonce())
        return session

    async def tail(self, start: int, bytes_max: int) -> Found:
        """Whatever is committed here from the entry on that holds `start`, perhaps nothing yet."""
        return await self._read(READ_TAIL, start, 0, bytes_max)

    async def verify(self, start: int) -> None:
        """Return when the entry there was verified; a damaged one is refused, and repaired."""
        await self._read(READ_VERIFIED, start, 1, 0)

    async def end(self) -> int:
        """The commit offset, once a quorum has shown that nobody else leads."""
        return (await self._read(0, BEYOND, 0, 0)).commit

    async def locate(self, timestamp_ms: int) -> Located:
        found: Located = await self._answered(
            lambda nonce: self._channel.locate(nonce, timestamp_ms)
        )
        return found

    async def _read(self, flags: int, start: int, entries_max: int, bytes_max: int) -> Found:
        found: Found = await self._answered(
            lambda nonce: self._channel.read(flags, nonce, start, entries_max, bytes_max)
        )
        return found

    async def _answered(self, ask: Callable[[int], None], nonce: int = 0) -> Any:
        if not nonce:
            self._nonce += 1
            nonce = self._nonce
        future = self._asked[nonce] = asyncio.get_running_loop().create_future()
        try:
            ask(nonce)
            return await future
        finally:
            del self._asked[nonce]

    # --- answered --------------------------------------------------------------------------------

    def send(self, frame: list[Buffer]) -> None:
        if self._closed:
            return
        (whole,) = Decoder().feed(b"".join(frame))
        message = to_message(whole)
        if isinstance(message, Registered):
            self._wake(message.nonce, message.session)
        elif isinstance(message, Appended) or (
            isinstance(message, ClientRefused) and message.session
        ):
            self._on_answer(message)
        else:
            assert isinstance(message, ClientRefused), message
            self._wake(message.nonce, Refused(message.refusal))

    def deliver(self, frame: list[Buffer]) -> None:
        self.reads -= 1
        if frame[0][_TYPE_AT] == FrameType.LOCATED:
            nonce, *place = _LOCATED(frame[0], HEAD_BYTES)
            self._wake(nonce, Located(*place))
        else:
            nonce, commit, count, _ = _RESULT(frame[0], HEAD_BYTES)
            raw = frame[1] if len(frame) == 2 else b"".join(frame[1:])
            self._wake(nonce, Found(commit, count, memoryview(raw)))

    def _wake(self, nonce: int, answer: object) -> None:
        future = self._asked.get(nonce)
        if future is None or future.done():
            return
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    # --- held up ---------------------------------------------------------------------------------

    def hold(self, size: int) -> None:
        self.held_bytes += size

    def release(self, size: int) -> None:
        self.held_bytes -= size
        assert self.held_bytes >= 0, "more bytes released than held"
        self._released.set()

    async def until_room(self) -> None:
        """Return when no more bytes are under way than may be."""
        while self.held_bytes > self._bytes_max:
            self._released.clear()
            await self._released.wait()
