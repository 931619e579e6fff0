"""The driver of one replica: performs its effects, strictly in their order.

Disk effects go into the disk's queue, messages to the network, and messages that carry bodies read
them first.  Nothing waits here: what must be durable before something is sent comes back to the
replica as an event.  The same driver runs in a node and in the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from shardlog.protocol.effects import (
    Disk,
    Effect,
    Event,
    ReadFailed,
    Send,
    SendEntries,
    SendFetched,
    ServeRead,
)
from shardlog.protocol.entry import Entry, Header
from shardlog.protocol.failures import CorruptEntry
from shardlog.protocol.messages import (
    ClientRefused,
    Entries,
    Envelope,
    Fetched,
    Message,
    ReadResult,
)
from shardlog.protocol.replica import Replica

Reading = SendEntries | SendFetched | ServeRead


class DriverDisk(Protocol):
    """What a driver asks of a replica's disk."""

    def submit(self, effect: Disk) -> None:
        """Queue one operation; what it writes can be read at once."""

    def read(self, header: Header) -> Entry | None:
        """The entry, verified; None if its copy here is damaged."""

    def read_run(self, headers: Sequence[Header]) -> tuple[Entry, ...]:
        """Entries one behind the other, verified, up to the first whose copy here is damaged."""


class Driver:
    """`replica` in, `disk` and `send` out.  After `stop` nothing is performed any more."""

    __slots__ = ("_damaged", "_latest", "_stopped", "disk", "replica", "send")

    def __init__(
        self, replica: Replica, disk: DriverDisk, send: Callable[[Envelope], None]
    ) -> None:
        self.replica = replica
        self.disk = disk
        self.send = send
        # Entries found damaged while effects were performed, for the replica to hear of.
        self._damaged: list[int] = []
        # What was read last for one follower: the others mostly get the same.
        self._latest: tuple[tuple[Header, ...], tuple[Entry, ...]] = ((), ())
        self._stopped = False

    def stop(self) -> None:
        """The disk failed, or the process ends: what is left of the effects is not performed."""
        self._stopped = True

    def step(self, now_ms: int, event: Event) -> None:
        """One event through the replica, and all that follows from it."""
        self.steps(now_ms, (event,))

    def steps(self, now_ms: int, events: Sequence[Event]) -> None:
        """Several events at once: what they write and send is put together."""
        self.perform(self.replica.steps(now_ms, events))
        for damage in self.damage():
            self.step(now_ms, damage)

    def damage(self) -> Iterable[ReadFailed]:
        """What was found damaged since this was asked last."""
        while self._damaged and not self._stopped:
            yield ReadFailed(self._damaged.pop())

    def perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if self._stopped:
                return
            if isinstance(effect, Send):
                self.send(effect.envelope)
            elif isinstance(effect, SendEntries | SendFetched | ServeRead):
                self._send_read(effect)
            else:
                self.disk.submit(effect)
        self._latest = ((), ())

    def _send_read(self, effect: Reading) -> None:
        """Send what can be read, up to the first damaged entry, which is reported."""
        entries, damaged = self._read(effect.headers)
        message = self._message(effect, entries, damaged)
        if message is not None:
            replica = self.replica
            to, incarnation = (effect.client, 0) if isinstance(effect, ServeRead) else effect.to
            self.send(
                Envelope(replica.shard, replica.node, replica.incarnation, to, incarnation, message)
            )

    def _read(self, headers: tuple[Header, ...]) -> tuple[tuple[Entry, ...], Header | None]:
        if headers == self._latest[0]:
            return self._latest[1], None
        found = self.disk.read_run(headers)
        if len(found) < len(headers):
            damaged = headers[len(found)]
            self._damaged.append(damaged.base)
            return found, damaged
        self._latest = (headers, found)
        return found, None

    def _message(
        self, effect: Reading, entries: tuple[Entry, ...], damaged: Header | None
    ) -> Message | None:
        if isinstance(effect, ServeRead):
            if damaged is not None:
                return ClientRefused(0, effect.nonce, CorruptEntry(damaged.id))
            return ReadResult(effect.nonce, entries, effect.commit)
        if not entries:
            return None
        if isinstance(effect, SendEntries):
            return Entries(effect.epoch, entries, effect.commit, effect.first)
        return Fetched(effect.epoch, entries, 0 if damaged else effect.more)
