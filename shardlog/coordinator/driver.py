"""The driver of one shard's coordinator: performs its effects, and brings it what comes back.

The machine is stepped on the event loop only, so nothing here needs a lock.  Calls to nodes and to
the store run as tasks; what fails or takes too long is simply not answered, as if the message had
been lost: the machine asks again, and its safety rests on compare-and-swap and epochs alone.

The machine tells when it needs a tick, and gets it then and not before: a shard at rest costs next
to nothing.

The first failure that is not of this kind, a broken invariant say, ends it: nothing is done any
more, whoever waits for a command is told so, and so is the host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from shardlog.coordinator.elections import ElectionTurns
from shardlog.coordinator.leaders import LeaderCounts
from shardlog.coordinator.timetable import Timetable
from shardlog.metadata.failures import Unavailable
from shardlog.metadata.records import decode_shard, encode_shard, shard_key
from shardlog.metadata.store import MetadataStore, Versioned
from shardlog.protocol.coordination import (
    Accepted,
    Command,
    Commanded,
    CompareAndSwap,
    CoordinatorEffect,
    CoordinatorEvent,
    LeadersCounted,
    Load,
    Loaded,
    NobodyListens,
    Rejected,
    Swapped,
)
from shardlog.protocol.coordinator import Coordinator
from shardlog.protocol.coordinator_state import Election
from shardlog.protocol.effects import Received, Send, Tick
from shardlog.protocol.entry import Member
from shardlog.protocol.messages import Envelope, Message
from shardlog.protocol.shard import Shard, Status
from shardlog.transport.control_calls import NodeNews


class Unanswered(Exception):  # noqa: N818 - named after what happened
    """A node could not be reached, or gave no answer in time."""


class NotListening(Unanswered):
    """The node's machine answered that nobody listens there: the process is gone, or not yet up."""


class CannotLook(Unanswered):
    """The node knows of no news: it is of an older version."""


class Control(Protocol):
    """Calls to nodes."""

    async def look(self, node: str, life: int, since: int, timeout_ms: int) -> NodeNews:
        """The news since number `since` of that life; fails as `call` does, or `CannotLook`."""
        raise CannotLook(node)

    async def call(self, envelope: Envelope, timeout_ms: int) -> Envelope | None:
        """The node's answer, None if it has nothing to tell; `Unanswered` if there is none.

        `NotListening` if it is known that there cannot be one.
        """
        ...


@dataclass(frozen=True, slots=True)
class DriverLimits:
    """`calls_max` bounds the calls of one shard that wait for an answer; more are not made.

    A call that is not answered yet is not made again within `call_again_ms`.  A shard is ticked
    every `tick_ms` at most.  A store that cannot be read at the start is asked again after
    `reread_ms`.  Every node is looked at each `look_ms`, and is silent if it does not answer
    within `look_timeout_ms`.
    """

    tick_ms: int = 20
    call_timeout_ms: int = 5000
    call_again_ms: int = 1000
    calls_max: int = 256
    reread_ms: int = 200
    look_ms: int = 100
    look_timeout_ms: int = 300


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all shards of a process share."""

    store: MetadataStore
    control: Control
    clock_ms: Callable[[], int]
    limits: DriverLimits
    timetable: Timetable
    leaders: LeaderCounts
    elections: ElectionTurns


TICK = Tick()
LAGS_APART = 2
"""Ticks of one shard are apart by so many times the lag."""
LEFT_ALONE = "this process leaves the shard alone now"


class ShardCoordinator:
    """One shard, from `start` until `stop`.  `on_failed` is told of what ends it before."""

    def __init__(
        self,
        machine: Coordinator,
        around: Surroundings,
        on_failed: Callable[[ShardCoordinator, BaseException], None],
    ) -> None:
        self.machine = machine
        self.store = around.store
        self.control = around.control
        self.clock_ms = around.clock_ms
        self.limits = around.limits
        self.key = shard_key(machine.shard)
        self._timetable = around.timetable
        self._leaders = around.leaders
        self._elections = around.elections
        # The election, or the record that is to begin it.
        self._election: Election | Shard | None = None
        self._told: LeadersCounted | None = None
        self._on_failed = on_failed
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls = 0
        # The latest call of each kind to each node that waits for an answer, and since when.
        self._asked: dict[tuple[str, type[Message]], tuple[Envelope, int]] = {}
        self._ticked_ms = -1
        self._stopped = False
        self._failure: BaseException | None = None
        self._commands: dict[int, asyncio.Future[Accepted | Rejected]] = {}
        self._numbered = 0

    def start(self) -> None:
        self._timetable.call_after(self._tick, 0)

    def stop(self) -> None:
        """Leave the shard alone."""
        self._stopped = True
        self._timetable.forget(self._tick)
        for task in self._tasks:
            task.cancel()
        self._leaders.choose(self.machine.shard, None)
        self._elections.ended(self.machine.shard)
        self._dismiss()

    @property
    def idle(self) -> bool:
        """Whether there is no record, and none on its way."""
        return self.machine.record is None and not self.machine.writing

    async def command(self, command: Command) -> Accepted | Rejected:
        """Ask for something; the answer comes when it stands in the metadata, or cannot be done."""
        if self._failure is not None or self._stopped:
            return Rejected(0, str(self._failure or LEFT_ALONE))
        self._numbered += 1
        number = self._numbered
        answer: asyncio.Future[Accepted | Rejected] = asyncio.get_running_loop().create_future()
        self._commands[number] = answer
        try:
            self.step(Commanded(number, command))
            return await answer
        finally:
            self._commands.pop(number, None)

    def step(self, event: CoordinatorEvent) -> None:
        """One event through the machine, and all that follows from it, in order."""
        if self._failure is not None or self._stopped:
            return
        machine, clock_ms = self.machine, self.clock_ms()
        try:
            if self._told is not self._leaders.counted and (event is TICK or machine.election):
                self._told = self._leaders.counted
                machine.step(clock_ms, self._told)
            effects = machine.step(clock_ms, event)
        except Exception as failure:
            self._fail(failure)
            return
        if machine.election or machine.wanted or self._election:
            self._follow_election(clock_ms)
        for effect in effects:
            self._perform(effect)
        self._arrange(clock_ms)

    def _follow_election(self, clock_ms: int) -> None:
        """It counts as soon as it is to be written: else all that are due would begin meanwhile."""
        machine, shard = self.machine, self.machine.shard
        election, wanted = machine.election, machine.wanted
        begun = election or (wanted if wanted and wanted.status is Status.ELECTION else None)
        if begun is not self._election:
            self._election = begun
            if begun is not None:
                self._elections.begun(shard, clock_ms)
            else:
                self._elections.ended(shard)
        asked = election.asked if election is not None else None
        self._leaders.choose(shard, asked[0].node if asked else None)

    def _tick(self) -> None:
        """A tick may begin an election: it waits while there are too many."""
        clock_ms = self.clock_ms()
        if self.machine.wait_ms(clock_ms) != 0:
            self._arrange(clock_ms)
        elif self.machine.election is None and not self._elections.has_room(clock_ms):
            self._timetable.call_after(self._tick, self.limits.tick_ms / 1000)
        else:
            self._ticked_ms = clock_ms
            self.step(TICK)

    def _arrange(self, clock_ms: int) -> None:
        """The next tick: when the machine needs it, but not too soon after the last one.

        Where ticks come late there are too many of them: each shard gets fewer, in proportion, so
        that the process has time for answers, and looks at each as closely as it can.
        """
        wait_ms = self.machine.wait_ms(clock_ms)
        if wait_ms is not None and self._failure is None:
            since_ms = max(0, clock_ms - self._ticked_ms)
            apart_ms = max(self.limits.tick_ms, int(1000 * LAGS_APART * self._timetable.lag_s))
            self._timetable.call_after(self._tick, max(wait_ms, apart_ms - since_ms) / 1000)

    def _fail(self, failure: BaseException) -> None:
        """The first one tells most."""
        if self._failure is None:
            self._failure = failure
            self._dismiss()
            self._on_failed(self, failure)

    def _dismiss(self) -> None:
        """Nobody waits for what will not come."""
        why = str(self._failure or LEFT_ALONE)
        for number, answer in self._commands.items():
            if not answer.done():
                answer.set_result(Rejected(number, f"{why}: it may be done, or not"))

    def _perform(self, effect: CoordinatorEffect) -> None:
        if isinstance(effect, Send):
            if self._calls < self.limits.calls_max and not self._is_asked(effect.envelope):
                self._calls += 1
                self._begin(self._call(effect.envelope))
        elif isinstance(effect, CompareAndSwap):
            self._begin(self._swap(effect))
        elif isinstance(effect, Load):
            self._begin(self._load())
        else:
            answer = self._commands.get(effect.number)
            if answer is not None and not answer.done():
                answer.set_result(effect)

    def _is_asked(self, envelope: Envelope) -> bool:
        """Whether the same call waits for its answer: a slow node has more to do than enough."""
        asked = self._asked.get((envelope.dst, type(envelope.message)))
        return (
            asked is not None
            and asked[0] == envelope
            and self.clock_ms() - asked[1] < self.limits.call_again_ms
        )

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            self._fail(failure)

    async def _call(self, envelope: Envelope) -> None:
        key = (envelope.dst, type(envelope.message))
        mine = self._asked[key] = (envelope, self.clock_ms())
        try:
            answer = await self.control.call(envelope, self.limits.call_timeout_ms)
        except NotListening:
            self.step(NobodyListens(Member(envelope.dst, envelope.dst_incarnation)))
        except Unanswered:
            pass
        else:
            if answer is not None:
                self.step(Received(answer))
        finally:
            self._calls -= 1
            if self._asked.get(key) is mine:
                del self._asked[key]

    async def _load(self) -> None:
        try:
            found = await self.store.get(self.key)
        except Unavailable:
            return
        self.step(Loaded(*self._decoded(found)))

    async def _swap(self, effect: CompareAndSwap) -> None:
        value = encode_shard(effect.shard) if effect.shard else None
        try:
            swapped = await self.store.compare_and_swap(self.key, effect.version, value)
        except Unavailable:
            return
        self.step(Swapped(swapped.done, *self._decoded(swapped.current)))

    def _decoded(self, found: Versioned | None) -> tuple[int, Shard | None]:
        if found is None:
            return 0, None
        return found.version, decode_shard(self.key, found.value)
