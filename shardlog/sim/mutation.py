"""The mutation gate: every mutant must be caught, and by an outside checker.

A mutant is run with the options of its profile, one seed after the other, until a checker
reports a safety or liveness failure.  An exception inside a machine does not count: it would only
show that the mutant was noticed by the code it was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shardlog.sim.crew import spread
from shardlog.sim.failures import CrashFailure
from shardlog.sim.mutant import Mutant
from shardlog.sim.mutants import MUTANTS
from shardlog.sim.runner import run_seed


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one mutant fared; `seed` is None if it survived."""

    name: str
    seed: int | None
    runs: int
    crashes: int
    text: str

    @property
    def caught(self) -> bool:
        return self.seed is not None


def try_mutant(job: tuple[str, int]) -> Verdict:
    """Run the mutant until it is caught, its known seed first."""
    name, seeds_max = job
    mutant = MUTANTS[name]
    crashes = 0
    with mutant.applied():
        for runs, seed in enumerate(_seeds(mutant, seeds_max), start=1):
            outcome = run_seed(seed, mutant.profile)
            if outcome.kind == CrashFailure.__name__:
                crashes += 1
            elif outcome.kind:
                return Verdict(name, seed, runs, crashes, f"{outcome.kind}: {outcome.text}")
    return Verdict(name, None, seeds_max, crashes, "no checker noticed")


def _seeds(mutant: Mutant, seeds_max: int) -> Iterator[int]:
    """The seed that caught it last time saves the search; any other seed may take its place."""
    yield mutant.seed
    yield from (seed for seed in range(1, seeds_max) if seed != mutant.seed)


def try_all(
    names: list[str], seeds_max: int, jobs: int, on_verdict: Callable[[Verdict], None]
) -> list[Verdict]:
    """All named mutants over `jobs` processes."""
    verdicts = []
    for verdict in spread(try_mutant, [(name, seeds_max) for name in names], jobs):
        on_verdict(verdict)
        verdicts.append(verdict)
    return verdicts
