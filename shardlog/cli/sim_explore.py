"""`shardlog sim explore`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import rich_click as click

from shardlog.cli import exit_codes

if TYPE_CHECKING:
    from shardlog.sim.explore import Report

EXIT_CODES = {"SafetyFailure": exit_codes.SAFETY, "CrashFailure": exit_codes.CRASH}


@click.command()
@click.option("--world", "names", multiple=True, help="Which world; may be repeated. Default: all.")
@click.option("--epochs", type=int, help="Epochs opened by elections, the first one included.")
@click.option("--writes", type=int, help="How many writes.")
@click.option("--crashes", type=int, help="How many crashes of replicas and coordinators.")
@click.option("--max-states", default=0, help="Give a world up at so many states; 0 for never.")
@click.option("--jobs", default=2, show_default=True, help="How many worlds at a time.")
@click.option("--progress", is_flag=True, help="Tell each level; one world at a time.")
@click.pass_context
def explore(
    ctx: click.Context,
    names: tuple[str, ...],
    epochs: int | None,
    writes: int | None,
    crashes: int | None,
    max_states: int,
    jobs: int,
    progress: bool,
) -> None:
    """Walk all interleavings of small worlds, until nothing new is found.

    A violation is printed as one of the shortest paths that lead to it.
    """
    from shardlog.sim.crew import spread
    from shardlog.sim.explore import explore as explore_world
    from shardlog.sim.explore_worlds import WORLDS, sized

    known = {each.name: each for each in WORLDS}
    for name in names:
        if name not in known:
            raise click.UsageError(f"no world {name!r}; there are {', '.join(known)}")
    chosen = [known[name] for name in names or known]
    worlds = [sized(each, epochs=epochs, writes=writes, crashes=crashes) for each in chosen]
    _head()
    reports: list[Report] = []
    one = partial(explore_world, states_max=max_states, progress=_level if progress else None)
    for report in spread(one, worlds, 1 if progress or len(worlds) == 1 else jobs):
        reports.append(report)
        _tell(report)
    failed = [each for each in reports if each.failure is not None]
    if failed:
        ctx.exit(max(EXIT_CODES[type(each.failure).__name__] for each in failed))


def _head() -> None:
    click.echo(f"{'world':14s}{'states':>12s}{'transitions':>14s}{'depth':>7s}{'s':>8s}{'MiB':>7s}")


def _tell(report: Report) -> None:
    ending = "" if report.exhausted else "  stopped at --max-states: not exhausted"
    if report.failure is not None:
        ending = f"  {report.failure.headline}"
    click.echo(
        f"{report.world:14s}{report.states:12,d}{report.transitions:14,d}{report.depth:7d}"
        f"{report.seconds:8.1f}{report.memory_mib:7d}{ending}"
    )
    for line in report.transcript:
        click.echo(f"  {line}")


def _level(report: Report, waiting: int) -> None:
    click.echo(f"  depth {report.depth}: {report.states:,} states, {waiting:,} to expand", err=True)
