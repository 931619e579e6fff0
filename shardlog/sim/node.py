"""One simulated node: a process with a replica, its driver and a disk.

The driver is the one that runs in a real node; here are its life and death.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shardlog.protocol.effects import (
    Disconnected,
    Distrusted,
    Event,
    Outgrown,
    ReadFailed,
    Received,
    Synced,
    Tick,
)
from shardlog.protocol.entry import Header, Member
from shardlog.protocol.messages import Create, Entries, Envelope, Fetched
from shardlog.protocol.replica import Replica
from shardlog.protocol.states import Role
from shardlog.sim.disk import ModelDisk
from shardlog.sim.engine_disk import EngineDisk, SimulatedDisk
from shardlog.sim.failures import CrashFailure, SimulationFailure
from shardlog.sim.seal import seal
from shardlog_node.driver import Driver

if TYPE_CHECKING:
    from shardlog.sim.world import World

TICK = Tick()
WITH_ENTRIES = (Entries, Fetched)
FEED_TICKS = 4
"""What may be sent and is not does not pile up for longer."""
CLOCK_MS = 1_000_000
"""What clocks show at the start, give or take the skew: enough to be set back now and then."""


class Node:
    """One node: up, paused or down, with a replica and a disk."""

    __slots__ = (
        "away",
        "disk",
        "doom",
        "driver",
        "generation",
        "inbox",
        "name",
        "paused",
        "rate",
        "scrub_at",
        "skew_ms",
        "up",
        "world",
    )

    def __init__(self, world: World, name: str) -> None:
        options = world.options
        self.world = world
        self.name = name
        # Whether the process runs without its volume, which comes back as it was.
        self.away = False
        self.disk = self._disk()
        self.skew_ms = CLOCK_MS + world.random.randint(-options.skew_ms_max, options.skew_ms_max)
        self.rate = 1_000_000 + world.random.randint(-options.drift_ppm_max, options.drift_ppm_max)
        self.up = True
        self.paused = False
        # Calls scheduled for an earlier life of the process carry an older generation.
        self.generation = 0
        # Events that came in while paused.
        self.inbox: list[Event] = []
        # Crash after so many effects of the next step that has any; None if not doomed.
        self.doom: int | None = None
        self.scrub_at = 0
        self.driver = self._boot()

    @property
    def replica(self) -> Replica:
        return self.driver.replica

    def _disk(self) -> SimulatedDisk:
        world, options = self.world, self.world.options
        given = (world.scheduler, world.random, options.sync_us, self._synced, self.crash)
        if options.engine:
            return EngineDisk(*given, world.shard, self.name, options.relaxed)
        return ModelDisk(*given, options.headers_last, options.relaxed)

    def now_ms(self) -> int:
        """The node's own clock: skewed, drifting, and set now and then, forwards or back."""
        return self.skew_ms + self.world.scheduler.now_us * self.rate // 1_000_000_000

    # --- life ------------------------------------------------------------------------------------

    def _boot(self) -> Driver:
        world, options = self.world, self.world.options
        world.scheduler.after(
            int(world.random.random() * options.tick_ms * 1000), self._tick, self.generation
        )
        if options.scrub_every_ms:
            world.scheduler.after(options.scrub_every_ms * 1000, self._scrub, self.generation)
        disk = self.disk
        recovered = None if self.away else disk.recover()
        archive = disk if isinstance(disk, EngineDisk) else None
        identity = (world.shard, self.name, options.limits_of(self.name), seal)
        if recovered is None:
            replica = Replica(*identity, archive)
            replica.full = self.away  # nothing can be made there
        else:
            replica = Replica.restart(*identity, recovered, archive)
        return Driver(replica, disk, world.network.send)

    def crash(self, power: bool = False) -> None:
        """The process is gone; with `power`, its machine is, too."""
        if not self.up:
            return
        self.up = self.paused = False
        self.generation += 1
        self.doom = None
        self.inbox.clear()
        self.driver.stop()
        self.disk.crash(power)
        self.world.statistics.crashes += 1
        for watch in self.world.crash_watchers:
            watch(self.world, self.name)
        self.world.node_went_down(self)

    def restart(self, _: object = None) -> None:
        if self.up:
            return
        self.up = True
        try:
            self.driver = self._boot()
        except SimulationFailure:
            raise
        except Exception as error:
            raise CrashFailure(f"{self.name} restarting: {error!r}") from error
        for watch in self.world.restart_watchers:
            watch(self.world, self.name)

    def pause(self) -> None:
        """The process stops handling events; they wait."""
        self.paused = True

    def resume(self, _: object = None) -> None:
        """All that came meanwhile is there at once, as in a process that the kernel held up."""
        if not self.paused:
            return
        self.paused = False
        inbox, self.inbox = self.inbox, []
        if inbox:
            self.steps(inbox)

    def wipe(self) -> None:
        """Lose the disk; the node must be down."""
        self.disk.wipe()
        for watch in self.world.wipe_watchers:
            watch(self.world, self.name)

    # --- events ----------------------------------------------------------------------------------

    def receive(self, envelope: Envelope) -> None:
        if not self.up:
            self.world.nobody_listens(envelope)
            return
        draw = 0
        if type(envelope.message) is Create:
            draw = 1 + self.world.random.getrandbits(30)
        event: Event = Received(envelope, draw)
        if type(envelope.message) in WITH_ENTRIES and self.world.damages(envelope):
            event = Distrusted(Member(envelope.src, envelope.src_incarnation))
        if self.paused:
            self.inbox.append(event)
        else:
            self.step(event)

    def disconnected(self, node: str) -> None:
        event = Disconnected(node)
        if self.paused:
            self.inbox.append(event)
        else:
            self.step(event)

    def _tick(self, generation: int) -> None:
        if generation != self.generation:
            return
        world = self.world
        world.scheduler.after(world.options.tick_ms * 1000, self._tick, generation)
        if self.paused or self.replica.role is Role.NOT_MEMBER:
            return
        fed = world.options.feed_bytes
        if fed:
            self.replica.feed_bytes = min((self.replica.feed_bytes or 0) + fed, FEED_TICKS * fed)
        if world.options.retained:
            self._retain(world.options.retained)
        if self.replica.needs_tick(self.now_ms()):
            self.step(TICK)

    def _retain(self, entries: int) -> None:
        """As the keeper of a node does: what has become too much goes, if it may."""
        replica = self.replica
        first = replica.log.end - entries
        if replica.lead is not None and first > replica.log.first:
            self.step(Outgrown(first))

    def _synced(self, token: int) -> None:
        if self.paused:
            self.inbox.append(Synced(token))
        elif self.up:
            self.step(Synced(token))

    def _scrub(self, generation: int) -> None:
        """Read one entry after the other, round and round, so that decay is found in time."""
        if generation != self.generation:
            return
        world = self.world
        world.scheduler.after(world.options.scrub_every_ms * 1000, self._scrub, generation)
        log = self.replica.log
        if self.paused or not log.headers:
            return
        found = log.between(self.scrub_at, log.end, 1) or log.between(log.first, log.end, 1)
        for header in found:
            self.scrub_at = header.base + 1
            self._examine(header)

    def scrub_all(self) -> None:
        log = self.replica.log
        for header in log.between(log.first, log.end):
            self._examine(header)

    def _examine(self, header: Header) -> None:
        if self.replica.log.present(header.base) and self.disk.read(header) is None:
            self.step(ReadFailed(header.base))

    def step(self, event: Event) -> None:
        """One event through the replica, and all that follows from it."""
        self.steps((event,))

    def steps(self, events: Sequence[Event]) -> None:
        world = self.world
        replica = self.replica
        last = events[-1]
        try:
            effects = replica.steps(self.now_ms(), events)
        except SimulationFailure:
            raise
        except Exception as error:
            raise CrashFailure(f"{self.name} in {type(last).__name__}: {error!r}") from error
        if effects or last is not TICK:  # a tick that does nothing changes nothing
            for watch in world.step_watchers:
                for event in events[:-1]:
                    watch(world, self.name, replica, event, ())
                watch(world, self.name, replica, last, effects)
        if replica.commit > world.atlas.commit and not world.losses.is_left(replica):
            world.atlas.extend(replica.log, replica.commit)
            world.ambush.committed(self)
        if effects:
            if self.doom is not None:
                self.driver.perform(effects[: self.doom])
                self.crash()
                return
            self.driver.perform(effects)
        for damage in self.driver.damage():
            self.step(damage)
