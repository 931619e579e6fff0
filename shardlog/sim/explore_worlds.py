"""The named worlds."""

from __future__ import annotations

from shardlog.protocol.coordination import Commanded, CreateShard
from shardlog.protocol.effects import Received, Tick
from shardlog.protocol.messages import Envelope, Register, Registered
from shardlog.protocol.quorum import QuorumPolicy
from shardlog.sim import explore_coordinators as coordinators
from shardlog.sim import explore_replicas as replicas
from shardlog.sim.explore_coordinators import Store
from shardlog.sim.explore_known import CLIENT
from shardlog.sim.explore_replicas import EMPTY_IMAGE, SHARD
from shardlog.sim.explore_world import State, World


class Rehearsal:
    """Runs a shard in order, without faults, to where a world begins."""

    def __init__(self, world: World, members: tuple[str, ...]) -> None:
        self.world = world
        bounds = world.bounds
        self.images = dict.fromkeys(bounds.nodes, EMPTY_IMAGE)
        self.machines = {
            name: replicas.restarted(name, EMPTY_IMAGE, bounds.reduction)[0]
            for name in bounds.nodes
        }
        self.store = Store(0, None)
        self.first = bounds.coordinators[0]
        self.coordinator = coordinators.started(self.first, self.store)
        self.queue: list[Envelope] = []
        self.told: list[Envelope] = []
        self.drive(Commanded(0, CreateShard(members, QuorumPolicy())))
        self.run()

    def drive(self, event: coordinators.CoordinatorInput) -> None:
        driven = coordinators.steps(self.coordinator, self.store, event)[0]
        self.coordinator, self.store = driven.after, driven.store
        self.queue += driven.sent

    def step(self, name: str, event: Received | Tick) -> None:
        taken = replicas.step(self.machines[name], event, self.world.bounds.reduction)
        self.machines[name] = taken.after
        self.images[name] = replicas.performed(self.images[name], taken.disk)
        self.queue += taken.sent

    def run(self) -> None:
        """Until nothing is in flight any more."""
        while True:
            while self.queue:
                envelope = self.queue.pop(0)
                if envelope.dst in self.machines:
                    self.step(envelope.dst, Received(envelope, 1))
                elif envelope.dst == CLIENT:
                    self.told.append(envelope)
                else:
                    self.drive(Received(envelope))
            before = self.coordinator
            self.drive(Tick())
            if not self.queue and self.coordinator == before:
                return

    def register(self, number: int) -> int:
        """Open a session; its id."""
        leader = self.store.record.leader if self.store.record else None
        assert leader is not None
        self.step(leader.node, Received(Envelope(SHARD, CLIENT, 0, *leader, Register(number))))
        self.run()
        answer = self.told[-1].message
        assert isinstance(answer, Registered)
        return answer.session

    def state(self) -> State:
        """The world's first state."""
        world, bounds, known = self.world, self.world.bounds, self.world.known
        world.sessions = tuple(self.register(number) for number in range(bounds.writes))
        machines = [known.replica(self.machines[name]) for name in bounds.nodes]
        images = [known.image(self.images[name]) for name in bounds.nodes]
        if not bounds.crashes:
            images = [0 for _ in images]
        others = [
            known.coordinator(coordinators.started(name, self.store))
            for name in bounds.coordinators[1:]
        ]
        chain, leaders = known.chains.of((), ()), known.leaders.of((), ())
        for machine in machines:
            chain = known.judge(chain, machine)
            if known.faces[machine].leads:
                leaders = known.lead(leaders, machine)
        return (
            *machines,
            *images,
            known.coordinator(self.coordinator),
            *others,
            known.store(self.store),
            chain,
            leaders,
            bounds.writes,
            bounds.crashes,
            0,
        )
