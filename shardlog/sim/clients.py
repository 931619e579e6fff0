"""Concurrent clients with sessions, and the history of what they saw.

A client retries the *same* request until it is answered: the same session, the same number.  It
guesses the leader and follows hints.  When its session is gone it cannot know what became of the
requests in doubt: those stay unanswered in the history for ever, and it opens another session.
Requests are sent ahead of the answers to earlier ones, up to `pipeline_max`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from shardlog.protocol.entry import Kind
from shardlog.protocol.failures import (
    DifferentRequest,
    EntryLost,
    NotLeader,
    OffsetTrimmed,
    Refusal,
    ReplyForgotten,
    RequestGap,
    SessionUnknown,
)
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
from shardlog.sim.linearizability import Operation
from shardlog.sim.seal import seal_body

if TYPE_CHECKING:
    from shardlog.sim.world import World


NEVER_US = 1 << 62

GIVE_WAY_BEYOND = 27
"""The adversary calms down by a factor of 3 each time; beyond this one clients do, too."""


class Call:
    """One operation under way; `message` is sent again until it is answered."""

    __slots__ = ("called_us", "kind", "message", "retry_us", "tries", "value")

    def __init__(
        self, kind: Literal["append", "read", "register"], message: Message, value: int, now_us: int
    ) -> None:
        self.kind = kind
        self.message = message
        self.value = value
        self.called_us = now_us
        self.retry_us = now_us
        self.tries = 0


class Client:
    """One client.  `appends` are keyed by request number, the other calls by nonce."""

    __slots__ = (
        "appends",
        "calls",
        "finishing",
        "history",
        "name",
        "nonce",
        "number",
        "request",
        "retry_us",
        "session",
        "tail",
        "target",
        "world",
    )

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.name = f"c{number}"
        self.session = 0
        self.request = 0
        self.nonce = number << 32
        self.target = world.node_names[0]
        self.appends: dict[int, Call] = {}
        self.calls: dict[int, Call] = {}
        # No call is overdue before.
        self.retry_us = NEVER_US
        # What was answered, and appends that never will be.
        self.history: list[Operation] = []
        # Where the next read starts.
        self.tail = 0
        # Appends still wanted before falling silent; None while the run lasts.
        self.finishing: int | None = None
        world.scheduler.after(world.random.randint(1, 50_000), self._act, None)

    @property
    def idle(self) -> bool:
        return not self.appends and not self.calls and not self.finishing

    def finish(self) -> None:
        """One more append to show that writes work, then silence."""
        self.finishing = 1

    def all_operations(self) -> list[Operation]:
        """The history, with what is still unanswered."""
        waiting = [self._unanswered(call) for call in self.appends.values()]
        return [*self.history, *waiting]

    def _unanswered(self, call: Call) -> Operation:
        message = call.message
        assert isinstance(message, Append)
        return Operation(
            self.number, call.called_us, None, "append", value=call.value, count=message.count
        )

    # --- doing -----------------------------------------------------------------------------------

    def _act(self, _: None) -> None:
        """Once in a while: try again what is overdue, and begin something new."""
        world = self.world
        random = world.random.random
        options = world.options
        # Where calm alone does not help they give way, as a node's admission makes them: a new node
        # has to gain on what is written.
        think_ms = options.think_ms * max(1, world.adversary.slower // GIVE_WAY_BEYOND)
        world.scheduler.after(int(think_ms * (500 + 1000 * random())), self._act, None)
        self._retry()
        if self.finishing == 0:
            return
        if not self.session:
            if not any(call.kind == "register" for call in self.calls.values()):
                self._begin("register", Register(self.nonce + 1), 0)
        elif options.abandon and random() < options.abandon and self.finishing is None:
            self._lose_session()
        elif options.steal and random() < options.steal and self.finishing is None:
            self._steal()
        elif self.finishing is None and (self.number < options.readers or random() < options.reads):
            if len(self.calls) < 2:
                self._begin_read()
        elif len(self.appends) < options.pipeline_max:
            self._begin_append()

    def _begin_append(self) -> None:
        world = self.world
        value = world.next_value()
        body = value.to_bytes(8, "little")
        count = 1 if world.random.random() < 0.7 else world.random.randint(1, 3)
        self.request += 1
        append = Append(self.session, self.request, count, body, seal_body(body))
        call = Call("append", append, value, world.scheduler.now_us)
        self.appends[self.request] = call
        self._send(call)
        if self.finishing:
            self.finishing -= 1

    def _steal(self) -> None:
        """Append once under the next number of another client's session; nobody waits for it."""
        world = self.world
        other = world.random.choice(world.clients)
        if other is self or not other.session:
            return
        value = world.next_value()
        body = value.to_bytes(8, "little")
        append = Append(other.session, other.request + 1, 1, body, seal_body(body))
        call = Call("append", append, value, world.scheduler.now_us)
        self.history.append(self._unanswered(call))
        self._send(call)

    def _begin_read(self) -> None:
        random = self.world.random
        start = self.tail if random.random() < 0.8 else random.randint(0, self.tail)
        self._begin("read", Read(self.nonce + 1, start, random.choice((1, 4, 16))), 0)

    def _begin(self, kind: Literal["read", "register"], message: Message, value: int) -> None:
        self.nonce += 1
        call = Call(kind, message, value, self.world.scheduler.now_us)
        self.calls[self.nonce] = call
        self._send(call)

    def _send(self, call: Call) -> None:
        world = self.world
        call.tries += 1
        call.retry_us = world.scheduler.now_us + int(
            world.options.client_timeout_ms * (500 + 1000 * world.random.random())
        )
        self.retry_us = min(self.retry_us, call.retry_us)
        world.network.send(Envelope(world.shard, self.name, 0, self.target, 0, call.message))

    def _retry(self) -> None:
        """Send again what is overdue; after a timeout the guess at the leader was wrong."""
        now_us = self.world.scheduler.now_us
        if now_us < self.retry_us:
            return
        waiting = [*self.appends.values(), *self.calls.values()]
        overdue = [call for call in waiting if call.retry_us <= now_us]
        if not overdue:
            self.retry_us = min((call.retry_us for call in waiting), default=NEVER_US)
            return
        if any(call.tries for call in overdue):
            self._guess()
        for call in overdue:
            self._send(call)

    def _guess(self) -> None:
        self.target = self.world.random.choice(self.world.node_names)

    # --- answers ---------------------------------------------------------------------------------

    def receive(self, envelope: Envelope) -> None:
        message = envelope.message
        if isinstance(message, Appended):
            if message.session == self.session:
                self._appended(message)
        elif isinstance(message, ReadResult):
            self._read(message)
        elif isinstance(message, Registered):
            call = self.calls.get(message.nonce)
            if call is not None and call.kind == "register":
                del self.calls[message.nonce]
                self.session = message.session
                self.request = 0
        elif isinstance(message, ClientRefused):
            self._refused(envelope.src, message)

    def _appended(self, answer: Appended) -> None:
        call = self.appends.pop(answer.request, None)
        if call is None:
            return
        assert isinstance(call.message, Append)
        self._done(
            Operation(
                self.number,
                call.called_us,
                self.world.scheduler.now_us,
                "append",
                value=call.value,
                count=call.message.count,
                offset=answer.base,
            )
        )

    def _read(self, answer: ReadResult) -> None:
        call = self.calls.pop(answer.nonce, None)
        if call is None:
            return
        assert isinstance(call.message, Read)
        seen = tuple(
            (entry.header.base, int.from_bytes(entry.body, "little"))
            for entry in answer.entries
            if entry.header.kind is Kind.DATA
        )
        self.tail = answer.entries[-1].header.end if answer.entries else answer.commit
        self._done(
            Operation(
                self.number,
                call.called_us,
                self.world.scheduler.now_us,
                "read",
                start=call.message.start,
                limit=self._limit(call.message.entries_max, len(seen)),
                seen=seen,
                end=answer.commit,
            )
        )

    def _limit(self, asked: int, came: int) -> int:
        """A read ends before what was given up, and does not say so."""
        return min(asked, came) or asked if self.world.losses.given_up else asked

    def _done(self, operation: Operation) -> None:
        self.history.append(operation)
        self.world.statistics.operations += 1
        for watch in self.world.reply_watchers:
            watch(self.world, self.number, operation)

    def _refused(self, src: str, answer: ClientRefused) -> None:
        refusal = answer.refusal
        if answer.session:
            if answer.session != self.session:
                return
            call = self.appends.get(answer.nonce)
        else:
            call = self.calls.get(answer.nonce)
        if call is None:
            return
        if isinstance(refusal, SessionUnknown) or self._was_cut(refusal):
            self._lose_session()
        elif isinstance(refusal, DifferentRequest):
            del self.appends[answer.nonce]  # it is nowhere: nobody may ever read it
            self._lose_session()
        elif isinstance(refusal, ReplyForgotten):
            del self.appends[answer.nonce]
            self.history.append(self._unanswered(call))
        elif isinstance(refusal, OffsetTrimmed) and call.kind == "read":
            del self.calls[answer.nonce]
            self.tail = max(self.tail, refusal.first)
        elif isinstance(refusal, EntryLost) and call.kind == "read":
            del self.calls[answer.nonce]
            self.tail = max(self.tail, refusal.end)
        else:
            self._try_later(src, call, refusal)

    def _was_cut(self, refusal: Refusal) -> bool:
        """Whether a request that was answered is lacking: it was given up, by people's word."""
        lacking = isinstance(refusal, RequestGap) and refusal.expected not in self.appends
        return lacking and bool(self.world.losses.cuts)

    def _try_later(self, src: str, call: Call, refusal: Refusal) -> None:
        world = self.world
        call.retry_us = world.scheduler.now_us + world.random.randint(10_000, 60_000)
        self.retry_us = min(self.retry_us, call.retry_us)
        if src != self.target:
            return
        if isinstance(refusal, NotLeader):
            if refusal.hint is not None and refusal.hint != src:
                self.target = refusal.hint
                call.tries = 0
            else:
                self._guess()
        elif not world.is_leader(src):
            self._guess()

    def _lose_session(self) -> None:
        """What is in doubt stays in doubt; the next thing to do is to register again."""
        self.history += [self._unanswered(call) for call in self.appends.values()]
        self.world.statistics.sessions_lost += 1
        self.appends.clear()
        self.session = 0
