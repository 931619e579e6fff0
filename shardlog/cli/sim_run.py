"""`shardlog sim run` and `shardlog sim replay`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import rich_click as click

from shardlog.cli import exit_codes

if TYPE_CHECKING:
    from shardlog.sim.runner import Outcome, Summary

EXIT_CODES = {
    "": exit_codes.OK,
    "CrashFailure": exit_codes.CRASH,
    "SafetyFailure": exit_codes.SAFETY,
    "LivenessFailure": exit_codes.LIVENESS,
}

DEFAULT_PROFILE = "default"
PROFILE_HELP = "The set of options that seeds draw from."


@click.command()
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="How many seeds to run.",
)
@click.option("--start", default=1, show_default=True, help="The first seed.")
@click.option("--jobs", default=0, help="How many processes; all cores if not given.")
@click.option("--keep-going", is_flag=True, help="Go on after a failure.")
@click.option("--engine", is_flag=True, help="Over the storage engine, not over a model of disks.")
@click.option("--profile", default=DEFAULT_PROFILE, help=PROFILE_HELP)
@click.pass_context
def run(
    ctx: click.Context,
    seeds: int,
    start: int,
    jobs: int,
    keep_going: bool,
    engine: bool,
    profile: str,
) -> None:
    """Run many seeds; stop at the first that fails."""
    from shardlog.sim.runner import run_many

    _require_profile(profile)
    seed_range = range(start, start + seeds)
    summary = run_many(seed_range, jobs, keep_going, _report, engine, profile)
    _summarize(summary)
    worst = summary.worst
    ctx.exit(EXIT_CODES[worst.kind] if worst else exit_codes.OK)


@click.command()
@click.option("--seed", required=True, type=int, help="The seed to replay.")
@click.option("--trace", default=None, help="Write every step to this file; - is standard output.")
@click.option("--options", "show_options", is_flag=True, help="Show what the seed decided.")
@click.option("--engine", is_flag=True, help="Over the storage engine, not over a model of disks.")
@click.option("--profile", default=DEFAULT_PROFILE, help=PROFILE_HELP)
@click.pass_context
def replay(
    ctx: click.Context,
    seed: int,
    trace: str | None,
    show_options: bool,
    engine: bool,
    profile: str,
) -> None:
    """Run one seed again."""
    from shardlog.sim.profiles import options_of
    from shardlog.sim.runner import run_options
    from shardlog.sim.trace import Recorder

    _require_profile(profile)
    options = options_of(seed, profile, engine)
    if show_options:
        click.echo("\n".join(options.lines()), err=True)
    if trace is None:
        outcome = run_options(options)
    elif trace == "-":
        outcome = run_options(options, [Recorder(sys.stdout)])
    else:
        with open(trace, "w", encoding="utf-8") as out:
            outcome = run_options(options, [Recorder(out)])
    for line in outcome.statistics.lines():
        click.echo(line, err=True)
    if outcome.kind:
        click.echo(outcome.details, err=True, nl=False)
        click.echo(f"seed {seed}: {outcome.kind}: {outcome.text}", err=True)
    ctx.exit(EXIT_CODES[outcome.kind])


def _require_profile(profile: str) -> None:
    from shardlog.sim.profiles import PROFILES

    if profile not in PROFILES:
        raise click.UsageError(f"no profile is called {profile!r}: one of {', '.join(PROFILES)}")


def _report(outcome: Outcome) -> None:
    if outcome.kind:
        click.echo(f"seed {outcome.seed}: {outcome.kind}: {outcome.text}")
        click.echo(outcome.replay)


def _summarize(summary: Summary) -> None:
    rate = summary.statistics.messages / summary.worker_seconds if summary.worker_seconds else 0
    for line in summary.statistics.lines():
        click.echo(line)
    if summary.smallest is not None:
        messages, elections, changes = summary.smallest
        click.echo(
            f"in every run at least {messages:,} messages, {elections} elections, "
            f"{changes} reconfigurations finished"
        )
    click.echo(
        f"{summary.runs} seeds in {summary.seconds:.1f} s, {len(summary.failures)} failed, "
        f"{rate:,.0f} messages per second and core"
    )
