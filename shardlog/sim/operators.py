"""The driver of one coordinator machine: an operator process, as far as the protocol can tell.

Its state is nothing but the machine, so a crash loses all of it and a restart begins with a fresh
one that loads the record again.  Requests that had left before a crash still take effect: a
compare-and-swap in flight succeeds without anybody to hear of it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from shardlog.protocol.coordination import (
    Accepted,
    Alerted,
    Command,
    Commanded,
    CompareAndSwap,
    CoordinatorEffect,
    CoordinatorEvent,
    LeadersCounted,
    Load,
    Loaded,
    Rejected,
    Swapped,
)
from shardlog.protocol.coordinator import Coordinator
from shardlog.protocol.effects import Received, Send, Tick
from shardlog.protocol.messages import Envelope
from shardlog.protocol.mood import Mood, mood_of
from shardlog.sim.failures import CrashFailure, SimulationFailure
from shardlog.sim.node import CLOCK_MS, Node

if TYPE_CHECKING:
    from shardlog.sim.world import World

TICK = Tick()


class Operator:
    """One operator process: up, paused or down.

    A paused one is the dangerous kind: it wakes up with an old record and acts on it.
    """

    __slots__ = (
        "commands",
        "coordinator",
        "doom",
        "generation",
        "inbox",
        "moods",
        "name",
        "paused",
        "rate",
        "skew_ms",
        "up",
        "world",
    )

    def __init__(self, world: World, name: str) -> None:
        options = world.options
        self.world = world
        self.name = name
        self.skew_ms = CLOCK_MS + world.random.randint(-options.skew_ms_max, options.skew_ms_max)
        self.rate = 1_000_000 + world.random.randint(-options.drift_ppm_max, options.drift_ppm_max)
        self.up = True
        self.paused = False
        # Events that came in while paused.
        self.inbox: list[CoordinatorEvent] = []
        self.generation = 0
        # Crash after so many effects of the next step that has any; None if not doomed.
        self.doom: int | None = None
        # Commands without an answer yet, by number.
        self.commands: dict[int, Command] = {}
        # What was last seen of each node, None if it did not answer.
        self.moods: dict[str, Mood | None] = {}
        self.coordinator = self._boot()

    def now_ms(self) -> int:
        return self.skew_ms + self.world.scheduler.now_us * self.rate // 1_000_000_000

    def _boot(self) -> Coordinator:
        world = self.world
        delay_us = int(world.random.random() * world.options.tick_ms * 1000)
        world.scheduler.after(delay_us, self._tick, self.generation)
        self.moods.clear()
        if world.options.look_ms:
            world.scheduler.after(delay_us, self._look, self.generation)
        # Drawn apart, so that runs are what they were before elections had ids.
        draw = Random(f"elections {world.options.seed} {self.name} {self.generation}")
        coordinator = Coordinator(
            self.name, world.shard, world.options.coordinator_limits, 1 + draw.getrandbits(62)
        )
        counts = tuple((name, world.random.randint(0, 3)) for name in world.node_names)
        coordinator.step(self.now_ms(), LeadersCounted(counts))
        return coordinator

    def crash(self) -> None:
        if not self.up:
            return
        self.up = self.paused = False
        self.generation += 1
        self.doom = None
        self.inbox.clear()
        self.commands.clear()
        self.world.statistics.coordinator_crashes += 1
        for watch in self.world.crash_watchers:
            watch(self.world, self.name)
        self.world.operator_went_down(self)

    def restart(self, _: object = None) -> None:
        if self.up:
            return
        self.up = True
        self.coordinator = self._boot()
        for watch in self.world.restart_watchers:
            watch(self.world, self.name)

    def pause(self) -> None:
        self.paused = True

    def resume(self, _: object = None) -> None:
        if not self.paused:
            return
        self.paused = False
        generation = self.generation
        inbox, self.inbox = self.inbox, []
        for event in inbox:
            if generation == self.generation:
                self.step(event)

    # --- events ----------------------------------------------------------------------------------

    def receive(self, envelope: Envelope) -> None:
        if self.up:
            self.take(Received(envelope))

    def take(self, event: CoordinatorEvent) -> None:
        if self.paused:
            self.inbox.append(event)
        else:
            self.step(event)

    def _tick(self, generation: int) -> None:
        if generation == self.generation:
            world = self.world
            world.scheduler.after(world.options.tick_ms * 1000, self._tick, generation)
            if not self.paused and self.coordinator.wait_ms(self.now_ms()) == 0:
                self.step(TICK)

    def _look(self, generation: int) -> None:
        """At the nodes, as the driver of many shards does: what has changed wakes the machine."""
        if generation != self.generation:
            return
        world = self.world
        world.scheduler.after(world.options.look_ms * 1000, self._look, generation)
        seen = {name: self._mood(node) for name, node in world.nodes.items()}
        if seen != self.moods and not self.paused:
            self.moods = seen
            self.step(Alerted())

    def _mood(self, node: Node) -> Mood | None:
        network = self.world.network
        ways = (network.link(self.name, node.name), network.link(node.name, self.name))
        if not node.up or node.paused or any(way.cuts or way.held is not None for way in ways):
            return None
        return mood_of(node.replica, node.now_ms())

    def command(self, number: int, command: Command) -> None:
        self.commands[number] = command
        self.take(Commanded(number, command))

    def watch(self) -> None:
        """The record changed: the news is on its way."""
        self.world.store.tell(_Answer(self))

    def step(self, event: CoordinatorEvent) -> None:
        world = self.world
        coordinator = self.coordinator
        try:
            effects = coordinator.step(self.now_ms(), event)
        except SimulationFailure:
            raise
        except Exception as error:
            raise CrashFailure(f"{self.name} in {type(event).__name__}: {error!r}") from error
        for watch in world.coordinator_watchers:
            watch(world, self.name, coordinator, event, effects)
        if not effects:
            return
        if self.doom is not None:
            self._perform(effects[: self.doom])
            self.crash()
        else:
            self._perform(effects)

    def _perform(self, effects: list[CoordinatorEffect]) -> None:
        world = self.world
        for effect in effects:
            if isinstance(effect, Send):
                world.network.send(effect.envelope)
            elif isinstance(effect, CompareAndSwap):
                world.store.compare_and_swap(effect, _Answer(self))
            elif isinstance(effect, Load):
                world.store.load(_Answer(self))
            elif isinstance(effect, Accepted | Rejected):
                command = self.commands.pop(effect.number, None)
                if command is not None:
                    world.command_answered(command, effect)


class _Answer:
    """Takes an answer of the store to the life of the operator that asked."""

    __slots__ = ("generation", "operator")

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.generation = operator.generation

    def __call__(self, event: Loaded | Swapped) -> None:
        if self.generation == self.operator.generation:
            self.operator.take(event)
