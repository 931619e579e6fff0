"""The Append stream: requests in, answers out, and no more under way than may be.

Requests are read only while there is room for their bytes and for their answers, so a client that
does not take its answers is not read from, and gRPC holds it up.  Requests go to the replica in the
order in which they come; numbers, retries and gaps are its business.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial

from shardlog.protocol.messages import Appended
from shardlog.transport.generated import log_pb2
from shardlog_node.log_port import Answer, LogPort, Refused
from shardlog_node.log_stream import Desk, Idle, Wire
from shardlog_node.log_wire import (
    VERSION,
    Unfit,
    appended,
    check_first,
    invalid,
    not_appended,
    opened,
    pack,
    parse_append,
)


class AppendStream:
    """`run` it once."""

    def __init__(self, desk: Desk, wire: Wire) -> None:
        self._desk = desk
        self._wire = wire
        self._shard = ""
        self._session = 0
        self._port: LogPort
        # Answers that have not been written yet.
        self._answers: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._taken = asyncio.Event()
        # Nothing more is read; and nothing more is said.
        self._ended = self._failed = False

    async def run(self) -> None:
        data = await self._wire.read(self._desk.limits.first_ms)
        if data is None:
            return
        try:
            first = await self._desk.work(len(data), partial(parse_append, data))
            check_first(first)
        except Unfit as unfit:
            await self._wire.write(not_appended(0, 0, unfit.failure))
            return
        self._shard = first.shard
        self._port = LogPort(self._desk.plane, first.shard, self._answer)
        writing = asyncio.create_task(self._write())
        reading = asyncio.create_task(self._read(first, len(data)))
        try:
            await asyncio.wait({writing, reading}, return_when=asyncio.FIRST_EXCEPTION)
            for task in (writing, reading):
                if task.done():
                    task.result()
        finally:
            self._port.close()
            for task in (writing, reading):
                task.cancel()
            await asyncio.gather(writing, reading, return_exceptions=True)

    # --- in --------------------------------------------------------------------------------------

    async def _read(self, first: log_pb2.AppendRequest, size: int) -> None:
        """A failure of the stream as a whole is the last thing that is said."""
        try:
            self._session = first.session or await self._port.register(first.opening)
            self._say(opened(self._session))
            if first.request or first.WhichOneof("content"):
                await self._take(first, size)
            while (data := await self._next()) is not None:
                request = await self._desk.work(len(data), partial(parse_append, data))
                self._check_next(request)
                await self._take(request, len(data))
        except Unfit as unfit:
            self._fail(unfit.failure)
        except Refused as refused:
            self._fail(self._desk.failure(self._shard, refused.refusal))
        self._ended = True
        self._news.set()

    def _fail(self, failure: log_pb2.Failure) -> None:
        self._say(not_appended(self._session, 0, failure))
        self._failed = True

    async def _next(self) -> bytes | None:
        await self._port.until_room()
        while len(self._answers) + self._port.unanswered >= self._desk.limits.answers_max:
            self._taken.clear()
            await self._taken.wait()
        while True:
            try:
                return await self._wire.read(self._desk.limits.idle_ms)
            except Idle:
                if not self._port.unanswered:
                    raise

    def _check_next(self, request: log_pb2.AppendRequest) -> None:
        if request.version not in (0, VERSION):
            raise invalid("another version than in the first request")
        if request.shard not in ("", self._shard):
            raise invalid("another shard than in the first request")
        if request.session not in (0, self._session):
            raise invalid("another session than that of the stream")

    async def _take(self, request: log_pb2.AppendRequest, size: int) -> None:
        if not request.request:
            raise invalid("requests are counted from 1")
        try:
            packed = await self._desk.work(size, partial(pack, request))
        except Unfit as unfit:
            self._say(not_appended(self._session, request.request, unfit.failure))
            return
        self._port.append(
            self._session, request.request, packed.count, packed.checksum, packed.body
        )

    # --- out -------------------------------------------------------------------------------------

    def _answer(self, answer: Answer) -> None:
        if isinstance(answer, Appended):
            self._say(appended(answer.session, answer.request, answer.base))
        else:
            failure = self._desk.failure(self._shard, answer.refusal)
            self._say(not_appended(answer.session, answer.nonce, failure))

    def _say(self, answer: bytes) -> None:
        if not self._failed:
            self._answers.append(answer)
        self._news.set()

    async def _write(self) -> None:
        while True:
            while self._answers:
                await self._wire.write(self._answers[0])
                self._answers.popleft()
                self._taken.set()
            if self._failed or (self._ended and not self._port.unanswered):
                return
            self._news.clear()
            await self._news.wait()


async def append(desk: Desk, wire: Wire) -> None:
    """Serve one stream to its end; raises `Gone` or `Idle` if the other side does not go on."""
    await AppendStream(desk, wire).run()
