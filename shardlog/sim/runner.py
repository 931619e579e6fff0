"""Running seeds: one here, or many over all cores.

A worker runs one seed to its end and sends back counts and, if it failed, one line.  Nothing else
crosses the process boundary, because nothing else is needed: a seed is replayed, not restored.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from shardlog.sim.checkers import all_checkers
from shardlog.sim.crew import spread
from shardlog.sim.failures import CrashFailure, LivenessFailure, SafetyFailure, SimulationFailure
from shardlog.sim.losses import LossChecker
from shardlog.sim.observer import Observer
from shardlog.sim.options import DEFAULT_PROFILE, Options
from shardlog.sim.profiles import options_of
from shardlog.sim.statistics import Statistics
from shardlog.sim.world import World


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one seed ended; `kind` is "" or the name of the failure."""

    seed: int
    statistics: Statistics
    kind: str = ""
    text: str = ""
    details: str = ""
    seconds: float = 0.0
    engine: bool = False
    profile: str = DEFAULT_PROFILE

    @property
    def replay(self) -> str:
        on_engine = " --engine" if self.engine else ""
        profile = "" if self.profile == DEFAULT_PROFILE else f" --profile {self.profile}"
        return f"replay: shardlog sim replay --seed {self.seed}{profile}{on_engine}"


@dataclass(slots=True)
class Summary:
    """Many seeds together."""

    statistics: Statistics = field(default_factory=Statistics)
    runs: int = 0
    failures: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0
    worker_seconds: float = 0.0
    # The least of each kind that a run saw which neither failed nor was out of reach.
    smallest: tuple[int, int, int] | None = None

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.statistics.add(outcome.statistics)
        self.worker_seconds += outcome.seconds
        if outcome.kind:
            self.failures.append(outcome)
        elif not outcome.statistics.out_of_reach:
            size = outcome.statistics.size
            least = self.smallest or size
            self.smallest = min(size[0], least[0]), min(size[1], least[1]), min(size[2], least[2])

    @property
    def worst(self) -> Outcome | None:
        """The failure that decides the exit code: safety before liveness before crashes."""
        order = (SafetyFailure.__name__, LivenessFailure.__name__, CrashFailure.__name__)
        ranked = sorted(self.failures, key=lambda each: (order.index(each.kind), each.seed))
        return ranked[0] if ranked else None


def run_options(options: Options, observers: Sequence[Observer] = ()) -> Outcome:
    """One run, to its end or to its failure."""
    started = time.perf_counter()
    world = World(options, [*observers, *all_checkers(), LossChecker()])
    try:
        world.run()
    except SimulationFailure as failure:
        return Outcome(
            options.seed,
            world.statistics,
            type(failure).__name__,
            failure.text,
            traceback.format_exc(),
            time.perf_counter() - started,
            options.engine,
            options.profile,
        )
    return Outcome(options.seed, world.statistics, seconds=time.perf_counter() - started)


def run_seed(seed: int, profile: str = DEFAULT_PROFILE, engine: bool = False) -> Outcome:
    return run_options(options_of(seed, profile, engine))


def run_many(
    seeds: Sequence[int],
    jobs: int = 0,
    keep_going: bool = False,
    on_outcome: Callable[[Outcome], None] | None = None,
    engine: bool = False,
    profile: str = DEFAULT_PROFILE,
) -> Summary:
    """All `seeds` over `jobs` processes; stops at the first failure unless told to keep going."""
    started = time.perf_counter()
    summary = Summary()
    with _progress(len(seeds)) as advance:
        for outcome in _outcomes(seeds, jobs, partial(run_seed, profile=profile, engine=engine)):
            summary.add(outcome)
            advance()
            if on_outcome is not None:
                on_outcome(outcome)
            if outcome.kind and not keep_going:
                break
    summary.seconds = time.perf_counter() - started
    return summary


def _outcomes(seeds: Sequence[int], jobs: int, run: Callable[[int], Outcome]) -> Iterator[Outcome]:
    return spread(run, seeds, 1 if len(seeds) == 1 else jobs)


def _progress(total: int) -> Any:
    """A bar on standard error, if a person is watching."""
    if not sys.stderr.isatty():
        return nullcontext(lambda: None)
    return _Bar(total)


class _Bar:
    """The few lines of `rich` that this needs, imported only if shown."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self.progress = Progress(console=Console(stderr=True), transient=True)
        self.task = self.progress.add_task("seeds", total=total)

    def __enter__(self) -> Callable[[], None]:
        self.progress.start()
        return lambda: self.progress.advance(self.task)

    def __exit__(self, *_: object) -> None:
        self.progress.stop()
