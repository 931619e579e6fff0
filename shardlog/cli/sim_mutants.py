"""`shardlog sim mutants`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

from shardlog.cli import exit_codes

if TYPE_CHECKING:
    from shardlog.sim.mutation import Verdict


@click.command()
@click.argument("names", nargs=-1)
@click.option("--seeds", default=300, show_default=True, help="How many seeds to try on each.")
@click.option("--jobs", default=0, help="How many processes; all cores if not given.")
@click.option("--list", "list_only", is_flag=True, help="Only list the mutants.")
@click.pass_context
def mutants(
    ctx: click.Context, names: tuple[str, ...], seeds: int, jobs: int, list_only: bool
) -> None:
    """Take rules away, one at a time: each must be caught.

    NAMES choose some of the mutants; all of them if none is given.
    """
    from shardlog.sim.mutants import MUTANTS
    from shardlog.sim.mutation import try_all

    unknown = [name for name in names if name not in MUTANTS]
    if unknown:
        raise click.UsageError(f"no mutant is called {unknown[0]}: see --list")
    if list_only:
        for mutant in MUTANTS.values():
            click.echo(f"{mutant.name:26} {' '.join(mutant.ids):8} {mutant.summary}")
        return
    verdicts = try_all(list(names) or list(MUTANTS), seeds, jobs, _report)
    survived = [verdict.name for verdict in verdicts if not verdict.caught]
    click.echo(f"{len(verdicts) - len(survived)} of {len(verdicts)} mutants caught")
    if survived:
        click.echo(f"survived: {' '.join(survived)}")
        ctx.exit(exit_codes.SURVIVED)


def _report(verdict: Verdict) -> None:
    if verdict.caught:
        click.echo(f"caught   {verdict.name:26} seed {verdict.seed:<5} {verdict.text[:110]}")
    else:
        click.echo(f"SURVIVED {verdict.name:26} {verdict.runs} seeds, {verdict.crashes} crashes")
