"""Bounded exhaustive exploration: every interleaving of a small world, level by level.

The search is breadth first, so a violation is reported by one of the shortest paths that lead to
it.  A visited state is kept as a digest of 16 bytes, with the number of the state it was first
reached from; the path is found again by walking it forward.  With 16 bytes the chance that two of
a billion states share a digest is below 10⁻²⁰.
"""

from __future__ import annotations

import resource
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

from shardlog.sim.explore_world import State, World
from shardlog.sim.failures import SimulationFailure


@dataclass(slots=True)
class Report:
    """What an exploration came to."""

    world: str
    states: int = 0
    transitions: int = 0
    depth: int = 0
    seconds: float = 0.0
    memory_mib: int = 0
    exhausted: bool = False
    failure: SimulationFailure | None = None
    transcript: tuple[str, ...] = ()


def digest(state: State) -> bytes:
    return blake2b(array("I", state).tobytes(), digest_size=16).digest()


class Explorer:
    """One exploration.  `progress` is called once for each level."""

    def __init__(
        self,
        name: str,
        world: World,
        start: State,
        states_max: int = 0,
        progress: Callable[[Report, int], None] | None = None,
    ) -> None:
        self.world = world
        self.start = start
        self.states_max = states_max
        self.progress = progress
        self.report = Report(name)
        self.visited: dict[bytes, int] = {}
        self.parents = array("I")

    def run(self) -> Report:
        report = self.report
        began = time.process_time()
        try:
            report.exhausted = self._search()
        except SimulationFailure as failure:
            report.failure = failure
        report.states = len(self.visited)
        report.seconds = time.process_time() - began
        report.memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        return report

    def _search(self) -> bool:
        world, report, visited, parents = self.world, self.report, self.visited, self.parents
        representative, successors = world.symmetry.representative, world.successors
        first = representative(self.start)
        visited[digest(first)] = 0
        parents.append(0)
        frontier: list[tuple[int, State]] = [(0, first)]
        while frontier:
            following: list[tuple[int, State]] = []
            for number, state in frontier:
                for made in successors(state):
                    report.transitions += 1
                    made = representative(made)
                    key = blake2b(array("I", made).tobytes(), digest_size=16).digest()
                    if key not in visited:
                        fresh = len(visited)
                        visited[key] = fresh
                        parents.append(number)
                        following.append((fresh, made))
                if self.states_max and len(visited) >= self.states_max:
                    return False
            frontier = following
            if frontier:
                report.depth += 1
            report.states = len(visited)
            if self.progress:
                self.progress(report, len(frontier))
        return True
