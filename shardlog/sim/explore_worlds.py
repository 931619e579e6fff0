"""The named worlds, and how each of them begins.

Every world begins with a shard that is steady in epoch 1, with one session registered for each
write to come; those that bring in a new node begin when it has caught up as a standby.  Getting
there is rehearsed in order, without faults, so that all the states go into what is in question.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from shardlog.protocol.coordination import (
    AbortChange,
    Command,
    Commanded,
    Contract,
    CreateShard,
    Expand,
    Swap,
)
from shardlog.protocol.effects import Received, Tick
from shardlog.protocol.entry import Member
from shardlog.protocol.messages import Envelope, Register, Registered, StatusRequest
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.sim import explore_coordinators as coordinators
from shardlog.sim import explore_replicas as replicas
from shardlog.sim.explore_cells import COORDINATES
from shardlog.sim.explore_coordinators import Polled, Store
from shardlog.sim.explore_known import CLIENT
from shardlog.sim.explore_messages import Reduction
from shardlog.sim.explore_replicas import EMPTY_IMAGE, SHARD
from shardlog.sim.explore_values import key
from shardlog.sim.explore_world import Bounds, State, World


class Rehearsal:
    """Runs a shard in order, without faults, to where a world begins."""

    def __init__(self, world: World, members: tuple[str, ...]) -> None:
        self.world = world
        self.reduction = world.bounds.reduction
        bounds = world.bounds
        self.images = dict.fromkeys(bounds.nodes, EMPTY_IMAGE)
        self.machines = {
            name: replicas.restarted(name, EMPTY_IMAGE, self.reduction)[0] for name in bounds.nodes
        }
        self.store = Store(0, None)
        self.first = bounds.coordinators[0]
        self.coordinator = coordinators.started(self.first, self.store)
        self.queue: list[Envelope] = []
        self.told: list[Envelope] = []
        self.drive(Commanded(0, CreateShard(members, QuorumPolicy())))
        self.run()
        world.cells.sessions = tuple(self.register(number) for number in range(bounds.writes))

    @property
    def leader(self) -> Member:
        assert self.store.record is not None and self.store.record.leader is not None
        return self.store.record.leader

    def drive(self, event: coordinators.CoordinatorInput) -> None:
        driven = coordinators.steps(self.coordinator, self.store, event)[0]
        self.coordinator, self.store = driven.after, driven.store
        self.queue += driven.sent

    def step(self, name: str, event: Received | Tick) -> None:
        taken = replicas.step(self.machines[name], event, self.reduction)
        self.machines[name] = taken.after
        self.images[name] = replicas.performed(self.images[name], taken.disk, self.reduction)
        self.queue += taken.sent

    def deliver(self) -> None:
        while self.queue:
            envelope = self.queue.pop(0)
            if envelope.dst in self.machines:
                self.step(envelope.dst, Received(envelope, 1))
            elif envelope.dst == CLIENT:
                self.told.append(envelope)
            else:
                self.drive(Received(envelope))

    def run(self) -> None:
        """Until nothing happens any more."""
        while True:
            self.deliver()
            before = key(self.coordinator)
            self.drive(Tick())
            if not self.queue and key(self.coordinator) == before:
                return

    def register(self, number: int) -> int:
        """Open a session; its id."""
        leader = self.leader
        self.step(leader.node, Received(Envelope(SHARD, CLIENT, 0, *leader, Register(number + 1))))
        self.deliver()
        answer = self.told[-1].message
        assert isinstance(answer, Registered)
        return answer.session

    def join(self, command: Command, node: str) -> None:
        """Bring a node in, up to where it has caught up as a standby."""
        self.drive(Commanded(1, command))
        while not self._stands_by(node):
            self.deliver()
            self.step(node, Tick())
            self.deliver()
            if not self._stands_by(node):
                request = Envelope(SHARD, self.first, 0, *self.leader, StatusRequest(1))
                report = replicas.step(
                    self.machines[self.leader.node], Received(request), self.reduction
                ).sent[0]
                self.drive(Polled(report))

    def _stands_by(self, node: str) -> bool:
        leader = self.machines[self.leader.node]
        assert leader.lead is not None
        known = [each for member, each in leader.lead.cursors.items() if member.node == node]
        return any(each.announced and each.at == leader.log.end for each in known)

    def state(self) -> State:
        """The world's first state."""
        bounds, known = self.world.bounds, self.world.known
        machines = [known.replica(self.machines[name]) for name in bounds.nodes]
        images = [known.image(self.images[name]) for name in bounds.nodes]
        masters = [
            known.coordinator(self.coordinator),
            *(
                known.coordinator(coordinators.started(name, self.store))
                for name in bounds.coordinators[1:]
            ),
        ]
        chain, leaders = known.chains.of((), ()), known.leaders.of((), ())
        for machine in machines:
            chain = known.judge(chain, machine)
            if known.faces[machine].leads:
                leaders = known.lead(leaders, machine)
        cells = self.world.cells
        return (
            *(
                cells.of(machine, image if bounds.crashes else 0, ())
                for machine, image in zip(machines, images, strict=True)
            ),
            *(cells.of(each, COORDINATES, ()) for each in masters),
            known.store(self.store),
            chain,
            leaders,
            bounds.writes,
            bounds.crashes,
            bounds.epochs - 1,
            0,
        )


@dataclass(frozen=True, slots=True)
class Named:
    """A world by name: what it is for, its bounds, and how it begins."""

    name: str
    purpose: str
    bounds: Bounds
    joining: Command | None = None

    def begin(self, reduction: Reduction | None = None) -> tuple[World, State]:
        """The world and its first state, with the reductions given or with its own."""
        bounds = self.bounds if reduction is None else replace(self.bounds, reduction=reduction)
        world = World(bounds)
        newcomer = getattr(self.joining, "new", None)
        members = tuple(name for name in self.bounds.nodes if name != newcomer)
        rehearsal = Rehearsal(world, members)
        if self.joining is not None and newcomer is not None:
            rehearsal.join(self.joining, newcomer)
        return world, rehearsal.state()


ABC = ("a", "b", "c")

CHANGE = Bounds(ABC, epochs=2, writes=1, crashes=1, polls=True, interchangeable=(("a", "b"),))
"""A change, an election at any moment of it, a write and a crash."""

SWAPPING = replace(CHANGE, nodes=("a", "b", "c", "d"), commands=(AbortChange(),), slow=("c",))

WORLDS = (
    Named(
        "swap",
        "a replica is replaced, or not",
        replace(SWAPPING, epochs=1),
        joining=Swap("c", "d"),
    ),
    Named(
        "contract",
        "a replica is given up, or not",
        replace(CHANGE, commands=(Contract("c"), AbortChange()), slow=("c",)),
    ),
    Named(
        "expand",
        "a replica is added, or not",
        replace(CHANGE, nodes=("a", "b", "d"), commands=(AbortChange(),)),
        joining=Expand("d"),
    ),
    Named(
        "elections",
        "three replicas, elections only",
        Bounds(ABC, epochs=3, writes=2, crashes=1, interchangeable=(ABC,)),
    ),
    Named(
        "swap-elected",
        "a replica is replaced, or not, with an election at any moment",
        replace(SWAPPING, writes=0, crashes=0),
        joining=Swap("c", "d"),
    ),
    Named(
        "coordinators",
        "two coordinators, elections only",
        Bounds(
            ABC,
            coordinators=("x", "y"),
            epochs=2,
            writes=1,
            crashes=1,
            interchangeable=(ABC, ("x", "y")),
        ),
    ),
)


def named(name: str) -> Named:
    return next(each for each in WORLDS if each.name == name)


def sized(world: Named, **bounds: int | None) -> Named:
    """The same world with other bounds; None leaves one as it is."""
    given: dict[str, Any] = {name: value for name, value in bounds.items() if value is not None}
    return replace(world, bounds=replace(world.bounds, **given))
