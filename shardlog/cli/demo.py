"""`shardlog demo`: a cluster of real processes, faults under load, nothing lost."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from shardlog.cli import exit_codes
from shardlog.cli.failures import BadUsage, CommandFailed
from shardlog.cli.local_cluster import failures_as_exit_codes

if TYPE_CHECKING:
    from shardlog.cli.demo_screen import DemoScreen
    from shardlog.demo.story import Outcome


class DemoFailed(CommandFailed):
    """The cluster stood still, or did not do what it was told."""

    exit_code = exit_codes.LIVENESS


@click.command()
@click.option("--seconds", type=click.FloatRange(0.1, 60), default=2.0, show_default=True,
              help="How long to append at full speed.")  # fmt: skip
@click.option("--svg", type=click.Path(dir_okay=False, writable=True, path_type=Path),
              metavar="FILE", help="Write what was shown as a picture.")  # fmt: skip
@click.pass_context
def demo(ctx: click.Context, seconds: float, svg: Path | None) -> None:
    """Watch a cluster on this machine lose its leader, grow, shrink, and lose no record.

    Everything is real: processes, kill -9, files in a temporary directory, which is removed. All
    records that were acknowledged are read back and compared; status 4 if any is not there once.
    """
    from shardlog.cli.demo_screen import DemoScreen

    if svg is not None and not svg.parent.is_dir():
        raise BadUsage(f"{svg}: there is no directory {svg.parent}")
    screen = DemoScreen()
    begun = time.monotonic()
    with screen, failures_as_exit_codes():
        outcome = _perform(screen, seconds)
    screen.report(outcome, time.monotonic() - begun)
    if svg is not None:
        try:
            screen.save_svg(svg)
        except OSError as failure:
            raise BadUsage(f"{svg}: {failure.strerror}") from failure
    ctx.exit(exit_code(outcome))


def exit_code(outcome: Outcome) -> int:
    """Nothing short of a check that found everything is good."""
    findings = outcome.findings
    return exit_codes.OK if findings and findings.is_good else exit_codes.SAFETY


def _perform(screen: DemoScreen, speed_s: float) -> Outcome:
    """The cluster is down and its files are gone when this returns, or raises."""
    import uvloop

    from shardlog.client import ClientFailure
    from shardlog.demo.cluster import (
        NotInTime,
        Rejected,
        interruptible,
        running,
        temporary_directory,
    )
    from shardlog.demo.story import NODES, Story

    screen.begin("cluster up")

    def serving(count: int, of: int) -> None:
        screen.live(f"{count} of {of} processes serve")

    with temporary_directory() as directory, running(directory, NODES, serving) as cluster:
        screen.done(f"{NODES} nodes and a coordinator, {NODES + 2} processes")
        story = Story(cluster, screen, speed_s)
        try:
            uvloop.run(interruptible(story.play()))
        except (NotInTime, Rejected, ClientFailure) as failure:
            raise DemoFailed(f"the demo failed: {failure}") from failure
        screen.begin("cluster down")
    screen.done("all processes ended, files removed")
    return story.outcome
