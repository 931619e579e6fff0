"""Exactly once: a producer's requests under a session, whatever happens on the way.

While all goes well nothing here waits: requests leave when they are put, answers settle them, and
both are plain calls.  One task does the rest: it finds the leader, registers the session, and when
the connection breaks, the leader changes or nothing is answered, it starts over and sends all
that is unanswered again, in order, under the same numbers.  A leader that knows a number already
answers with the offset that the first try got.

When a request is refused for good, because the session was evicted or the batch may not be, no
later number can be appended either.  What was sent once is then certainly not in the log, and goes
on under a new session; if any was sent more often nobody can tell, and all their callers hear of
it.  A send that was refused for the moment only appended nothing, and does not count.  The new
session waits for the answers to those that were sent before.  A request whose deadline has passed
is still sent again for those behind it, and given up with the last of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from shardlog.client.background import death_of, start
from shardlog.client.batching import Request
from shardlog.client.exchange import Exchange, failure_of, registration_nonce
from shardlog.client.failures import (
    Busy,
    ClientFailure,
    Closed,
    DeadlineExceeded,
    FateUnknown,
    NoAnswer,
    NoLeader,
    NumberTaken,
    OffsetForgotten,
    RecordTooLarge,
    SessionEvicted,
    Unavailable,
    Unreachable,
)
from shardlog.client.link import Channel
from shardlog.client.window import Window
from shardlog.protocol.failures import (
    DifferentRequest,
    Refusal,
    ReplyForgotten,
    RequestGap,
    SessionUnknown,
)
from shardlog.transport.failures import OutgoingFull, TransportFailure
from shardlog.transport.frames import FIXED, FrameType, encode_append, encode_register

_APPEND_BYTES = FIXED[FrameType.APPEND].size
_REGISTERED = FIXED[FrameType.REGISTERED]


class Delivery:
    """`on_settled` hears of every request that is done with, and of the failure if there is one."""

    def __init__(
        self,
        exchange: Exchange,
        requests_max: int,
        deadline_ms: int,
        on_settled: Callable[[Request, ClientFailure | None], None],
        resumed: tuple[int, int] | None = None,
    ) -> None:
        """`resumed` is a session that is there, and its last request: it is never given up."""
        self.session = 0
        """0 until it is registered."""
        self._nonce = 0  # of the registration that is under way
        self._resumed = resumed is not None
        self._over = False  # the session takes no more requests, and waits for its last answers
        self._exchange = exchange
        self._route = exchange.route
        self._shard = exchange.route.shard
        self._limits = exchange.limits
        self._deadline_ms = deadline_ms
        self._on_settled = on_settled
        self._queue: deque[Request] = deque()
        self._window = Window(requests_max)
        if resumed is not None:
            self.session, last = resumed
            self._window.start_after(last)
        self._channel: Channel | None = None  # where requests go now
        self._bound: tuple[Channel, int] | None = None  # where answers may come from, and for whom
        self._in_step = False  # what counts as sent in the window was sent there
        self._broken: asyncio.Future[None] | None = None
        self._last: ClientFailure | None = None
        self._loop = asyncio.get_running_loop()
        self._progress_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._doubting: asyncio.Task[None] | None = None
        self._backoff = exchange.backoff()

    @property
    def is_free(self) -> bool:
        """Whether a request that is put now would not have to wait for others."""
        return not self._queue and self._window.has_room and not self._over

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._queue and not self._window.requests

    @property
    def is_busy(self) -> bool:
        """Whether any caller waits for an answer."""
        return bool(self._queue) or any(not each.settled for each in self._window.requests)

    @property
    def unsettled(self) -> list[Request]:
        return [*self._window.unsettled, *self._queue]

    def put(self, request: Request) -> None:
        self._queue.append(request)
        if self._channel is not None:
            self._pump()
        elif self._task is None:
            self._begin()
        if self._timer is None:
            self._progress_at = self._loop.time()
            self._timer = self._loop.call_later(self._limits.tick_ms / 1000, self._tick)

    async def close(self) -> None:
        """Stop; what is not settled fails."""
        tasks, self._task, self._doubting = (self._task, self._doubting), None, None
        for task in tasks:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()
        self._fail_all(Closed("the producer is closed"))

    # --- sending ---------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Send what may be sent; what has no room now leaves when the connection has drained."""
        channel, window = self._channel, self._window
        if channel is None:
            return
        connection = channel.link.connection
        while connection.writable:
            request = window.to_send() or self._admitted(connection.frame_bytes_max)
            if request is None:
                return
            try:
                connection.send(
                    encode_append(
                        channel.number,
                        self.session,
                        request.number,
                        request.count,
                        request.checksum,
                        request.body,
                    )
                )
            except OutgoingFull:
                window.unsend()
                return
            except TransportFailure as failure:
                window.unsend()
                self._break(channel.link.unreachable(failure))
                return

    def _admitted(self, bytes_max: int) -> Request | None:
        """The next of those that have no number yet, if the window has room for it."""
        while self._queue and self._window.has_room and not self._over:
            request = self._queue.popleft()
            size = len(request.body) + _APPEND_BYTES
            if size <= bytes_max:
                self._window.admit(request)
                return self._window.to_send()
            self._fail(request, RecordTooLarge(size, bytes_max))
            if self._resumed:  # the next must not get its number
                self._fail_all(RecordTooLarge(size, bytes_max))
        return None

    # --- what the link says ----------------------------------------------------------------------

    def appended(self, request: int, base: int) -> None:
        found = self._window.answered(request)
        if found is None:
            return
        self._progressed()
        if not found.settled:
            found.appended(base)
            self._on_settled(found, None)
        self._went_on()

    def refused(self, request: int, refusal: Refusal) -> None:
        if isinstance(refusal, RequestGap):
            self._window.came_to_nothing(request)
            return  # one before it was refused too, and that starts all over
        if isinstance(refusal, ReplyForgotten):
            self._refused_retry(request, OffsetForgotten(self._shard, request))
            return
        if isinstance(refusal, DifferentRequest):
            taken = NumberTaken(self._shard, self.session, request, refusal.base)
            self._refused_retry(request, taken)
            return
        failure = None
        if not isinstance(refusal, SessionUnknown):
            failure = failure_of(self._shard, refusal)
        if isinstance(failure, Busy):
            self._window.came_to_nothing(request)
            self._window.rewind(request)
            self._break(failure, in_step=True)
        elif isinstance(failure, Unavailable):
            if isinstance(failure, NoLeader) and self._channel is not None:
                self._route.refused(self._channel, refusal)
            self._break(failure)
        else:
            self._take_back(request, failure)

    def _refused_retry(self, number: int, failure: OffsetForgotten | NumberTaken) -> None:
        """Something else was appended under this number, or so much that nobody can tell.

        Others use the session's numbers then, so it takes no more.  But one that was resumed may
        have got further before than its producer knows; it ends only with another batch.
        """
        found = self._window.answered(number)
        if found is None:
            return
        self._progressed()
        self._over = not self._resumed
        self._fail(found, failure)
        if self._resumed and isinstance(failure, NumberTaken):
            self._fail_all(failure)
            self._break(None)
        else:
            self._went_on()

    def drained(self) -> None:
        self._pump()

    def lost(self, failure: Unreachable) -> None:
        self._break(failure)

    def _went_on(self) -> None:
        """There is one less to wait for."""
        if self._over:
            self._end_session()
        elif self._queue:
            self._pump()

    def _progressed(self) -> None:
        self._progress_at = self._loop.time()
        self._backoff.reset()

    def _take_back(self, number: int, failure: ClientFailure | None) -> None:
        """This request is refused for good: by `failure`, or with its session.  See above.

        Who is told that a request failed may put the next one at once: by then the session takes
        no more, and what goes on stands before it.
        """
        if self._resumed:
            refused = self._window.answered(number) if failure is not None else None
            if refused is not None and failure is not None:
                self._fail(refused, failure)
            self._fail_all(failure or SessionEvicted(self._shard, self.session))
            self._break(None)
            return
        taken = self._window.cut(number)
        certain = all(request.sends <= 1 for request in taken)
        self._over = True
        failed: list[tuple[Request, ClientFailure]] = []
        if taken and taken[0].number == number and failure is not None:
            failed.append((taken.pop(0), failure))
        if certain:
            for request in reversed(taken):
                if not request.settled:
                    request.sends = request.number = 0
                    self._queue.appendleft(request)
        else:
            evicted = SessionEvicted(self._shard, self.session)
            failed.extend((request, evicted) for request in taken)
        for request, reason in failed:
            self._fail(request, reason)
        self._end_session()

    def _end_session(self) -> None:
        if not self._window.requests:
            self._forget_session()
            self._break(None)

    def _forget_session(self) -> list[Request]:
        self._unbind()
        self.session = 0
        self._over = False
        return self._window.clear()

    # --- the task --------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._task = start(self._run())
        self._task.add_done_callback(self._ran)

    def _ran(self, task: asyncio.Task[None]) -> None:
        if task is not self._task:
            return
        self._task = None
        if failure := death_of(task):
            self._fail_all(failure)
        elif self.is_busy:
            self._begin()  # something was put after its last look

    async def _run(self) -> None:
        """For as long as there is a connection, or somebody waits."""
        while self.is_busy:
            channel: Channel | None = None
            try:
                channel = await self._route.leader()
                if not self.session:
                    self.session = await self._register(channel)
                await self._serve(channel)
                continue
            except Unavailable as failure:
                self._last = failure
                if channel is not None:
                    await self._route.hindered(channel, failure)
            except ClientFailure as failure:
                self._fail_all(failure)
            await asyncio.sleep(self._backoff.next_ms() / 1000)

    async def _register(self, channel: Channel) -> int:
        """One attempt.  All for one session have the same nonce: the next finds what this began."""
        if not self._nonce:
            self._nonce = registration_nonce()
        frame = await self._exchange.once(channel, encode_register, nonce=self._nonce)
        self._nonce = 0
        session: int = _REGISTERED.unpack(frame.payload)[1]
        return session

    async def _serve(self, channel: Channel) -> None:
        """Until it breaks; returns if there is nothing to wait for before the next attempt."""
        if self._bound != (channel, self.session) or not self._in_step:
            self._unbind()
            self._bound = (channel, self.session)
            channel.sessions[self.session] = self
            self._window.rewind()
        self._broken = self._loop.create_future()
        self._channel = channel
        self._in_step = True
        self._progress_at = self._loop.time()
        try:
            self._pump()
            await self._broken
        finally:
            self._channel = self._broken = None

    def _unbind(self) -> None:
        if self._bound is not None:
            channel, session = self._bound
            channel.sessions.pop(session, None)
            self._bound = None

    def _break(self, failure: ClientFailure | None, *, in_step: bool = False) -> None:
        self._channel = None
        self._in_step = self._in_step and in_step
        broken = self._broken
        if broken is None or broken.done():
            return
        if failure is None:
            broken.set_result(None)
        else:
            broken.set_exception(failure if failure.retriable else NoAnswer(str(failure)))
            broken.exception()

    # --- time ------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Looks at what is unanswered, while anything is."""
        self._timer = None
        self._expire()
        if not self.is_busy:
            if self._window.requests:
                self._abandon()
            return
        if self._timer is None:
            self._timer = self._loop.call_later(self._limits.tick_ms / 1000, self._tick)
        stalled = self._stalled_ms() >= self._limits.attempt_ms
        if stalled and self._channel is not None and self._doubting is None:
            self._doubting = start(self._doubt(self._channel))
            self._doubting.add_done_callback(self._doubted)

    def _stalled_ms(self) -> float:
        return 1000 * (self._loop.time() - self._progress_at)

    async def _doubt(self, channel: Channel) -> None:
        """Nothing was answered for long: go to whoever leads now, or send it all again."""
        changed = await self._route.reconsider(channel)
        late = self._stalled_ms() >= 2 * self._limits.attempt_ms
        if self._channel is channel and (changed or late):
            ms = self._stalled_ms()
            self._break(NoAnswer(f"{channel.link.address} has not answered for {ms:.0f} ms"))

    def _doubted(self, task: asyncio.Task[None]) -> None:
        if task is not self._doubting:
            return
        self._doubting = None
        if failure := death_of(task):
            self._fail_all(failure)
            self._break(None)

    def _expire(self) -> None:
        now = self._loop.time()
        if self._resumed:
            if any(each.expires_at <= now for each in self.unsettled):
                self._fail_all(self._expired(fate_unknown=True))
                self._break(None)
            return
        while self._queue and self._queue[0].expires_at <= now:
            self._fail(self._queue.popleft(), self._expired(fate_unknown=False))
        for request in self._window.unsettled:
            if request.expires_at <= now:
                self._fail(request, self._expired(fate_unknown=True))

    def _expired(self, *, fate_unknown: bool) -> DeadlineExceeded:
        what = f"appending to {self._shard!r}"
        return DeadlineExceeded(what, self._deadline_ms, self._last, fate_unknown=fate_unknown)

    def _abandon(self) -> None:
        """All that the session has unanswered is given up, and the session with it."""
        self._forget_session()
        self._break(None)

    # --- settling --------------------------------------------------------------------------------

    def _fail(self, request: Request, failure: ClientFailure) -> None:
        if not request.settled:
            request.failed(failure)
            self._on_settled(request, failure)

    def _fail_all(self, failure: ClientFailure) -> None:
        """Nothing can be appended: what was sent before may be in the log all the same."""
        sent = self._forget_session()
        waiting, self._queue = self._queue, deque()
        for request in sent:
            self._fail(request, FateUnknown(self._shard, failure) if request.sends else failure)
        for request in waiting:
            self._fail(request, failure)
