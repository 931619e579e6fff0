"""Bounded exhaustive exploration: every interleaving of a small world, level by level.

The search is breadth first, so a violation is reported by one of the shortest paths that lead to
it.  A visited state is kept whole, as the bytes of its numbers, so no two states are ever taken for
one; and with it the number of the state from which it was first reached.  The path to a failure is
found again by walking it forward.
"""

from __future__ import annotations

import gc
import resource
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from shardlog.sim.explore_cells import Action
from shardlog.sim.explore_transcript import told
from shardlog.sim.explore_world import State, World
from shardlog.sim.explore_worlds import Named
from shardlog.sim.failures import CrashFailure, SimulationFailure


@dataclass(slots=True)
class Report:
    """What an exploration came to.  `seconds` are of processor time."""

    world: str
    states: int = 0
    transitions: int = 0
    depth: int = 0
    seconds: float = 0.0
    memory_mib: int = 0
    exhausted: bool = False
    failure: SimulationFailure | None = None
    transcript: tuple[str, ...] = ()


Progress = Callable[[Report, int], None]
"""Called after each level, with the size of the next one."""


def explore(named: Named, states_max: int = 0, progress: Progress | None = None) -> Report:
    """Explore a world until it is exhausted, fails, or has more than `states_max` states."""
    world, start = named.begin()
    return Explorer(named.name, world, start, states_max, progress).run()


class Explorer:
    def __init__(
        self,
        name: str,
        world: World,
        start: State,
        states_max: int = 0,
        progress: Progress | None = None,
    ) -> None:
        self.world = world
        self.start = start
        self.states_max = states_max
        self.progress = progress
        self.report = Report(name)
        # Packed states, numbered in the order in which they were found.
        self.visited: dict[bytes, None] = {}
        self.packed = Struct(f"{len(start)}I").pack
        # By number: the number of the state from which it was first reached.
        self.parents = array("I")
        self._expanding = 0

    def run(self) -> Report:
        report = self.report
        began = time.process_time()
        collecting = gc.isenabled()
        gc.disable()  # nothing here is a cycle, and looking for some takes a third of the time
        try:
            report.exhausted = self._search()
        except SimulationFailure as failure:
            report.failure = failure
            report.transcript = self._transcript()
        except Exception as error:
            report.failure = CrashFailure(repr(error))
            report.transcript = self._transcript()
        finally:
            if collecting:
                gc.enable()
        report.states = len(self.visited)
        report.seconds = time.process_time() - began
        report.memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        return report

    def _search(self) -> bool:
        """True if the frontier is exhausted."""
        world, report, visited, parents = self.world, self.report, self.visited, self.parents
        representative, successors = world.symmetry.representative, world.successors
        first = representative(self.start)
        packed = self.packed
        visited[packed(*first)] = None
        parents.append(0)
        frontier: list[tuple[int, State]] = [(0, first)]
        while frontier:
            following: list[tuple[int, State]] = []
            for number, state in frontier:
                self._expanding = number
                for made in successors(state):
                    report.transitions += 1
                    made = representative(made)
                    key = packed(*made)
                    if key not in visited:
                        following.append((len(visited), made))
                        visited[key] = None
                        parents.append(number)
                if self.states_max and len(visited) >= self.states_max:
                    return False
            frontier = following
            report.states = len(visited)
            if frontier:
                report.depth += 1
            if self.progress:
                self.progress(report, len(frontier))
        return True

    # --- the way to a failure --------------------------------------------------------------------

    def _transcript(self) -> tuple[str, ...]:
        """How the state that was being expanded is reached, and what failed there.

        The walk goes through states that need not be representatives, so that names stay what
        they were from the first line to the last.
        """
        world, state = self.world, self.start
        lines = list(told(world, None, Action(0, -1, False), state))
        for key in self._path():
            for action, made in world.actions(state):
                if self.packed(*world.symmetry.representative(made)) == key:
                    lines += told(world, state, action, made)
                    state = made
                    break
        try:
            world.successors(state)
        except Exception as error:
            lines += told(world, state, world.cells.doing, None)
            lines.append(f"!! {error}" if isinstance(error, SimulationFailure) else f"!! {error!r}")
        return tuple(lines)

    def _path(self) -> list[bytes]:
        states = list(self.visited)
        path: list[bytes] = []
        number = self._expanding
        while number:
            path.append(states[number])
            number = self.parents[number]
        return path[::-1]
