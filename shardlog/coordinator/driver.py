"""The driver of one shard's coordinator: performs its effects, and brings it what comes back.

The machine is stepped on the event loop only, so nothing here needs a lock.  Calls to nodes and to
the store run as tasks; what fails or takes too long is simply not answered, as if the message had
been lost: the machine asks again, and its safety rests on compare-and-swap and epochs alone.

The first failure that is not of this kind, a broken invariant say, ends it: nothing is done any
more, whoever waits for a command is told so, and `run` raises it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

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
    Load,
    Loaded,
    NobodyListens,
    Rejected,
    Swapped,
)
from shardlog.protocol.coordinator import Coordinator
from shardlog.protocol.effects import Received, Send, Tick
from shardlog.protocol.entry import Member
from shardlog.protocol.failures import ImpossibleState
from shardlog.protocol.messages import Envelope
from shardlog.protocol.shard import Shard


class Unanswered(Exception):  # noqa: N818 - named after what happened
    """A node could not be reached, or gave no answer in time."""


class NotListening(Unanswered):
    """The node's machine answered that nobody listens there: the process is gone, or not yet up."""


class Control(Protocol):
    """Calls to nodes."""

    async def call(self, envelope: Envelope, timeout_ms: int) -> Envelope | None:
        """The node's answer, None if it has nothing to tell; `Unanswered` if there is none.

        `NotListening` if it is known that there cannot be one.
        """
        ...


@dataclass(frozen=True, slots=True)
class DriverLimits:
    """`calls_max` bounds the calls of one shard that wait for an answer; more are not made.

    A store that cannot be read at the start is asked again after `reread_ms`.
    """

    tick_ms: int = 20
    call_timeout_ms: int = 5000
    calls_max: int = 256
    reread_ms: int = 200


class ShardCoordinator:
    """One shard.  `run` is a task for as long as this process coordinates it."""

    def __init__(
        self,
        machine: Coordinator,
        store: MetadataStore,
        control: Control,
        clock_ms: Callable[[], int],
        limits: DriverLimits,
    ) -> None:
        self.machine = machine
        self.store = store
        self.control = control
        self.clock_ms = clock_ms
        self.limits = limits
        self.key = shard_key(machine.shard)
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls = 0
        self._failure: BaseException | None = None
        self._commands: dict[int, asyncio.Future[Accepted | Rejected]] = {}
        self._numbered = 0

    async def run(self) -> None:
        """Tick until cancelled; an exception of the machine ends it."""
        try:
            while True:
                self.step(Tick())
                await asyncio.sleep(self.limits.tick_ms / 1000)
                if self._failure is not None:
                    raise self._failure
        finally:
            for task in self._tasks:
                task.cancel()
            self._dismiss()

    @property
    def idle(self) -> bool:
        """Whether there is no record, and none on its way."""
        return self.machine.record is None and not self.machine.writing

    async def command(self, command: Command) -> Accepted | Rejected:
        """Ask for something; the answer comes when it stands in the metadata, or cannot be done."""
        if self._failure is not None:
            return Rejected(0, str(self._failure))
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
        if self._failure is not None:
            return
        try:
            effects = self.machine.step(self.clock_ms(), event)
        except ImpossibleState as failure:
            self._fail(failure)
            return
        for effect in effects:
            self._perform(effect)

    def _fail(self, failure: BaseException) -> None:
        """The first one tells most."""
        self._failure = self._failure or failure
        self._dismiss()

    def _dismiss(self) -> None:
        """Nobody waits for what will not come."""
        why = str(self._failure) if self._failure else "this process leaves the shard alone now"
        for number, answer in self._commands.items():
            if not answer.done():
                answer.set_result(Rejected(number, f"{why}: it may be done, or not"))

    def _perform(self, effect: CoordinatorEffect) -> None:
        if isinstance(effect, Send):
            if self._calls < self.limits.calls_max:
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
