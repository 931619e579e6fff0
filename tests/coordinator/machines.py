"""Many shards of real replica machines in virtual time: disks are perfect, the network is instant.

Everything that happens is a call of the event loop, whose clock jumps from one timer to the next,
so a run is always the same and takes no longer than it computes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from shardlog.checksum import seal
from shardlog.coordinator.driver import Control, NotListening
from shardlog.coordinator.host import CoordinatorHost
from shardlog.metadata.memory import Memory, MemoryStore
from shardlog.metadata.store import Swapped
from shardlog.protocol.effects import (
    Disconnected,
    Event,
    Limits,
    Received,
    Send,
    SendEntries,
    Sync,
    Synced,
    Tick,
)
from shardlog.protocol.entry import entry_of
from shardlog.protocol.messages import Entries, Envelope, StatusRequest
from shardlog.protocol.mood import Mood, mood_of
from shardlog.protocol.replica import Replica
from shardlog.protocol.shard import Shard
from shardlog.transport.control_calls import NodeNews

T = TypeVar("T")
TICK_S = 0.01


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes only from one timer to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.virtual_s = 1000.0

    def time(self) -> float:
        return self.virtual_s

    def _run_once(self) -> None:
        waiting: Any = self
        if not waiting._ready and waiting._scheduled:
            self.virtual_s = max(self.virtual_s, waiting._scheduled[0].when())
        waiting_once: Callable[[], None] = super()._run_once  # type: ignore[misc]
        waiting_once()


def run_virtually(story: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(story)


def now_ms() -> int:
    return round(asyncio.get_running_loop().time() * 1000)


class CountedStore(MemoryStore):
    """A write takes `write_s`."""

    writes = 0
    write_s = 0.0

    async def compare_and_swap(self, key: str, version: int, value: bytes | None) -> Swapped:
        self.writes += 1
        if self.write_s:
            await asyncio.sleep(self.write_s)
        return await super().compare_and_swap(key, version, value)


class Machines(Control):
    """Replicas by node and shard.  A node that is killed hears nothing, and nobody listens.

    A node takes `call_s` for a call, one after the other; how its replicas are it says at once.
    """

    def __init__(self, names: str) -> None:
        self.names = names.split()
        self.down: set[str] = set()
        self.replicas: dict[tuple[str, str], Replica] = {}
        self.calls: Counter[str] = Counter()
        self.moods: dict[str, dict[str, Mood]] = {name: {} for name in self.names}
        self.number = 0
        self.call_s = 0.0
        self._free_at = dict.fromkeys(self.names, 0.0)
        self._asked: dict[str, asyncio.Future[Envelope]] = {}
        self._draws = 0
        memory = Memory()
        self.store = CountedStore(memory)
        memory._handles.append(self.store)
        self.host = CoordinatorHost("operator", self.store, self, now_ms)

    async def ticking(self) -> None:
        while True:
            for (node, _), replica in list(self.replicas.items()):
                if node not in self.down and replica.needs_tick(now_ms()):
                    self._step(node, replica, Tick())
            await asyncio.sleep(TICK_S)

    def kill(self, node: str) -> None:
        self.down.add(node)
        for (name, _), replica in list(self.replicas.items()):
            if name not in self.down:
                self._step(name, replica, Disconnected(node))

    # --- calls -----------------------------------------------------------------------------------

    async def call(self, envelope: Envelope, timeout_ms: int) -> Envelope:
        self.calls[type(envelope.message).__name__] += 1
        name = f"call {self.calls.total()}"
        if envelope.dst in self.down:
            raise NotListening(envelope.dst)
        if self.call_s and not isinstance(envelope.message, StatusRequest):
            now_s = asyncio.get_running_loop().time()
            self._free_at[envelope.dst] = max(self._free_at[envelope.dst], now_s) + self.call_s
            await asyncio.sleep(self._free_at[envelope.dst] - now_s)
        answer = self._asked[name] = asyncio.get_running_loop().create_future()
        asked = Envelope(
            envelope.shard, name, 0, envelope.dst, envelope.dst_incarnation, envelope.message
        )
        self._arrive(asked)
        async with asyncio.timeout(timeout_ms / 1000):
            return await answer

    async def look(self, node: str, life: int, since: int, timeout_ms: int) -> NodeNews:
        """As a node tells, but for the numbers."""
        self.calls["News"] += 1
        if node in self.down:
            raise NotListening(node)
        hosted = {shard: each for (name, shard), each in self.replicas.items() if name == node}
        moods = {shard: mood_of(each, now_ms()) for shard, each in hosted.items()}
        before, self.moods[node] = self.moods[node], moods
        self.number += 1
        changed = [shard for shard, mood in moods.items() if before.get(shard) != mood]
        return NodeNews(1, self.number, tuple(changed))

    # --- the driver's part -----------------------------------------------------------------------

    def _arrive(self, envelope: Envelope) -> None:
        if envelope.dst in self._asked:
            answer = self._asked.pop(envelope.dst)
            if not answer.done():
                answer.set_result(envelope)
        elif envelope.dst not in self.down:
            key = (envelope.dst, envelope.shard)
            replica = self.replicas.get(key)
            if replica is None:
                replica = self.replicas[key] = Replica(envelope.shard, key[0], Limits(), seal)
            self._draws += 1
            self._step(key[0], replica, Received(envelope, self._draws))

    def _step(self, node: str, replica: Replica, event: Event) -> None:
        loop = asyncio.get_running_loop()
        for effect in replica.step(now_ms(), event):
            if isinstance(effect, Send):
                loop.call_soon(self._arrive, effect.envelope)
            elif isinstance(effect, SendEntries):
                entries = tuple(entry_of((header, b"")) for header in effect.headers)
                message = Entries(effect.epoch, entries, effect.commit, effect.first)
                envelope = Envelope(
                    replica.shard, node, replica.incarnation, *effect.to, message
                )  # fmt: skip
                loop.call_soon(self._arrive, envelope)
            elif isinstance(effect, Sync):
                loop.call_soon(self._step, node, replica, Synced(effect.token))

    # --- stories ---------------------------------------------------------------------------------

    async def until(self, done: Callable[[Iterable[Shard]], bool]) -> None:
        async with asyncio.timeout(60):
            while not done(self.host.shards.values()):
                await asyncio.sleep(TICK_S)
